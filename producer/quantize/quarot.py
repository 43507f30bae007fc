"""QuaRot's asymmetric fake quantizers: range-multiplier clip, whole zero point, half-even rounding.

Source: spcl/QuaRot, `fake_quant/quant_utils.py` and `rotation_utils.py`. Three settings of the public code:

- head-wise, of keys with `k_groupsize` equal to the head dimension: one range a token and head, 0 forced into it;
- token-wise, of keys and values with a group size of -1: one range for all heads of a token, 0 forced into it;
- group-wise, of values with `v_groupsize` above 0: a range a group, 0 not forced into it.

The first two guard a range of zeros; the group-wise guard too is for zeros alone, so that a constant group that is not
0 has no scale. All are simulations: the public code stores no 2-bit cache, so nothing fixes the type of its metadata.
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

__all__ = ["QuarotGroup", "QuarotHead", "QuarotToken"]

_ZERO = np.float32(0)
_ONE = np.float32(1)

#: Layouts of packed codes by their bits.
_PACKING = {2: "consecutive", 4: "nibbles"}


def _guarded(low: Float32Array, high: Float32Array) -> tuple[Float32Array, Float32Array]:
    """Return the ends of the ranges, -1 and 1 where both are 0."""
    is_zero = (low == 0) & (high == 0)
    return np.where(is_zero, -_ONE, low), np.where(is_zero, _ONE, high)


def _numerics(bits: int = 2, **others: str) -> Numerics:
    return Numerics(
        bits=bits,
        clip_kind="range-multiplier",
        zero_point="integer",
        rounding="half-even",
        range_floor=0.0,
        metadata_dtype="float32",
        metadata_scalars=2,
        packing=_PACKING[bits],
        **others,  # type: ignore[arg-type]
    )


def _with_zero(groups: Float32Array, clip_ratio: float, bits: int, name: str) -> Quantized:
    """Return codes, scales and zero points of groups along the last axis, 0 inside every range (D5)."""
    low = np.minimum(groups.min(axis=-1, keepdims=True), _ZERO) * np.float32(clip_ratio)
    high = np.maximum(groups.max(axis=-1, keepdims=True), _ZERO) * np.float32(clip_ratio)
    top = 2**bits - 1
    return integer_zero_quantize(groups, _guarded(low, high), top, top, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarotHead:
    """Head-wise: one range a token and head, from min(row, 0)·clip to max(row, 0)·clip.

    Parameters
    ----------
    name : str
        Name in the registry.
    bits : int
        2 or 4.
    """

    name: str = "quarot-head-wise"
    bits: int = 2

    def __post_init__(self) -> None:
        if self.bits not in _PACKING:
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: 2 or 4")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return _numerics(self.bits, clip_scope="row")

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D5); see `producer.quantize.base.Dialect.quantize`.

        `group_size` is the number of channels: the setting has one group a row.
        """
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        if group_size != x.shape[-1]:
            raise SpecError(
                f"{self.name}: group_size {group_size} is not allowed: one group a row, {x.shape[-1]}"
            )
        return _with_zero(x[..., None, :], clip_ratio, self.bits, self.name)

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        return integer_zero_dequantize(quantized)


class QuarotToken:
    """Token-wise: one range for all heads of a token, from min(token, 0)·clip to max(token, 0)·clip."""

    name = "quarot-token-wise"
    numerics = _numerics(clip_scope="token", group_axis="heads")

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D5); see `producer.quantize.base.Dialect.quantize`.

        Parameters
        ----------
        x : float32, shape (…, heads, tokens, channels)
            All heads of a layer; an array of two axes is one head.
        clip_ratio : float
        group_size : int
            heads·channels.
        """
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        heads = x if x.ndim > 2 else x[None]
        size = heads.shape[-3] * heads.shape[-1]
        if group_size != size:
            raise SpecError(
                f"{self.name}: group_size {group_size} is not allowed: one group a token, "
                f"{heads.shape[-3]} heads of {heads.shape[-1]}"
            )
        tokens = np.swapaxes(heads, -3, -2)
        rows = tokens.reshape(*tokens.shape[:-2], 1, size)
        flat = _with_zero(rows, clip_ratio, 2, self.name)
        codes = np.swapaxes(flat.codes.reshape(tokens.shape), -3, -2)
        metadata = tuple(np.swapaxes(values[..., None], -3, -2) for values in flat.metadata)
        if x.ndim == 2:
            return Quantized(np.ascontiguousarray(codes[0]), tuple(values[0] for values in metadata))
        return Quantized(np.ascontiguousarray(codes), metadata)

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        scale, zero = quantized.metadata
        values: Float32Array = (quantized.codes.astype(np.float32) - zero) * scale
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarotGroup:
    """Group-wise: from min·clip to max·clip of every group; 0 need not be inside.

    Parameters
    ----------
    name : str
        Name in the registry.
    bits : int
        2 or 4.
    """

    name: str = "quarot-group"
    bits: int = 2

    def __post_init__(self) -> None:
        if self.bits not in _PACKING:
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: 2 or 4")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return _numerics(self.bits, clip_scope="group")

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and zero points (D5); see `producer.quantize.base.Dialect.quantize`."""
        require_input(x, self.name)
        require_range_multiplier(clip_ratio, self.name)
        groups = split_groups(x, group_size)
        low = groups.min(axis=-1, keepdims=True) * np.float32(clip_ratio)
        high = groups.max(axis=-1, keepdims=True) * np.float32(clip_ratio)
        top = 2**self.bits - 1
        return integer_zero_quantize(groups, _guarded(low, high), top, top, self.name)

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return (code - zero)·scale, float32."""
        return integer_zero_dequantize(quantized)
