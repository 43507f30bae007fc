"""Covariances that OSCAR's rotations are built from, by KV head, in float64.

Targets are named as in OSCAR's files: `qqt` for keys and `sst` for values are its published ones, `ktk` and `vtv`
the plain second moments. No target subtracts a mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = ["TARGETS", "covariance", "queries_by_kv_head"]

_WEIGHT_FLOOR = 1e-12

TARGETS = ("qqt", "sst", "ktk", "vtv")


def queries_by_kv_head(q: Float32Array, num_kv_heads: int) -> Float32Array:
    """Return queries stacked by the KV head that they read, shape (num_kv_heads, g·tokens, head_dim).

    Parameters
    ----------
    q : float32, shape (num_heads, tokens, head_dim)
        Query head q reads KV head q // g, g = num_heads / num_kv_heads.
    num_kv_heads : int
        Divides num_heads.

    Raises
    ------
    SpecError
        If it does not divide.
    """
    num_heads, tokens, head_dim = q.shape
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise SpecError(f"{num_heads} query heads are not allowed: a multiple of the {num_kv_heads} KV heads")
    return q.reshape(num_kv_heads, num_heads // num_kv_heads * tokens, head_dim)


def covariance(target: str, q: Float32Array, k: Float32Array, v: Float32Array) -> Float64Array:
    """Return the covariance of a target for every KV head, float64, shape (num_kv_heads, d, d), symmetric.

    Parameters
    ----------
    target : {"qqt", "sst", "ktk", "vtv"}
    q : float32, shape (num_heads, tokens, head_dim)
        Post-RoPE queries of all calibration tokens.
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
        Post-RoPE keys, and values, of the same tokens.

    Raises
    ------
    SpecError
        If the target is unknown, the shapes do not fit or there are no tokens.

    Notes
    -----
    qqt: M = Σ q qᵀ / (n·g), over the g query heads of a KV head and n tokens.
    sst: w_t = k_t M k_tᵀ, ŵ = n·w / max(Σ w, 10⁻¹²), Σ_t ŵ_t v_tᵀ v_t / n. These weights are not softmax weights.
    ktk: Σ k kᵀ / n. vtv: Σ v vᵀ / n. For a layer OSCAR takes the mean over its KV heads.
    """
    if target not in TARGETS:
        raise SpecError(f"target {target!r} is not allowed: one of {', '.join(TARGETS)}")
    if k.shape != v.shape or k.ndim != 3 or q.ndim != 3 or q.shape[1:] != k.shape[1:] or k.shape[1] < 1:
        raise SpecError(
            f"q {q.shape}, k {k.shape}, v {v.shape} are not allowed: (num_heads, tokens, head_dim) and twice "
            "(num_kv_heads, tokens, head_dim), tokens above 0"
        )
    tokens = k.shape[1]
    if target == "ktk":
        return _second_moment(k.astype(np.float64))
    if target == "vtv":
        return _second_moment(v.astype(np.float64))
    queries = _second_moment(queries_by_kv_head(q, k.shape[0]).astype(np.float64))
    if target == "qqt":
        return queries
    keys = k.astype(np.float64)
    weights = ((keys @ queries) * keys).sum(axis=-1)
    weights *= tokens / np.maximum(weights.sum(axis=-1, keepdims=True), _WEIGHT_FLOOR)
    values = v.astype(np.float64)
    return _symmetric(np.swapaxes(values, -1, -2) @ (values * weights[..., None]) / tokens)


def _second_moment(x: Float64Array) -> Float64Array:
    """Return Σ xᵀ x / rows for every head."""
    return _symmetric(np.swapaxes(x, -1, -2) @ x / x.shape[1])


def _symmetric(matrices: Float64Array) -> Float64Array:
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2
