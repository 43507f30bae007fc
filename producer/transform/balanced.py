"""Balanced transforms: both sides have one covariance, as in balanced truncation of linear systems.

A quantization error of k M reaches a logit through q M⁻ᵀ. Its expected square goes with
tr(Mᵀ Σ_k M)·tr(M⁻¹ Σ_q M⁻ᵀ), which is least over all invertible M where both factors have one covariance (E30 … E33).
An orthogonal M leaves the product at tr Σ_k·tr Σ_q.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import NonFiniteError, SpecError
from producer.transform.covariance import covariance
from producer.transform.dense import INVERSE_BOUND, InvertibleTransform
from producer.transform.hadamard_matrix import hadamard_matrix, has_hadamard_matrix

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = [
    "COMPOSITIONS",
    "CONDITION_BOUND",
    "RIDGE",
    "balanced_from_covariances",
    "balancing",
    "output_covariance",
    "unweighted_covariances",
    "with_ridge",
]

#: b the balancing matrix, h the Hadamard matrix/√d.
COMPOSITIONS = ("b_h", "b")

RIDGE = 1e-3

#: Largest condition number κ of M. Rounding M and M⁻¹ to float32 moves an entry of M M⁻¹ by at most 2⁻²³·κ, so below it
#: the pair passes INVERSE_BOUND. With a ridge above 0 the condition number is at most √(1 + d/ridge) (E36).
CONDITION_BOUND = INVERSE_BOUND * 2**23

_SYMMETRY = 1e-9


def _require_covariance(sigma: Float64Array, name: str) -> Float64Array:
    """Return covariances made exactly symmetric."""
    if sigma.dtype != np.float64 or sigma.ndim != 3 or sigma.shape[1] != sigma.shape[2] or 0 in sigma.shape:
        raise SpecError(
            f"{name} of dtype {sigma.dtype} and shape {sigma.shape} is not allowed: float64, (num_kv_heads, d, d)"
        )
    for head, matrix in enumerate(sigma):
        where = f"{name} of head {head}"
        if not np.isfinite(matrix).all():
            raise NonFiniteError(f"{where} holds NaN or infinity")
        size = np.abs(matrix).max()
        if size == 0:
            raise SpecError(f"{where} is not allowed: it is zero")
        skew = np.abs(matrix - matrix.T).max()
        if not skew <= _SYMMETRY * size:
            raise SpecError(f"{where} is not allowed: max|Σ - Σᵀ| is {skew / size:.2g} of its largest entry")
        least = np.linalg.eigvalsh((matrix + matrix.T) / 2)[0]
        if least < -_SYMMETRY * size:
            raise SpecError(f"{where} is not allowed: its least eigenvalue is {least:.3g}, below 0")
    symmetric: Float64Array = (sigma + np.swapaxes(sigma, -1, -2)) / 2
    return symmetric


def with_ridge(sigma: Float64Array, ridge: float) -> Float64Array:
    """Return Σ + ridge·tr(Σ)/d·I of every head, float64, shape of `sigma`."""
    diagonal = np.trace(sigma, axis1=-2, axis2=-1)[:, None, None] / sigma.shape[-1]
    raised: Float64Array = sigma + ridge * diagonal * np.eye(sigma.shape[-1])
    return raised


def balancing(
    sigma_k: Float64Array, sigma_q: Float64Array
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return M, M⁻¹ and S with Mᵀ Σ_k M = M⁻¹ Σ_q M⁻ᵀ = diag S (E32).

    Parameters
    ----------
    sigma_k, sigma_q : float64, shape (num_kv_heads, d, d)
        Symmetric and positive definite.

    Returns
    -------
    matrices, inverses : float64, shape (num_kv_heads, d, d)
        M⁻¹ is computed from the factors, not by inverting M. M Mᵀ is the geometric mean of Σ_k⁻¹ and Σ_q.
    spectrum : float64, shape (num_kv_heads, d)
        S, falling.

    Raises
    ------
    SpecError
        If one is not positive definite.

    Notes
    -----
    Σ_k = L_k L_kᵀ, Σ_q = L_q L_qᵀ, L_qᵀ L_k = U S Vᵀ; M = L_k⁻ᵀ V S^½, M⁻¹ = S^-½ Vᵀ L_kᵀ. In float64.
    """
    try:
        lower_k, lower_q = np.linalg.cholesky(sigma_k), np.linalg.cholesky(sigma_q)
    except np.linalg.LinAlgError as error:
        raise SpecError(
            "a covariance is not allowed: it is not positive definite; a ridge above 0 makes it so"
        ) from error
    upper_k = np.swapaxes(lower_k, -1, -2)
    _, spectrum, right = np.linalg.svd(np.swapaxes(lower_q, -1, -2) @ lower_k)
    root = np.sqrt(spectrum)
    matrices = np.linalg.solve(upper_k, np.swapaxes(right, -1, -2)) * root[:, None, :]
    inverses = right @ upper_k / root[:, :, None]
    return matrices, inverses, spectrum


def balanced_from_covariances(
    sigma_k: Float64Array,
    sigma_q: Float64Array,
    ridge: float = RIDGE,
    composition: str = "b_h",
    balance: float = 0.5,
) -> InvertibleTransform:
    """Return the balanced transform of the covariances of what is stored, and of what reads it.

    Parameters
    ----------
    sigma_k : float64, shape (num_kv_heads, d, d)
        Of keys, or of values: symmetric, no eigenvalue below 0.
    sigma_q : float64, shape (num_kv_heads, d, d)
        Of the queries that read the keys, or Σ W Wᵀ of the output weights that read the values.
    ridge : float
        Part of the mean diagonal that is added to both diagonals, 0 or above.
    composition : {"b_h", "b"}
        With the Hadamard matrix, which gives all channels one variance, or without it.
    balance : float
        t in 0 … 1: 0 whitens what is stored, 1 what reads it, ½ balances the two (E39).

    Raises
    ------
    SpecError
        If a covariance is not symmetric, has an eigenvalue below 0 or is zero; if d has no Hadamard matrix; if the
        condition number of a head is above `CONDITION_BOUND`.
    NonFiniteError
        If a covariance holds NaN or infinity.

    Notes
    -----
    M = c·L_k⁻ᵀ V Sᵗ H/√d (E32, E34, E39). At t = ½ the product of traces does not depend on c; it is chosen so that
    tr(Mᵀ Σ_k M) = tr Σ_k: a transformed key has the mean square of the key, as it has with a rotation. In float64,
    rounded once to float32.
    """
    if composition not in COMPOSITIONS:
        raise SpecError(f"composition {composition!r} is not allowed: one of {', '.join(COMPOSITIONS)}")
    if not 0 <= ridge < math.inf:
        raise SpecError(f"ridge {ridge!r} is not allowed: 0 or above")
    if not 0 <= balance <= 1:
        raise SpecError(f"balance {balance!r} is not allowed: 0 … 1")
    sigma_k, sigma_q = _require_covariance(sigma_k, "Σ_k"), _require_covariance(sigma_q, "Σ_q")
    if sigma_k.shape != sigma_q.shape:
        raise SpecError(f"Σ_k {sigma_k.shape} and Σ_q {sigma_q.shape} are not allowed: of one shape")
    d = sigma_k.shape[-1]
    if composition == "b_h" and not has_hadamard_matrix(d):
        raise SpecError(f"head_dim {d} has no Hadamard matrix here: composition b works without one")
    sigma_k, sigma_q = with_ridge(sigma_k, ridge), with_ridge(sigma_q, ridge)
    matrices, inverses, spectrum = balancing(sigma_k, sigma_q)
    # At ½ all factors are 1, which changes no bit.
    moved = spectrum ** (balance - 0.5)
    matrices, inverses = matrices * moved[:, None, :], inverses / moved[:, :, None]
    spectrum = spectrum ** (2 * balance)
    condition = np.linalg.norm(matrices, 2, axis=(-2, -1)) * np.linalg.norm(inverses, 2, axis=(-2, -1))
    worst = int(condition.argmax())
    if not condition[worst] <= CONDITION_BOUND:
        raise SpecError(
            f"head {worst}: condition number {condition[worst]:.3g} is not allowed: at most {CONDITION_BOUND:.4g}, or "
            f"float32 holds no inverse; ridge {ridge:g} may be raised"
        )
    scale = np.sqrt(np.trace(sigma_k, axis1=-2, axis2=-1) / spectrum.sum(axis=-1))[:, None, None]
    matrices, inverses = matrices * scale, inverses / scale
    if composition == "b_h":
        hadamard = hadamard_matrix(d) / math.sqrt(d)
        matrices, inverses = matrices @ hadamard, hadamard.T @ inverses
    return InvertibleTransform(
        kind="balanced",
        matrices=matrices.astype(np.float32),
        inverses=inverses.astype(np.float32),
        composition=composition,
    )


def output_covariance(w_o: Float32Array | None, num_kv_heads: int) -> Float64Array:
    """Return Σ_w = Σ W Wᵀ over the query heads of each KV head, float64, shape (num_kv_heads, d, d).

    Parameters
    ----------
    w_o : float32, shape (num_heads, head_dim, hidden_size)
        Output weights by query head.
    num_kv_heads : int
        Divides num_heads.

    Raises
    ------
    SpecError
        If there are no output weights: a dump of a serving engine has none.
    """
    if w_o is None:
        raise SpecError("a balanced transform of values needs output weights: this calibration has none")
    wide = w_o.astype(np.float64)
    by_head = (wide @ np.swapaxes(wide, -1, -2)).reshape(num_kv_heads, -1, *w_o.shape[1:2] * 2)
    summed: Float64Array = by_head.sum(axis=1)
    return summed


def unweighted_covariances(
    side: str, q: Float32Array, k: Float32Array, v: Float32Array, w_o: Float32Array | None
) -> tuple[Float64Array, Float64Array]:
    """Return the covariance of what a side stores and of what reads it, float64, shape (num_kv_heads, d, d) each.

    Parameters
    ----------
    side : {"key", "value"}
    q : float32, shape (num_heads, tokens, head_dim)
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
        Keys as they are stored: centred, if they are.
    w_o : float32, shape (num_heads, head_dim, hidden_size), or None

    Notes
    -----
    Keys: Σ k kᵀ/n and Σ q qᵀ/(n·g). Values: Σ v vᵀ/n and Σ W Wᵀ. Values are not centred when they are stored, so
    neither is their covariance: what the quantizer sees has their mean.
    """
    if side == "key":
        return covariance("ktk", q, k, v), covariance("qqt", q, k, v)
    return covariance("vtv", q, k, v), output_covariance(w_o, k.shape[0])
