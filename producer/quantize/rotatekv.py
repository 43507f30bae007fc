"""RotateKV's fake quantizer: range-multiplier clip, whole zero point, and a range divided by bits² - 1 steps.

Source: the public simulation of RotateKV. bits² - 1 is the number of steps for 2 bits (3) and 4 bits (15); for 3
bits it is 8 where codes end at 7, which acts like a clip at 7/8 of the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Numerics, Quantized
from producer.quantize.integer_zero import integer_zero_dequantize, integer_zero_quantize
from producer.quantize.steps import require_input, require_range_multiplier, split_groups

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["RotateKV"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateKV:
    """RotateKV's quantizer; the published clip at 2 bits is 0.8.

    Parameters
    ----------
    name : str
        Name in the registry.
    bits : int
        2, 3 or 4.
    """

    name: str = "rotatekv"
    bits: int = 2

    def __post_init__(self) -> None:
        if self.bits not in {2, 3, 4}:
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: 2, 3 or 4")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            bits=self.bits,
            clip_kind="range-multiplier",
            clip_scope="group",
            zero_point="integer",
            rounding="half-even",
            range_floor=0.0,
            metadata_dtype="float32",
            metadata_scalars=2,
            packing={2: "consecutive", 3: "three-bit", 4: "nibbles"}[self.bits],
        )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D6); see `producer.quantize.base.Dialect.quantize`.

        There is no guard for a range of 0, not even for zeros: such a group is refused.
        """
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        groups = split_groups(x, group_size)
        low = groups.min(axis=-1, keepdims=True) * np.float32(clip_ratio)
        high = groups.max(axis=-1, keepdims=True) * np.float32(clip_ratio)
        return integer_zero_quantize(groups, (low, high), self.bits**2 - 1, 2**self.bits - 1, self.name)

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        return integer_zero_dequantize(quantized)
