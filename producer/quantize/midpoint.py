"""Affine quantizers whose clip shrinks the range about its middle.

`affine-midpoint` has a float zero point; with 3, 4 and 8 bits it is the reference of those sizes.
`oscar-transformers` is the public one of jamesburton/oscar-transformers,
whose zero point is a whole number held to 0 … 3, so that a group far from 0 collapses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import FloatType, Numerics, Quantized
from producer.quantize.steps import (
    as_codes,
    half_up_codes,
    require_input,
    require_range_multiplier,
    require_stored,
    round_to,
    split_groups,
)

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Midpoint"]

_FLOOR = np.float32(1e-8)
_HALF = np.float32(0.5)

#: Layouts of packed codes by their bits.
_PACKING = {2: "consecutive", 3: "three-bit", 4: "nibbles", 8: "bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Midpoint:
    """Affine codes with a range clip about the middle.

    Parameters
    ----------
    name : str
        Name in the registry.
    zero_point : {"float", "integer"}
        -low/scale as it is with half-up codes, or rounded and held to 0 … 3 with half-even codes.
    metadata_dtype : {"float32", "float16", "bfloat16"}
        Type of the stored scale and zero point; codes are decided before they are rounded to it.
    bits : int
        2, 3, 4 or 8.
    """

    name: str
    zero_point: Literal["float", "integer"]
    metadata_dtype: FloatType = "float32"
    bits: int = 2

    def __post_init__(self) -> None:
        if self.bits not in _PACKING:
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: 2, 3, 4 or 8")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            bits=self.bits,
            clip_kind="midpoint-shrink",
            clip_scope="group",
            zero_point=self.zero_point,
            rounding="half-up" if self.zero_point == "float" else "half-even",
            range_floor=1e-8,
            metadata_dtype=self.metadata_dtype,
            metadata_scalars=2,
            packing=_PACKING[self.bits],
        )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points; see `producer.quantize.base.Dialect.quantize`.

        Notes
        -----
        With top = 2^bits - 1: middle = min/2 + max/2, half = (max/2 - min/2)·clip; low = middle - half;
        scale = max(2·half, 10⁻⁸)/top. Float zero point: zero = -low/scale, code = trunc(x/scale + zero + ½). Whole:
        zero = round(-low/scale) held to 0 … top, code = round(x/scale) + zero. Codes held to 0 … top, all in float32
        (D9).
        """
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        groups = split_groups(x, group_size)
        last = 2**self.bits - 1
        bottom, top = groups.min(axis=-1, keepdims=True) * _HALF, groups.max(axis=-1, keepdims=True) * _HALF
        half = (top - bottom) * np.float32(clip_ratio)
        low = bottom + top - half
        with np.errstate(over="ignore"):
            scale = np.maximum(half + half, _FLOOR) / np.float32(last)
            require_stored(scale[..., 0], "scale", self.name, positive=True)
            zero = -low / scale
            if self.zero_point == "float":
                require_stored(zero[..., 0], "zero point", self.name)
                scaled = groups / scale
                scaled += zero
                codes = half_up_codes(scaled, last)
            else:
                zero = np.clip(np.rint(zero), np.float32(0), np.float32(last))
                codes = as_codes(np.rint(groups / scale) + zero, last)
        scale, zero = (round_to(values.squeeze(-1), self.metadata_dtype) for values in (scale, zero))
        require_stored(scale, "scale", self.name)
        require_stored(zero, "zero point", self.name)
        return Quantized(codes.reshape(x.shape), (scale, zero))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        codes, (scale, zero) = quantized.codes, quantized.metadata
        rows = split_groups(codes.astype(np.float32), codes.shape[-1] // scale.shape[-1])
        rows -= zero[..., None]
        rows *= scale[..., None]
        return rows.reshape(codes.shape)
