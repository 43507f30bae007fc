"""Key centring: the mean key of a layer and KV head is subtracted before rotation and quantization.

A constant μ added to all keys adds the constant q·μ to all scores of a query, which softmax does not see:
q·(k_t - μ) = q·k_t - q·μ. So attention over centred keys is attention, provided that *every* key is centred, those
in the sink and recent windows too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["center_keys", "key_mean"]


def key_mean(k: Float32Array) -> Float32Array:
    """Return μ, the mean post-RoPE key of every KV head, float32, shape (num_kv_heads, head_dim).

    Parameters
    ----------
    k : float32, shape (num_kv_heads, tokens, head_dim)
        Keys of the calibration tokens.

    Raises
    ------
    SpecError
        If there are no tokens.

    Notes
    -----
    Accumulated in float64, rounded once.
    """
    if k.ndim != 3 or k.shape[1] < 1:
        raise SpecError(
            f"k of shape {k.shape} is not allowed: (num_kv_heads, tokens, head_dim), tokens above 0"
        )
    mean: Float32Array = k.mean(axis=1, dtype=np.float64).astype(np.float32)
    return mean


def center_keys(k: Float32Array, mean: Float32Array) -> Float32Array:
    """Return k - μ, float32, shape (num_kv_heads, tokens, head_dim)."""
    if mean.shape != (k.shape[0], k.shape[-1]):
        raise SpecError(
            f"mean of shape {mean.shape} is not allowed: ({k.shape[0]}, {k.shape[-1]}) for these keys"
        )
    return k - mean[:, None, :]
