"""Keys or values of one layer to stored units and back: centring, transform, dialect, clips, error feedback, packing.

Encoding is the NumPy code that the one-pass simulation runs (`producer.scheme.fitted_layer`); reading is the same
arithmetic in torch, bit for bit up to the transform's inverse, a float32 product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from producer.cache.libraries import Tensor, load_libraries
from producer.errors import SpecError
from producer.quantize import get_dialect
from producer.quantize.base import METADATA_BITS
from producer.quantize.lloyd_max import codebook_thresholds
from producer.quantize.midpoint import Midpoint
from producer.quantize.oscar import Oscar
from producer.quantize.packing import get_layout

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect, FloatType
    from producer.scheme.encoder import RowEncoder
    from producer.scheme.fitted_layer import FittedLayer
    from producer.transform.base import Side
    from producer.transform.dense import DenseTransform

__all__ = ["SideEncoder", "dialect_with", "side_encoder"]

torch, _ = load_libraries()

_PLANES = {2: 4, 4: 2}


def dialect_with(name: str, metadata: FloatType | None) -> Dialect:
    """Return a dialect that stores its metadata in another type.

    Raises
    ------
    SpecError
        If there is none of that name, or its type is fixed.

    Notes
    -----
    Nearest codes are decided before scale and zero point are rounded; error feedback takes both as they are stored.
    """
    dialect = get_dialect(name)
    if metadata is None or metadata == dialect.numerics.metadata_dtype:
        return dialect
    if metadata not in METADATA_BITS:
        raise SpecError(f"metadata {metadata!r} is not allowed: one of {', '.join(METADATA_BITS)}")
    if not isinstance(dialect, (Midpoint, Oscar)):
        raise SpecError(
            f"metadata {metadata!r} is not allowed with dialect {name!r}: it stores {dialect.numerics.metadata_dtype}"
        )
    return replace(dialect, metadata_dtype=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEncoder:
    """Keys or values of one layer as they are stored.

    A *unit* is what is appended at once: a token, or the tokens of whole groups where groups run along them.

    Attributes
    ----------
    rows : RowEncoder
        What codes them, in the one-pass simulation too.
    """

    rows: RowEncoder

    @property
    def dialect(self) -> Dialect:
        """The dialect, with the cache's type of metadata."""
        return self.rows.dialect

    @property
    def transform(self) -> DenseTransform:
        """The transform of a row."""
        return self.rows.transform

    @property
    def mean(self) -> Float32Array | None:
        """What is subtracted before the transform, float32, (num_kv_heads, head_dim)."""
        return self.rows.mean

    @property
    def group_size(self) -> int:
        """Values that share a scale."""
        return self.rows.group_size

    @property
    def unit(self) -> int:
        """Tokens of a unit."""
        return self.rows.block

    def encode(self, x: Float32Array) -> tuple[Tensor, Tensor]:
        """Return stored codes and metadata.

        Parameters
        ----------
        x : float32, shape (rows, num_kv_heads, tokens, head_dim)
            In the model's own coordinates; tokens fill units.

        Returns
        -------
        codes : Tensor, uint8, shape (rows, num_kv_heads, units, …)
            The bytes of the dialect's layout.
        metadata : Tensor, float32, float16 or bfloat16, shape (rows, num_kv_heads, units, …)

        Raises
        ------
        SpecError, NonFiniteError, DegenerateGroupError
            As `Dialect.quantize`.
        """
        if self.unit == 1:
            # Rows are rows of their own: batch and tokens together, so that a layer is one call.
            heads = np.ascontiguousarray(x.swapaxes(0, 1)).reshape(x.shape[1], -1, x.shape[3])
            parts = [part.reshape(x.shape[1], x.shape[0], x.shape[2], -1) for part in self._encoded(heads)]
            codes, metadata = (_as_tensor(part.swapaxes(0, 1)) for part in parts)
            return codes, metadata
        count = x.shape[2] // self.unit
        units = np.ascontiguousarray(
            x.reshape(x.shape[0], x.shape[1], count, self.unit, x.shape[3]).transpose(1, 0, 2, 3, 4)
        ).reshape(x.shape[1], -1, self.unit, x.shape[3])
        found = [self._encoded(units[:, index]) for index in range(units.shape[1])]
        shape = (x.shape[1], x.shape[0], count)
        codes, metadata = (
            _as_tensor(np.stack(parts, axis=1).reshape(*shape, *parts[0].shape[1:]).swapaxes(0, 1))
            for parts in zip(*found, strict=True)
        )
        return codes, metadata

    def _encoded(self, heads: Float32Array) -> tuple[np.ndarray, np.ndarray]:
        """Return codes as bytes and metadata of (num_kv_heads, tokens, head_dim), as the dialect stores them."""
        stored = self.rows.pack(self.rows.encode(heads))
        return np.ascontiguousarray(stored.codes).view(np.uint8), stored.metadata

    def codes_of(self, stored: Tensor) -> Tensor:
        """Return codes, uint8, of stored bytes (…, units, bytes); last axis along the channels, or along the tokens."""
        packing = get_layout(self.dialect.numerics.packing)
        if packing.name == "three-bit":
            return _three_bit(stored)
        bits = packing.bits
        planes = [(stored >> bits * index) & (2**bits - 1) for index in range(_PLANES[bits])]
        if packing.name == "quartered":
            return torch.cat(planes, dim=-1)
        return torch.stack(planes, dim=-1).flatten(-2)

    def decode(self, codes: Tensor, metadata: Tensor, dtype: Tensor = torch.float32) -> Tensor:
        """Return tokens as they are coded, centred and transformed: (rows, num_kv_heads, tokens, head_dim).

        Notes
        -----
        The steps of `Dialect.dequantize` in its order, each rounded to `dtype`: in float32 its bits, in float64 what it
        would be without rounding.
        """
        numbers = self.codes_of(codes)
        scalars = self.dialect.numerics.metadata_scalars
        flat = metadata.to(dtype).unflatten(-1, (-1, scalars))
        parts = [
            flat[..., index].repeat_interleave(numbers.shape[-1] // flat.shape[-2], dim=-1)
            for index in range(scalars)
        ]
        values = _values(self.dialect, numbers, parts)
        # Along tokens a unit is (head_dim, tokens of the unit).
        return values if self.unit == 1 else values.transpose(-1, -2).flatten(2, 3)

    def restore(self, codes: Tensor, metadata: Tensor, dtype: Tensor = torch.float32) -> Tensor:
        """Return tokens in the model's own coordinates, shape (rows, num_kv_heads, tokens, head_dim)."""
        values = self.decode(codes, metadata, dtype)
        if self.transform.kind != "identity":
            values = values @ torch.tensor(self.transform.inverses, dtype=dtype, device=values.device)
        if self.mean is not None:
            values = values + torch.tensor(self.mean, dtype=dtype, device=values.device)[:, None, :]
        return values


def side_encoder(layer: FittedLayer, side: Side, head_dim: int, metadata: FloatType | None) -> SideEncoder:
    """Return the encoder of a side of a fitted layer.

    Raises
    ------
    SpecError
        If the scheme does not fit the head dimension: its groups, or the units of its layout.
    """
    scheme = layer.scheme
    rows = layer.encoder(side)
    rows = replace(rows, dialect=dialect_with(rows.dialect.name, metadata))
    if rows.transform.head_dim != head_dim:
        raise SpecError(
            f"transforms of head_dim {rows.transform.head_dim} are not allowed: the model has {head_dim}"
        )
    per_unit = get_layout(rows.dialect.numerics.packing).codes_per_unit
    if rows.dialect.numerics.group_axis == "channels" and (head_dim % rows.group_size or head_dim % per_unit):
        raise SpecError(
            f"scheme {scheme.name!r} is not allowed with head_dim {head_dim}: groups of {rows.group_size} and units of "
            f"{per_unit} codes have to fill it"
        )
    return SideEncoder(rows=rows)


def _as_tensor(stored: np.ndarray) -> Tensor:
    stored = np.ascontiguousarray(stored)
    if stored.dtype == np.uint16:
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(stored)


def _three_bit(stored: Tensor) -> Tensor:
    triples = stored.unflatten(-1, (-1, 3)).int()
    words = triples[..., 0] | (triples[..., 1] << 8) | (triples[..., 2] << 16)
    return torch.stack([(words >> 3 * index) & 7 for index in range(8)], dim=-1).flatten(-2).byte()


def _values(dialect: Dialect, codes: Tensor, metadata: list[Tensor]) -> Tensor:
    """Return the values of codes by what a dialect stores beside the scale, in the type of the metadata."""
    numerics, scale = dialect.numerics, metadata[0]
    numbers = codes.to(scale.dtype)
    if numerics.zero_point in {"float", "integer"}:
        return (numbers - metadata[1]) * scale
    if numerics.zero_point == "minimum":
        return numbers * scale + metadata[1]
    if numerics.rounding == "thresholds":
        levels = codebook_thresholds(numerics.bits)[0]
        if numerics.zero_point != "mean":
            levels = levels / np.float32(np.sqrt(codes.shape[-1]))
        found = torch.tensor(levels, dtype=scale.dtype, device=codes.device)[codes.int()]
        return metadata[1] + scale * found if numerics.zero_point == "mean" else found * scale
    return (numbers / 1.5 - 1.0) * scale
