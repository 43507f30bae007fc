"""OSCAR INT2: affine, one float zero point a group, clipped at an order statistic of the whole row.

Source: FutureMLS-Lab/OSCAR, the prefill kernel (exact sort) and the decode flush kernel (binary search). The
public kernels have no upper clamp and store code 4 for a group whose range is an ulp or two; here, as in the
project's torch reference, codes are held to 0 … 3. The clip kernels take head dimensions that are powers of
two; the exact sort is defined for every size and is not refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import FloatType, Numerics, Quantized
from producer.quantize.steps import (
    clip_rows,
    expand,
    half_up_codes,
    order_statistic_threshold,
    require_input,
    require_stored,
    round_to,
    searched_threshold,
    split_groups,
)

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Oscar"]

_FLOOR = np.float32(1e-8)
_TOP = np.float32(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oscar:
    """OSCAR's INT2 quantizer.

    Parameters
    ----------
    name : str
        Name in the registry.
    threshold : {"sort", "binary-search"}
        How the clip threshold is found: as for prompt tokens, or as for generated tokens.
    metadata_dtype : {"float32", "float16", "bfloat16"}
        Type of the stored scale and zero point; codes are decided before they are rounded to it.
    dequantization_dtype : {"float32", "bfloat16"}
        Type of scale, zero point and product when values are read: bfloat16 in the public GQA decode kernel.
    packing : str
        Order of the codes in memory.
    """

    name: str
    threshold: Literal["sort", "binary-search"] = "sort"
    metadata_dtype: FloatType = "float32"
    dequantization_dtype: FloatType = "float32"
    packing: str = "quartered"

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            clip_kind="order-statistic" if self.threshold == "sort" else "binary-search",
            clip_scope="row",
            zero_point="float",
            rounding="half-up",
            range_floor=1e-8,
            metadata_dtype=self.metadata_dtype,
            metadata_scalars=2,
            dequantization_dtype=self.dequantization_dtype,
            packing=self.packing,
        )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points; see `producer.quantize.base.Dialect.quantize`.

        Parameters
        ----------
        x : float32, shape (…, tokens, channels)
            For the binary search channels is a power of two.
        clip_ratio : float
            0 … 1. 0 turns the clip off, the public default; 1 changes nothing with the sort, and still clips
            with the binary search.
        group_size : int
            Divides channels.

        Notes
        -----
        All in float32: the row is held to ±threshold, then by group scale = max(max - min, 10⁻⁸)/3,
        zero = -min/scale, code = trunc(x/scale + zero + ½) held to 0 … 3 (D2).
        """
        require_input(x, self.name)
        groups = split_groups(self._clipped(x, clip_ratio), group_size)
        low: Float32Array = groups.min(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            scale = np.maximum(groups.max(axis=-1, keepdims=True) - low, _FLOOR) / _TOP
            require_stored(scale[..., 0], "scale", self.name, positive=True)
            zero = -low / scale
            require_stored(zero[..., 0], "zero point", self.name)
            scaled = groups / scale
            scaled += zero
            codes = half_up_codes(scaled, 3)
        scale, zero = (round_to(values.squeeze(-1), self.metadata_dtype) for values in (scale, zero))
        require_stored(scale, "scale", self.name, positive=True)
        require_stored(zero, "zero point", self.name)
        return Quantized(codes.reshape(x.shape), (scale, zero))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, every step in the dequantization dtype, as float32."""
        dtype = self.dequantization_dtype
        scale, zero = (expand(round_to(m, dtype), quantized.codes.shape) for m in quantized.metadata)
        steps = round_to(quantized.codes.astype(np.float32) - zero, dtype)
        return round_to(steps * scale, dtype)

    def _clipped(self, x: Float32Array, clip_ratio: float) -> Float32Array:
        """Return rows held to ±threshold over all their channels."""
        if not 0 <= clip_ratio <= 1:
            raise SpecError(f"{self.name}: clip ratio {clip_ratio!r} is not allowed: 0 (off) … 1")
        channels = x.shape[-1]
        if self.threshold == "binary-search" and channels & (channels - 1):
            raise SpecError(
                f"{self.name}: {channels} channels are not allowed: the search halves a power of two of them"
            )
        if clip_ratio == 0:
            return x
        if self.threshold == "sort":
            return clip_rows(x, order_statistic_threshold(x, clip_ratio))
        return clip_rows(x, searched_threshold(x, clip_ratio, self.name))
