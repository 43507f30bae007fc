"""The fast Walsh-Hadamard transform in Sylvester's order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["hadamard_transform", "require_power_of_two"]


def require_power_of_two(head_dim: int) -> None:
    """Raise `SpecError` unless a Sylvester-Hadamard matrix of this size exists."""
    if head_dim < 1 or head_dim & (head_dim - 1):
        raise SpecError(
            f"head_dim {head_dim} has no Sylvester-Hadamard transform: a power of two is needed, "
            "and nothing is padded"
        )


def hadamard_transform(x: Float32Array, axis: int = -1, scratch: Float32Array | None = None) -> Float32Array:
    """Replace x by H x / √d along one axis and return it; H is the Sylvester-Hadamard matrix of size d (E4).

    Parameters
    ----------
    x : float32, any shape, C-contiguous
        Overwritten.
    axis : int
        Axis to transform; its length d is a power of two.
    scratch : float32, shape of `x`, C-contiguous, optional
        Overwritten; a new array by default.

    Returns
    -------
    float32
        `x`. The transform is its own inverse: H Hᵀ = d·I and H = Hᵀ.

    Raises
    ------
    SpecError
        If d is no power of two.

    Notes
    -----
    log₂ d stages of butterflies, distance 1 first, each sum and difference rounded to float32; then one
    multiplication by float32(1/√d). The order of the additions is that of a plain loop, whatever the axis.
    """
    d = x.shape[axis]
    require_power_of_two(d)
    axis %= x.ndim
    before = math.prod(x.shape[:axis])
    after = math.prod(x.shape[axis + 1 :])
    source, target = x, np.empty_like(x) if scratch is None else scratch
    half = 1
    while half < d:
        shape = (before, d // (2 * half), 2, half * after)
        a, b = source.reshape(shape)[:, :, 0], source.reshape(shape)[:, :, 1]
        np.add(a, b, out=target.reshape(shape)[:, :, 0])
        np.subtract(a, b, out=target.reshape(shape)[:, :, 1])
        source, target = target, source
        half *= 2
    return np.multiply(source, np.float32(1) / np.float32(math.sqrt(d)), out=x)
