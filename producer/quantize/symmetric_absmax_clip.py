"""Symmetric 2-bit quantizer scaled by a clipped row maximum: the dialect of the published run.

A *row* is one group of `group_size` consecutive channels of one token and head. All arithmetic is float32.

===========  ==========================================
code         value
===========  ==========================================
0            -scale
1            -scale/3
2            +scale/3
3            +scale
===========  ==========================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.numerics.arrays import require_finite
from producer.quantize.base import Numerics, Quantized
from producer.quantize.steps import require_input, require_stored, split_groups

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, UInt8Array

__all__ = [
    "LEVELS_PER_SCALE",
    "SymmetricAbsmaxClip",
    "code_values",
    "dequantize",
    "quantize",
    "row_absmax",
    "row_scale",
]

#: A value is (2·code - 3)·scale / 3.
LEVELS_PER_SCALE = np.float32(3)
_FLOOR = np.float32(1e-12)
_ONE = np.float32(1)
_HALF_LEVELS = np.float32(1.5)
_TOP_CODE = np.float32(3)


def row_absmax(rows: Float32Array, axis: int = -1) -> Float32Array:
    """Return max|x| of every row, float32, the row axis kept with length 1."""
    top: Float32Array = rows.max(axis=axis, keepdims=True)
    bottom: Float32Array = rows.min(axis=axis, keepdims=True)
    return np.maximum(top, -bottom)


def row_scale(absmax: Float32Array, clip_ratio: float) -> Float32Array:
    """Return the scale of every row: absmax·clip + 10⁻¹², float32 (E6).

    The addend keeps an all-zero row from dividing by zero; it is lost in every other row's rounding.
    """
    scale = absmax * np.float32(clip_ratio)
    scale += _FLOOR
    return scale


def code_values(rows: Float32Array, scale: Float32Array, out: Float32Array) -> Float32Array:
    """Write the codes of rows to `out` as float32 numbers 0, 1, 2, 3, and return it (E7).

    Parameters
    ----------
    rows : float32, finite
    scale : float32, broadcasts against `rows`
        Positive.
    out : float32, shape of `rows`

    Notes
    -----
    code = (z + 1)·1.5 rounded half to even, z = x/scale held to [-1, 1]. Holding the rounded code to
    [0, 3] instead gives the same code, because every step is monotone.
    """
    np.divide(rows, scale, out=out)
    out += _ONE
    out *= _HALF_LEVELS
    np.rint(out, out=out)
    return np.clip(out, np.float32(0), _TOP_CODE, out=out)


def quantize(
    x: Float32Array, clip_ratio: float, group_size: int, axis: int = -1
) -> tuple[UInt8Array, Float32Array]:
    """Return codes and scales of an array (E6, E7).

    Parameters
    ----------
    x : float32
        Any shape; the length of `axis` is a multiple of `group_size`.
    clip_ratio : float
        Above 0, at most 1.
    group_size : int
        Channels that share a scale.
    axis : int
        The channel axis.

    Returns
    -------
    codes : uint8, shape of `x`
        0 … 3.
    scale : float32
        Shape of `x` with `axis` shortened to the number of groups.

    Raises
    ------
    SpecError
        If the clip ratio or the group size is not allowed.
    NonFiniteError
        If `x` holds NaN or infinity.
    """
    if not 0 < clip_ratio <= 1:
        raise SpecError(f"clip ratio {clip_ratio!r} is not allowed: above 0, at most 1")
    require_finite(x, "x")
    axis %= x.ndim
    rows = split_groups(x, group_size, axis)
    scale = row_scale(row_absmax(rows, axis + 1), clip_ratio)
    codes = code_values(rows, scale, np.empty_like(rows)).astype(np.uint8)
    return codes.reshape(x.shape), scale.squeeze(axis + 1)


def dequantize(codes: UInt8Array, scale: Float32Array, axis: int = -1) -> Float32Array:
    """Return the values of codes: (code/1.5 - 1)·scale, float32, shape of `codes` (E7).

    Parameters
    ----------
    codes : uint8, each 0 … 3
    scale : float32
        Shape of `codes` with the channel axis shortened to the number of groups.
    axis : int
        The channel axis.
    """
    axis %= codes.ndim
    values = codes.astype(np.float32)
    values /= _HALF_LEVELS
    values -= _ONE
    rows = split_groups(values, codes.shape[axis] // scale.shape[axis], axis)
    return (rows * np.expand_dims(scale, axis + 1)).reshape(codes.shape)


class SymmetricAbsmaxClip:
    """The dialect of the published run: levels -s, -s/3, s/3, s with s = max|x|·clip + 10⁻¹² (E6, E7)."""

    name = "symmetric-absmax-clip"
    numerics = Numerics(
        clip_kind="range-multiplier",
        clip_scope="group",
        zero_point="none",
        rounding="half-even",
        range_floor=1e-12,
        metadata_dtype="float32",
        metadata_scalars=1,
        packing="consecutive",
    )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes and scales; see `producer.quantize.base.Dialect.quantize`."""
        require_input(x, self.name)
        codes, scale = quantize(x, clip_ratio, group_size)
        require_stored(scale, "scale", self.name, positive=True)
        return Quantized(codes, (scale,))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code/1.5 - 1)·scale, float32."""
        return dequantize(quantized.codes, quantized.metadata[0])
