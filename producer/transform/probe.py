"""Probes that detect a transposed or misplaced matrix, which an orthogonality test cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from producer.transform.hadamard_matrix import hadamard_matrix
from producer.transform.oscar import bit_reversal_order

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.transform.dense import DenseRotation

__all__ = ["PROBE_BOUND", "diagonal_defect", "probe_defect", "probe_of", "probe_vector", "transpose_word"]

#: Largest difference of a stored probe from x M, of the root mean square singular value of M (1 for a rotation).
PROBE_BOUND = 1e-4

_GOLDEN = (math.sqrt(5) - 1) / 2
_SIDES = ("key", "value")


def probe_vector(head_dim: int, heads: int, layer_idx: int, side: str) -> Float64Array:
    """Return the probe vectors of the matrices of one layer and side, float64, shape (heads, head_dim).

    Parameters
    ----------
    head_dim : int
    heads : int
        Matrices: the KV heads, or 1.
    layer_idx : int
    side : {"key", "value"}

    Notes
    -----
    x_j = frac((j + 1)·n·(√5 - 1)/2), j = 0 … d - 1, n = (2·layer + side)·heads + head + 1, where side is 0 for keys and
    1 for values: another vector for every place that a matrix can stand in.
    """
    first = (2 * layer_idx + _SIDES.index(side)) * heads
    numbers = np.arange(first + 1, first + heads + 1)[:, None] * np.arange(1, head_dim + 1)
    return numbers.astype(np.float64) * _GOLDEN % 1


def probe_of(matrices: Float32Array, layer_idx: int, side: str) -> Float32Array:
    """Return x M for the probe x of every matrix's place, float32, shape (heads, head_dim); accumulated in float64."""
    heads, head_dim = matrices.shape[:2]
    vectors = probe_vector(head_dim, heads, layer_idx, side)[:, None]
    probe: Float32Array = (vectors @ matrices.astype(np.float64))[:, 0].astype(np.float32)
    return probe


def probe_defect(matrices: Float32Array, probe: Float32Array, layer_idx: int, side: str) -> str | None:
    """Return what a stored probe says against matrices in a place, as the end of a sentence, or None."""

    def is_turned(candidate: Float32Array, other: str) -> bool:
        difference = np.abs(probe_of(candidate, layer_idx, other) - probe).max(axis=-1)
        size = np.sqrt(np.square(matrices.astype(np.float64)).sum(axis=(1, 2)) / matrices.shape[-1])
        return bool((difference <= PROBE_BOUND * size).all())

    if is_turned(matrices, side):
        return None
    fault = "does not turn the probe as its writer's did"
    if is_turned(np.swapaxes(matrices, -1, -2), side):
        return f"{fault}; it is transposed"
    other = "value" if side == "key" else "key"
    return f"{fault}; it is that of {other}s" if is_turned(matrices, other) else fault


def diagonal_defect(rotation: DenseRotation, sigma: Float64Array) -> float:
    """Return how far an OSCAR rotation is from making a covariance diagonal.

    Parameters
    ----------
    rotation : DenseRotation
        With its composition `r`, `r_pbr`, `r_h` or `r_h_pbr`, and, for those with pbr, its eigenvalues, which rise
        where it has none.
    sigma : float64, shape (1 or num_kv_heads, d, d)
        The covariance that it should belong to.

    Returns
    -------
    float
        Largest |off-diagonal| of Bᵀ Σ B over the largest |diagonal|, B the rotation without its h and pbr factors.
        About 10⁻⁶ for the right one; near 1 for a transpose, another layer's, or keys' for values'.
    """
    worst = 0.0
    for head, (matrix, target) in enumerate(zip(rotation.matrices.astype(np.float64), sigma, strict=True)):
        turned = _turned(rotation, head, matrix, target)
        diagonal = np.abs(np.diag(turned)).max()
        worst = max(worst, float(np.abs(turned - np.diag(np.diag(turned))).max() / max(diagonal, 1e-300)))
    return worst


def _turned(rotation: DenseRotation, head: int, matrix: Float64Array, sigma: Float64Array) -> Float64Array:
    """Return Bᵀ Σ B, B a matrix without the h and pbr factors of a rotation's composition."""
    d, basis, names = rotation.head_dim, matrix, rotation.composition.split("_")
    if "pbr" in names:
        # They rise where a file has none.
        values = np.arange(float(d)) if rotation.eigenvalues is None else rotation.eigenvalues[head]
        basis = basis @ bit_reversal_order(values).T
    if "h" in names:
        basis = basis @ hadamard_matrix(d).T / math.sqrt(d)
    turned: Float64Array = basis.T @ sigma @ basis
    return turned


def transpose_word(rotation: DenseRotation, sigma: Float64Array) -> str:
    """Return whether covariances tell the matrices of an OSCAR rotation from their transposes.

    Parameters
    ----------
    rotation : DenseRotation
        Of the composition that it names, `r_h_pbr` where it names none.
    sigma : float64, shape (1 or num_kv_heads, d, d)
        Covariances of the model that the rotation is for, of whatever text.

    Returns
    -------
    {"right", "transposed", "unknown"}
        The part of Σ off the diagonal, Σ_{i≠j} s_ij²/Σ s_ij², after the matrices and after their transposes: one that
        is at most half the other tells. Texts differ, and so do their covariances, but less than a basis from another.
    """
    named = rotation if rotation.composition else replace(rotation, composition="r_h_pbr")
    parts = []
    for transposed in (False, True):
        off, all_of = 0.0, 0.0
        for head, (matrix, target) in enumerate(zip(named.matrices.astype(np.float64), sigma, strict=True)):
            turned = _turned(named, head, matrix.T if transposed else matrix, target)
            total = float(np.square(turned).sum())
            off += total - float(np.square(np.diag(turned)).sum())
            all_of += total
        parts.append(off / all_of if all_of > 0 else 0.0)
    if parts[0] <= parts[1] / 2 and parts[1] > 0:
        return "right"
    return "transposed" if parts[1] <= parts[0] / 2 and parts[0] > 0 else "unknown"
