"""Four levels for a normal distribution: the true Lloyd-Max quantizer, and OSCAR's uniform variant of that name.

Both standardize a row by its mean and population deviation and count thresholds. They differ in the levels:
the true ones are spaced unevenly, OSCAR's are what its affine dequantizer can give, spaced evenly.
Mean and deviation are accumulated in float64 and rounded to float32 once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Numerics, Quantized
from producer.quantize.steps import (
    clip_rows,
    expand,
    order_statistic_threshold,
    require_input,
    require_no_clip,
    require_stored,
    split_groups,
)

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, UInt8Array

__all__ = ["LLOYD_MAX_LEVELS", "LloydMax", "OscarUniformLloyd", "codebook_thresholds"]

#: Levels of the least mean squared error for N(0,1), by bits; symmetric, the positive half. Fixed points of
#: "a level is the mean of its cell, a threshold the middle of two levels" (Lloyd 1957, Max 1960).
LLOYD_MAX_LEVELS: dict[int, tuple[float, ...]] = {
    2: (0.4527800346364921, 1.510417608499096),
    3: (0.24509417894422197, 0.7560052812058772, 1.3439092785050013, 2.151945704536986),
}

_VARIANCE_FLOOR = 1e-8
# OSCAR's constants: its threshold, and its outer level, widened by a factor that was tuned on data.
_OSCAR_THRESHOLD = np.float32(0.9810652732849121)
_OSCAR_STEP = np.float32(2 * 1.5095585584640503 / 3 * 1.16)
_MIDDLE = np.float32(1.5)


def codebook_thresholds(bits: int) -> tuple[Float32Array, Float32Array]:
    """Return levels and thresholds of the Lloyd-Max quantizer of N(0,1), rising, float32.

    A threshold is the middle of two levels, rounded to float32 once.
    """
    positive = np.array(LLOYD_MAX_LEVELS[bits])
    levels = np.concatenate([-positive[::-1], positive])
    return levels.astype(np.float32), ((levels[1:] + levels[:-1]) / 2).astype(np.float32)


def _standardized(groups: Float32Array) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return (x - mean)/std, mean and std of groups along the last axis, float32, the axis kept."""
    mean64 = groups.mean(axis=-1, keepdims=True, dtype=np.float64)
    variance = np.square(groups - mean64).mean(axis=-1, keepdims=True)
    mean, std = mean64.astype(np.float32), np.sqrt(variance + _VARIANCE_FLOOR).astype(np.float32)
    return (groups - mean) / std, mean, std


def _count_thresholds(z: Float32Array, thresholds: Float32Array) -> UInt8Array:
    """Return the number of thresholds that are at most z, uint8."""
    return np.searchsorted(thresholds, z, side="right").astype(np.uint8)


class LloydMax:
    """The true 4-level Lloyd-Max quantizer of standardized groups: mean + std·level."""

    name = "lloyd-max"
    numerics = Numerics(
        clip_kind="none",
        clip_scope="none",
        zero_point="mean",
        rounding="thresholds",
        range_floor=0.0,
        metadata_dtype="float32",
        metadata_scalars=2,
        packing="consecutive",
    )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, deviations and means; see `producer.quantize.base.Dialect.quantize`.

        Notes
        -----
        z = (x - mean)/√(variance + 10⁻⁸); the code counts the thresholds -0.98160, 0, 0.98160 at most z;
        levels ±0.45278 and ±1.51042 (D4). A constant group has z = 0 and an error of 0.4528·10⁻⁴.
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        z, mean, std = _standardized(split_groups(x, group_size))
        with np.errstate(over="ignore"):
            outermost = np.abs(mean) + std * codebook_thresholds(2)[0][-1]
        require_stored(outermost[..., 0], "outermost level", self.name)
        codes = _count_thresholds(z, codebook_thresholds(2)[1])
        return Quantized(codes.reshape(x.shape), (std.squeeze(-1), mean.squeeze(-1)))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return mean + std·level, float32."""
        std, mean = (expand(values, quantized.codes.shape) for values in quantized.metadata)
        return mean + std * codebook_thresholds(2)[0][quantized.codes]


class OscarUniformLloyd:
    """OSCAR's flag "Lloyd-Max": Lloyd-Max thresholds with evenly spaced levels; only with one group a row."""

    name = "oscar-uniform-lloyd"
    numerics = Numerics(
        clip_kind="order-statistic",
        clip_scope="row",
        zero_point="float",
        rounding="thresholds",
        range_floor=1e-8,
        metadata_dtype="float32",
        metadata_scalars=2,
        packing="quartered",
    )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points; see `producer.quantize.base.Dialect.quantize`.

        Parameters
        ----------
        x : float32, shape (…, tokens, channels)
        clip_ratio : float
            0 … 1, as for OSCAR's prefill quantizer; 0 turns the clip off.
        group_size : int
            Equal to channels: every other path of the project ignores the flag.

        Notes
        -----
        After the clip z = (x - mean)/√(variance + 10⁻⁸); the code counts the thresholds -0.98107, 0, 0.98107 at
        most z; scale = 1.16739·std, zero = 1.5 - mean/scale, so that the affine dequantizer gives
        mean ± 0.583696·std and mean ± 1.751088·std (D3).
        """
        require_input(x, self.name)
        if not 0 <= clip_ratio <= 1:
            raise SpecError(f"{self.name}: clip ratio {clip_ratio!r} is not allowed: 0 (off) … 1")
        if group_size != x.shape[-1]:
            raise SpecError(
                f"{self.name}: group_size {group_size} is not allowed: one group a row, {x.shape[-1]}; "
                "OSCAR's grouped kernels ignore the flag"
            )
        rows = clip_rows(x, order_statistic_threshold(x, clip_ratio)) if clip_ratio else x
        z, mean, std = _standardized(rows)
        thresholds = np.array([-_OSCAR_THRESHOLD, 0, _OSCAR_THRESHOLD], dtype=np.float32)
        codes = _count_thresholds(z, thresholds)
        with np.errstate(over="ignore"):
            scale = _OSCAR_STEP * std
            zero = _MIDDLE - mean / scale
            outermost = np.abs(mean) + _MIDDLE * scale
        require_stored(scale[..., 0], "scale", self.name, positive=True)
        require_stored(outermost, "outermost level", self.name)
        return Quantized(codes, (scale, zero))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        scale, zero = quantized.metadata
        return (quantized.codes.astype(np.float32) - zero) * scale
