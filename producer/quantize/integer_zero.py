"""Affine codes with a whole zero point and half-even rounding, shared by QuaRot and RotateKV."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.quantize.base import Quantized
from producer.quantize.steps import as_codes, expand, require_stored

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["integer_zero_dequantize", "integer_zero_quantize"]


def integer_zero_quantize(
    groups: Float32Array, ends: tuple[Float32Array, Float32Array], steps: int, top: int, name: str
) -> Quantized:
    """Return codes, scales and whole zero points of groups.

    Parameters
    ----------
    groups : float32, shape (…, tokens, groups, group_size)
    ends : two of float32, shape (…, tokens, groups, 1)
        The ends of every group's range, after the clip.
    steps : int
        Steps that the range is divided by.
    top : int
        The highest code.
    name : str
        The dialect, for messages.

    Returns
    -------
    Quantized
        Codes of shape (…, tokens, groups·group_size), metadata of shape (…, tokens, groups).

    Raises
    ------
    DegenerateGroupError
        If a range is 0, or too small or too large for float32.

    Notes
    -----
    scale = (high - low)/steps; zero = round(-low/scale); code = round(x/scale) + zero, held to 0 … top; rounding
    half to even, all in float32 (D5).
    """
    low, high = ends
    with np.errstate(over="ignore", under="ignore"):
        scale = (high - low) / np.float32(steps)
        require_stored(scale[..., 0], "scale", name, positive=True)
        zero = np.rint(-low / scale)
        require_stored(zero[..., 0], "zero point", name)
        codes = as_codes(np.rint(groups / scale) + zero, top)
    return Quantized(
        codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1]),
        (scale.squeeze(-1), zero.squeeze(-1)),
    )


def integer_zero_dequantize(quantized: Quantized) -> Float32Array:
    """Return (code - zero)·scale, float32, shape of the codes."""
    scale, zero = (expand(values, quantized.codes.shape) for values in quantized.metadata)
    return (quantized.codes.astype(np.float32) - zero) * scale
