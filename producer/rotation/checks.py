"""What can be told of a rotation beyond its orthogonality: a transpose is orthogonal too, and so is another's."""

import math
from typing import TYPE_CHECKING

import numpy as np

from producer.rotation.hadamard_matrix import hadamard_matrix
from producer.rotation.oscar import bit_reversal_order

if TYPE_CHECKING:
    from producer.arrays import Float32Array, Float64Array
    from producer.rotation.dense import DenseRotation

__all__ = ["PROBE_BOUND", "diagonal_defect", "probe_of", "probe_vector"]

#: Largest difference of a stored probe from x R; the probe has entries below 1 and float32 rounding.
PROBE_BOUND = 1e-4


def probe_vector(head_dim: int) -> "Float64Array":
    """Return the probe x of a head, x_i = (i + 1)/d: no symmetry maps it to itself, float64, shape (head_dim,)."""
    return np.arange(1, head_dim + 1) / head_dim


def probe_of(matrices: "Float32Array") -> "Float32Array":
    """Return x R of every matrix for the probe x, float32, shape (…, head_dim); accumulated in float64."""
    probe: Float32Array = (probe_vector(matrices.shape[-1]) @ matrices.astype(np.float64)).astype(np.float32)
    return probe


def diagonal_defect(rotation: "DenseRotation", sigma: "Float64Array") -> float:
    """Return how far an OSCAR rotation is from making a covariance diagonal.

    Parameters
    ----------
    rotation : DenseRotation
        With its composition `r`, `r_pbr`, `r_h` or `r_h_pbr`, and, for those with pbr, its eigenvalues.
    sigma : float64, shape (1 or num_kv_heads, d, d)
        The covariance that it should belong to.

    Returns
    -------
    float
        Largest |off-diagonal| of Bᵀ Σ B over the largest |diagonal|, B the rotation without its h and pbr factors.
        About 10⁻⁶ for the right one; near 1 for a transpose, another layer's, or keys' for values'.
    """
    d = rotation.head_dim
    worst = 0.0
    for head, (matrix, target) in enumerate(zip(rotation.matrices.astype(np.float64), sigma, strict=True)):
        basis = matrix
        names = rotation.composition.split("_")
        if "pbr" in names and rotation.eigenvalues is not None:
            basis = basis @ bit_reversal_order(rotation.eigenvalues[head]).T
        if "h" in names:
            basis = basis @ hadamard_matrix(d).T / math.sqrt(d)
        turned = basis.T @ target @ basis
        diagonal = np.abs(np.diag(turned)).max()
        worst = max(worst, float(np.abs(turned - np.diag(np.diag(turned))).max() / max(diagonal, 1e-300)))
    return worst
