"""OSCAR's rotations: eigenvectors of a covariance, composed with a Hadamard matrix and a bit-reversal order."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.transform.covariance import covariance
from producer.transform.dense import DenseRotation
from producer.transform.hadamard_matrix import hadamard_matrix

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = ["COMPOSITIONS", "bit_reversal_order", "build_oscar", "oscar_from_covariance"]

#: Products by name, left to right: r eigenvectors, h Hadamard/√d, pbr the order by bit reversal.
COMPOSITIONS = ("r", "r_pbr", "r_h", "r_h_pbr", "h_pbr", "h_r_pbr", "h_pbr_r")


def bit_reversal_order(eigenvalues: Float64Array) -> Float64Array:
    """Return P_br, float64, shape (d, d): P = I[:, perm], perm[bitrev(i)] = the place of the i-th largest eigenvalue.

    Raises
    ------
    SpecError
        If d is no power of two.
    """
    d = eigenvalues.size
    if d & (d - 1):
        raise SpecError(
            f"head_dim {d} has no bit reversal: a power of two is needed; compositions without pbr work"
        )
    bits = d.bit_length() - 1
    reversed_index = [int(f"{index:0{bits}b}"[::-1], 2) if bits else 0 for index in range(d)]
    order = np.empty(d, dtype=np.intp)
    order[reversed_index] = np.argsort(-eigenvalues, kind="stable")
    return np.eye(d)[:, order]


def oscar_from_covariance(sigma: Float64Array, composition: str = "r_h_pbr") -> DenseRotation:
    """Return the OSCAR rotation of covariances.

    Parameters
    ----------
    sigma : float64, shape (1 or num_kv_heads, d, d)
        Symmetric.
    composition : str
        One of `COMPOSITIONS`; `r_h_pbr` is the published one.

    Raises
    ------
    SpecError
        If the composition is unknown, or does not exist for d.

    Notes
    -----
    Eigenvectors are the columns of R, eigenvalues rising. Their signs, and the basis of an eigenspace of several
    dimensions, are arbitrary, and H makes a changed sign a different rotation: compare rotations by invariants, not
    by bytes. With r_h every channel has variance tr(Σ)/d. pbr changes nothing when one group is the whole head.
    """
    if composition not in COMPOSITIONS:
        raise SpecError(f"composition {composition!r} is not allowed: one of {', '.join(COMPOSITIONS)}")
    d = sigma.shape[-1]
    eigenvalues, vectors = np.linalg.eigh((sigma + np.swapaxes(sigma, -1, -2)) / 2)
    names = composition.split("_")
    hadamard = hadamard_matrix(d) / math.sqrt(d) if "h" in names else np.eye(d)
    matrices = np.empty(sigma.shape, dtype=np.float32)
    for head, (values, basis) in enumerate(zip(eigenvalues, vectors, strict=True)):
        factors = {"r": basis, "h": hadamard}
        if "pbr" in names:
            factors["pbr"] = bit_reversal_order(values)
        matrices[head] = functools.reduce(np.matmul, [factors[name] for name in names])
    return DenseRotation(kind="oscar", matrices=matrices, composition=composition, eigenvalues=eigenvalues)


def build_oscar(
    target: str,
    q: Float32Array,
    k: Float32Array,
    v: Float32Array,
    *,
    is_per_head: bool = True,
    composition: str = "r_h_pbr",
) -> DenseRotation:
    """Return an OSCAR rotation of calibration queries, keys and values.

    Parameters
    ----------
    target : {"qqt", "sst", "ktk", "vtv"}
        `qqt` for keys and `sst` for values are the published ones; see `producer.transform.covariance`.
    q : float32, shape (num_heads, tokens, head_dim)
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
    is_per_head : bool
        One matrix a KV head (file format v2), or one of the mean covariance for the layer (v1).
    composition : str
        One of `COMPOSITIONS`.

    Raises
    ------
    SpecError
        As `covariance` and `oscar_from_covariance`.
    """
    sigma = covariance(target, q, k, v)
    if not is_per_head:
        sigma = sigma.mean(axis=0, keepdims=True)
    return oscar_from_covariance(sigma, composition)
