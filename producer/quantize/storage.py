"""Stored bytes and bits per element: by formula, and counted from arrays as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from producer.errors import SpecError
from producer.numerics.bfloat16 import bfloat16_bits, widen_bfloat16
from producer.quantize.base import METADATA_BITS, FloatType, Quantized
from producer.quantize.packing import get_layout

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect, Numerics
    from producer.quantize.windows import TokenCounts

__all__ = ["StoredGroups", "bits_per_element", "bits_per_element_of", "load_quantized", "store_quantized"]


def bits_per_element(
    tokens: TokenCounts,
    *,
    bits: int,
    group_size: int,
    metadata_scalars: int,
    metadata_bits: int,
    window_bits: int = 16,
) -> Fraction:
    """Return the mean bits of one element of keys, or of values, exactly.

    Parameters
    ----------
    tokens : TokenCounts
        At least one token.
    bits : int
        Of a code.
    group_size : int
        Elements that share `metadata_scalars` scalars.
    metadata_scalars, metadata_bits : int
        Scalars of a group, and bits of one: 16 in the published figures, 32 by default in OSCAR's code.
    window_bits : int
        Of an element in the sink and recent windows.

    Notes
    -----
    (quantized·(b + s·m/G) + (sink + recent)·w) / tokens (S1). Page rounding, index tables, rotations and padding are
    not in it.

    Raises
    ------
    SpecError
        If there is no token or a size is not positive.
    """
    if tokens.total < 1 or group_size < 1 or bits < 1:
        raise SpecError(
            f"{tokens.total} tokens in groups of {group_size} at {bits} bits are not allowed: each at least 1"
        )
    element = bits + Fraction(metadata_scalars * metadata_bits, group_size)
    return (tokens.quantized * element + (tokens.sink + tokens.recent) * window_bits) / Fraction(tokens.total)


def bits_per_element_of(
    numerics: Numerics,
    group_size: int,
    tokens: TokenCounts,
    *,
    metadata_dtype: FloatType | None = None,
    window_dtype: FloatType = "bfloat16",
) -> Fraction:
    """Return the bits per element of a dialect; `metadata_dtype` replaces its own where a claim assumes another."""
    return bits_per_element(
        tokens,
        bits=numerics.bits,
        group_size=group_size,
        metadata_scalars=numerics.metadata_scalars,
        metadata_bits=METADATA_BITS[metadata_dtype or numerics.metadata_dtype],
        window_bits=METADATA_BITS[window_dtype],
    )


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """Codes and metadata as they lie in memory.

    Attributes
    ----------
    codes : uint8 or int32
        Packed along the channels, or along the tokens where groups run along them.
    metadata : float32, float16, or uint16 with the bits of bfloat16
        Shape (…, rows, scalars·groups): of every group its scalars side by side, the scale first; one row for all heads
        where a group spans them.
    """

    codes: npt.NDArray[np.integer]
    metadata: npt.NDArray[np.floating] | npt.NDArray[np.uint16]

    @property
    def code_bytes(self) -> int:
        """Bytes of the packed codes."""
        return self.codes.nbytes

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the metadata."""
        return self.metadata.nbytes


def store_quantized(dialect: Dialect, quantized: Quantized) -> StoredGroups:
    """Return a quantized array as its dialect stores it.

    Raises
    ------
    SpecError
        If the codes do not fill the units of the dialect's layout.
    """
    numerics = dialect.numerics
    is_channelwise = numerics.group_axis != "tokens"
    codes = quantized.codes if is_channelwise else np.ascontiguousarray(quantized.codes.swapaxes(-1, -2))
    scalars = quantized.metadata if is_channelwise else tuple(m.swapaxes(-1, -2) for m in quantized.metadata)
    if not scalars:
        return StoredGroups(
            get_layout(numerics.packing).pack(codes), np.empty((*codes.shape[:-1], 0), dtype=np.float32)
        )
    together = np.stack(scalars, axis=-1)
    flat = together.reshape(*together.shape[:-2], together.shape[-2] * together.shape[-1])
    return StoredGroups(get_layout(numerics.packing).pack(codes), _narrow(flat, numerics.metadata_dtype))


def load_quantized(dialect: Dialect, stored: StoredGroups) -> Quantized:
    """Return what was stored: the inverse of `store_quantized`."""
    numerics = dialect.numerics
    codes = get_layout(numerics.packing).unpack(stored.codes)
    flat = _widen(stored.metadata)
    count = numerics.metadata_scalars
    if not count:
        return Quantized(codes, ())
    together = flat.reshape(*flat.shape[:-1], flat.shape[-1] // count, count)
    scalars = tuple(np.ascontiguousarray(together[..., index]) for index in range(count))
    if numerics.group_axis == "tokens":
        codes = np.ascontiguousarray(codes.swapaxes(-1, -2))
        scalars = tuple(np.ascontiguousarray(values.swapaxes(-1, -2)) for values in scalars)
    return Quantized(codes, scalars)


def _narrow(values: Float32Array, dtype: FloatType) -> npt.NDArray[np.floating] | npt.NDArray[np.uint16]:
    """Return values, already rounded to a type, in that type."""
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    return bfloat16_bits(values)


def _widen(stored: npt.NDArray[np.floating] | npt.NDArray[np.uint16]) -> Float32Array:
    """Return stored scalars as float32."""
    if stored.dtype == np.uint16:
        return widen_bfloat16(stored.view(np.uint16))
    return stored.astype(np.float32)
