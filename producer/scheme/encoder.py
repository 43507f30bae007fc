"""Coding of rows: keys, or values, of a fitted layer as codes and metadata, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.quantize.heads import quantize_heads
from producer.quantize.packing import get_layout
from producer.quantize.storage import load_quantized, store_quantized
from producer.transform.centring import center_keys

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect, Quantized
    from producer.quantize.storage import StoredGroups
    from producer.transform.dense import DenseTransform

__all__ = ["RowEncoder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEncoder:
    """How the keys, or the values, of a layer are coded: centred, transformed, clipped, rounded.

    Attributes
    ----------
    dialect : Dialect
    transform : DenseTransform
    mean : float32, shape (num_kv_heads, head_dim), or None
        Subtracted before the transform, added again after it.
    clips : tuple of float
        One ratio, or one a KV head, in the meaning of the dialect.
    feedback : float32, shape (num_kv_heads, head_dim, head_dim), or None
        Factors of error feedback (`producer.quantize.feedback`); None rounds to the nearest level.
    group_size : int
        Values that share a scale.

    Notes
    -----
    Rows of the model are x; coded rows are z = (x - μ) M, which the dialect quantizes to ẑ, and x̂ = ẑ M⁻¹ + μ. All in
    float32. A block of tokens can be coded on its own: its codes are, bit by bit, those of the same tokens in a larger
    block (`producer.numerics.exact_product`).
    """

    dialect: Dialect
    transform: DenseTransform
    mean: Float32Array | None = None
    clips: tuple[float, ...] = (1.0,)
    feedback: Float32Array | None = None
    group_size: int

    @property
    def block(self) -> int:
        """Tokens that are coded together: 1, or what fills both a group and a unit of memory along the tokens."""
        numerics = self.dialect.numerics
        if numerics.group_axis != "tokens":
            return 1
        return math.lcm(self.group_size, get_layout(numerics.packing).codes_per_unit)

    def encode(self, rows: Float32Array) -> Quantized:
        """Return the codes and metadata of rows.

        Parameters
        ----------
        rows : float32, shape (num_kv_heads, tokens, head_dim)
            In the model's own coordinates, keys post-RoPE; tokens a multiple of `block`, or none.

        Raises
        ------
        SpecError
            If a shape, the group size or a clip ratio is not allowed.
        NonFiniteError, DegenerateGroupError
            See `producer.quantize.base.Dialect.quantize`.
        """
        centred = rows if self.mean is None else center_keys(rows, self.mean)
        coded = self.transform.rotate(np.ascontiguousarray(centred))
        size = self.group_size
        if self.dialect.numerics.group_axis == "heads":
            size = coded.shape[0] * coded.shape[2]
        return quantize_heads(self.dialect, coded, self.clips, size, self.feedback)

    def decode(self, quantized: Quantized) -> Float32Array:
        """Return rows in the model's own coordinates, float32, shape (num_kv_heads, tokens, head_dim)."""
        rows = self.transform.undo(self.coded(quantized))
        return rows if self.mean is None else rows + self.mean[:, None, :]

    def coded(self, quantized: Quantized) -> Float32Array:
        """Return rows as they are coded, still centred and transformed, float32."""
        return self.dialect.dequantize(quantized)

    def pack(self, quantized: Quantized) -> StoredGroups:
        """Return codes and metadata as the dialect stores them; raises `SpecError` where units are not filled."""
        return store_quantized(self.dialect, quantized)

    def unpack(self, groups: StoredGroups) -> Quantized:
        """Return codes and metadata of what was packed: the inverse of `pack`."""
        return load_quantized(self.dialect, groups)
