"""Steps shared by several dialects: checks, groups, thresholds, rounding to a stored type.

A step documents its computation once; a dialect's module lists the steps that it takes, in order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import DegenerateGroupError, SpecError
from producer.numerics.arrays import require_finite
from producer.numerics.bfloat16 import round_to_bfloat16

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, UInt8Array
    from producer.quantize.base import FloatType

__all__ = [
    "as_codes",
    "clip_defect",
    "clip_rows",
    "expand",
    "half_up",
    "half_up_codes",
    "order_statistic_threshold",
    "require_group_size",
    "require_input",
    "require_no_clip",
    "require_range_multiplier",
    "require_stored",
    "round_to",
    "searched_threshold",
    "split_groups",
    "zero_guarded_quotient",
]

_HALF = np.float32(0.5)
_SEARCH_FROM = 64


def require_group_size(head_dim: int, group_size: int) -> None:
    """Raise `SpecError` unless groups of this size fill a head."""
    if group_size < 1 or head_dim % group_size:
        raise SpecError(f"group_size {group_size} is not allowed: it must divide head_dim {head_dim}")


def split_groups(x: Float32Array, group_size: int, axis: int = -1) -> Float32Array:
    """Return `x` with its channel axis split in two: (…, groups, group_size, …).

    Raises
    ------
    SpecError
        If the group size does not divide the axis.
    """
    axis %= x.ndim
    require_group_size(x.shape[axis], group_size)
    return x.reshape(*x.shape[:axis], x.shape[axis] // group_size, group_size, *x.shape[axis + 1 :])


def require_input(x: Float32Array, name: str) -> None:
    """Raise unless `x` is a finite float32 array of tokens and channels, with at least one channel.

    Raises
    ------
    SpecError
        If the dtype or the shape is not allowed.
    NonFiniteError
        If `x` holds NaN or infinity.
    """
    if x.dtype != np.float32:
        raise SpecError(f"{name}: x of dtype {x.dtype} is not allowed: float32")
    if x.ndim < 2 or x.shape[-1] < 1:
        raise SpecError(
            f"{name}: x of shape {x.shape} is not allowed: (…, tokens, channels), channels above 0"
        )
    require_finite(x, "x")


def clip_defect(clip_kind: str, clip_ratio: float) -> str | None:
    """Return what a clip ratio of some meaning has to be, or None where this one is."""
    if clip_kind == "none":
        return None if clip_ratio == 1 else "1, since there is no clip"
    if clip_kind in {"order-statistic", "binary-search"}:
        return None if 0 <= clip_ratio <= 1 else "0 … 1, 0 for none"
    return None if 0 < clip_ratio <= 1 else "above 0, at most 1"


def require_no_clip(clip_ratio: float, name: str) -> None:
    """Raise `SpecError` unless the clip ratio is 1: the dialect has no clip."""
    if clip_ratio != 1:
        raise SpecError(f"{name}: clip ratio {clip_ratio!r} is not allowed: the dialect has no clip, only 1")


def require_range_multiplier(clip_ratio: float, name: str) -> None:
    """Raise `SpecError` unless the clip ratio can multiply a range: above 0, at most 1."""
    if not 0 < clip_ratio <= 1:
        raise SpecError(f"{name}: clip ratio {clip_ratio!r} is not allowed: above 0, at most 1")


def expand(metadata: Float32Array, shape: tuple[int, ...], axis: int = -1) -> Float32Array:
    """Return metadata repeated along its group axis to the shape of the codes."""
    groups = metadata.shape[axis]
    # Without groups there is nothing to repeat, and no group size either.
    if not groups:
        return np.empty(shape, dtype=np.float32)
    repeated: Float32Array = np.repeat(metadata, shape[axis] // groups, axis=axis)
    return repeated


def as_codes(numbers: Float32Array, top: int) -> UInt8Array:
    """Return whole numbers, held to 0 … `top`, as codes."""
    return np.clip(numbers, np.float32(0), np.float32(top)).astype(np.uint8)


def half_up(x: Float32Array) -> Float32Array:
    """Return trunc(x + ½): half-up where x is not below -½, and at most 0 there.

    Notes
    -----
    The sum is rounded to float32 before it is truncated.
    """
    whole: Float32Array = np.trunc(x + _HALF)
    return whole


def half_up_codes(x: Float32Array, top: int) -> UInt8Array:
    """Return `as_codes(half_up(x), top)` bit by bit, in the memory of `x`, which is used up.

    Held to 0 … `top` first, the truncation is that of the conversion to whole numbers.
    """
    x += _HALF
    np.maximum(x, np.float32(0), out=x)
    np.minimum(x, np.float32(top), out=x)
    return x.astype(np.uint8)


def zero_guarded_quotient(numerator: Float32Array, denominator: Float32Array) -> Float32Array:
    """Return numerator / denominator in float32, and 0 where the denominator is 0.

    For dialects that add a stored minimum to code·scale: with a stored scale of 0 every code means the minimum,
    so the choice changes no value. Public code leaves the result of a conversion of NaN there.
    """
    out = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape), dtype=np.float32)
    return np.divide(numerator, denominator, out=out, where=denominator != 0)


def order_statistic_threshold(x: Float32Array, clip_ratio: float) -> Float32Array:
    """Return the clip threshold of every row: one of its own |x|, no interpolation.

    Parameters
    ----------
    x : float32, shape (…, channels)
    clip_ratio : float
        Above 0, at most 1.

    Returns
    -------
    float32, shape (…, 1)
        Element ⌊clip_ratio·channels⌋, at most channels - 1, of the ascending |x|, counted from 0. Nothing is
        padded before the sort.
    """
    channels = x.shape[-1]
    index = min(math.floor(clip_ratio * channels), channels - 1)
    threshold: Float32Array = np.partition(np.abs(x), index, axis=-1)[..., index : index + 1]
    return threshold


def searched_threshold(x: Float32Array, clip_ratio: float, name: str) -> Float32Array:
    """Return the clip threshold of every row as a binary search finds it, shape (…, 1), float32.

    Parameters
    ----------
    x : float32, shape (…, channels)
        channels is a power of two. Below 64 the threshold is that of the sort.
    clip_ratio : float
        Above 0, at most 1.
    name : str
        The dialect, for messages.

    Raises
    ------
    DegenerateGroupError
        If lo + hi is too large for float32.

    Notes
    -----
    lo = 0, hi = max|x|; log₂(channels) times: mid = (lo + hi)/2; more than channels - index values above mid
    move lo, else hi; the threshold is hi. So it ends near the next lower order statistic, and even a ratio of 1
    clips.
    """
    channels = x.shape[-1]
    if channels < _SEARCH_FROM:
        return order_statistic_threshold(x, clip_ratio)
    index = min(math.floor(clip_ratio * channels), channels - 1)
    target = channels - index
    magnitude = np.abs(x)
    high: Float32Array = magnitude.max(axis=-1, keepdims=True)
    low = np.zeros_like(high)
    for _ in range(channels.bit_length() - 1):
        with np.errstate(over="ignore"):
            middle = (low + high) * _HALF
        require_stored(middle[..., 0], "clip threshold", name)
        is_low = (magnitude > middle).sum(axis=-1, keepdims=True) > target
        low = np.where(is_low, middle, low)
        high = np.where(is_low, high, middle)
    return high


def clip_rows(x: Float32Array, threshold: Float32Array) -> Float32Array:
    """Return rows held to ±threshold."""
    return np.clip(x, -threshold, threshold)


def round_to(values: Float32Array, dtype: FloatType) -> Float32Array:
    """Return values rounded half to even to a narrower type, as float32.

    What is too large becomes infinity, what is too small becomes 0 or subnormal, as in hardware.
    """
    if dtype == "float32":
        return values
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    return round_to_bfloat16(values)


def require_stored(values: Float32Array, what: str, name: str, *, positive: bool = False) -> None:
    """Raise unless all stored scalars are finite, and positive where a value is divided or multiplied by them.

    Raises
    ------
    DegenerateGroupError
        With the first group, counted in C order over the metadata.
    """
    wrong = ~np.isfinite(values)
    if positive:
        wrong |= values <= 0
    if not wrong.any():
        return
    first = np.unravel_index(int(np.argmax(wrong)), values.shape)
    index = ", ".join(str(int(part)) for part in first)
    allowed = "finite and above 0" if positive else "finite"
    raise DegenerateGroupError(
        f"{name}: the stored {what} of group [{index}] is {values[first]}: it must be {allowed}"
    )
