"""QuaRot's asymmetric fake quantizers: range-multiplier clip, whole zero point, half-even rounding.

Source: spcl/QuaRot. The token-wise variant forces 0 into the range and guards a row of zeros; the group-wise
one does not force it, and its guard too is for zeros alone, so that a constant group that is not 0 has no scale.
Both are simulations: the public code stores no 2-bit cache, so nothing fixes the type of its metadata.
"""

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Numerics, Quantized
from producer.quantize.integer_zero import integer_zero_dequantize, integer_zero_quantize
from producer.quantize.steps import require_input, require_range_multiplier, split_groups

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["QuarotGroup", "QuarotToken"]

_ZERO = np.float32(0)
_ONE = np.float32(1)


def _guarded(low: "Float32Array", high: "Float32Array") -> "tuple[Float32Array, Float32Array]":
    """Return the ends of the ranges, -1 and 1 where both are 0."""
    is_zero = (low == 0) & (high == 0)
    return np.where(is_zero, -_ONE, low), np.where(is_zero, _ONE, high)


def _numerics(scope: "str") -> Numerics:
    return Numerics(
        clip_kind="range-multiplier",
        clip_scope="row" if scope == "row" else "group",
        zero_point="integer",
        rounding="half-even",
        range_floor=0.0,
        metadata_dtype="float32",
        metadata_scalars=2,
        packing="consecutive",
    )


class QuarotToken:
    """Token-wise: one range a row, from min(row, 0)·clip to max(row, 0)·clip."""

    name = "quarot-token"
    numerics = _numerics("row")

    def quantize(self, x: "Float32Array", clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D5); see `producer.quantize.base.Dialect.quantize`.

        `group_size` is the number of channels: the variant has one group a row.
        """
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        if group_size != x.shape[-1]:
            raise SpecError(
                f"{self.name}: group_size {group_size} is not allowed: one group a row, {x.shape[-1]}"
            )
        groups = x[..., None, :]
        low = np.minimum(groups.min(axis=-1, keepdims=True), _ZERO) * np.float32(clip_ratio)
        high = np.maximum(groups.max(axis=-1, keepdims=True), _ZERO) * np.float32(clip_ratio)
        return integer_zero_quantize(groups, _guarded(low, high), 3, 3, self.name)

    def dequantize(self, quantized: Quantized) -> "Float32Array":
        """Return (code - zero)·scale, float32."""
        return integer_zero_dequantize(quantized)


class QuarotGroup:
    """Group-wise: from min·clip to max·clip of every group; 0 need not be inside."""

    name = "quarot-group"
    numerics = _numerics("group")

    def quantize(self, x: "Float32Array", clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D5); see `producer.quantize.base.Dialect.quantize`."""
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        groups = split_groups(x, group_size)
        low = groups.min(axis=-1, keepdims=True) * np.float32(clip_ratio)
        high = groups.max(axis=-1, keepdims=True) * np.float32(clip_ratio)
        return integer_zero_quantize(groups, _guarded(low, high), 3, 3, self.name)

    def dequantize(self, quantized: Quantized) -> "Float32Array":
        """Return (code - zero)·scale, float32."""
        return integer_zero_dequantize(quantized)
