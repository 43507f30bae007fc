"""Transforms as matrices, one for a layer or one for every KV head: rotations, and others that have an inverse.

Rows are vectors: a transformed row is x M. Keys take M and queries M⁻ᵀ, which leaves every score as it was; output
weights take M⁻¹ of the values' transform, which leaves every output as it was. A rotation R has R⁻¹ = Rᵀ, so queries
and keys take the same R.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from producer.errors import SpecError
from producer.numerics.arrays import require_finite
from producer.numerics.exact_product import exact_matrix, exact_product
from producer.transform.hadamard_matrix import normalized_hadamard

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = [
    "INVERSE_BOUND",
    "ORTHOGONAL_BOUND",
    "Construction",
    "DenseRotation",
    "DenseTransform",
    "InvertibleTransform",
    "build_hadamard",
    "build_identity",
    "build_quarot",
    "closed_form",
    "orthogonality_error",
    "repeat_for_queries",
]

Construction: TypeAlias = Literal[
    "identity", "hadamard", "quarot", "oscar", "optr", "balanced", "optr-general"
]

#: Largest |R Rᵀ - I| of a matrix that was made in float64 or float32: rounding gives 10⁻⁷, bfloat16 2·10⁻³.
ORTHOGONAL_BOUND = 1e-4

#: Largest |M M⁻¹ - I| of a transform and its inverse, both rounded to float32: about 10⁻⁷ times the condition number.
INVERSE_BOUND = 1e-3


def orthogonality_error(matrices: Float32Array) -> float:
    """Return the largest |R Rᵀ - I| over matrices of shape (…, d, d), in float64."""
    wide = matrices.astype(np.float64)
    products = wide @ np.swapaxes(wide, -1, -2)
    return float(np.abs(products - np.eye(matrices.shape[-1])).max())


def repeat_for_queries(per_kv_head: Float32Array, num_heads: int) -> Float32Array:
    """Return an array with one entry a query head: query head q has the entry of KV head q // (H_q / H_kv).

    Parameters
    ----------
    per_kv_head : float32, shape (num_kv_heads, …)
    num_heads : int
        Query heads H_q, a multiple of num_kv_heads.

    Raises
    ------
    SpecError
        If the heads do not divide.
    """
    num_kv_heads = per_kv_head.shape[0]
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise SpecError(f"{num_heads} query heads are not allowed: a multiple of the {num_kv_heads} KV heads")
    return np.repeat(per_kv_head, num_heads // num_kv_heads, axis=0)


class DenseTransform(ABC):
    """A matrix for a layer, or one for each of its KV heads, with its inverse."""

    __slots__ = ()

    kind: Construction
    matrices: Float32Array
    composition: str

    @property
    @abstractmethod
    def inverses(self) -> Float32Array:
        """M⁻¹ of every matrix, float32, shape of `matrices`."""

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return int(self.matrices.shape[-1])

    @property
    def is_per_head(self) -> bool:
        """Whether every KV head has a matrix of its own."""
        return len(self.matrices) > 1

    @property
    def sha256(self) -> str:
        """SHA-256 of the little-endian float32 bytes, each matrix times the sign of its first entry that is not 0."""
        rows = self.matrices.reshape(len(self.matrices), -1)
        first = np.take_along_axis(rows, (rows != 0).argmax(axis=1)[:, None], axis=1)
        return hashlib.sha256((rows * np.sign(first) + np.float32(0)).astype("<f4").tobytes()).hexdigest()

    def rotate(self, x: Float32Array) -> Float32Array:
        """Return x M for keys or values of shape (…, num_kv_heads, tokens, head_dim), float32.

        What a row becomes does not depend on the rows beside it (`producer.numerics.exact_product`): a cache that is
        filled token by token codes what one pass codes.
        """
        self._require_heads(x)
        if self.kind == "identity":
            return x
        return exact_product(x, exact_matrix(self.matrices))

    def undo(self, x: Float32Array) -> Float32Array:
        """Return x M⁻¹ for transformed keys or values of shape (…, num_kv_heads, tokens, head_dim), float32."""
        self._require_heads(x)
        undone: Float32Array = np.matmul(x, self.inverses)
        return undone

    def rotate_queries(self, q: Float32Array) -> Float32Array:
        """Return q M⁻ᵀ for queries of shape (num_heads, tokens, head_dim), by the KV head of each query head."""
        matrices = self.inverses.swapaxes(-1, -2)
        if self.is_per_head:
            matrices = repeat_for_queries(matrices, q.shape[0])
        rotated: Float32Array = np.matmul(q, matrices)
        return rotated

    def fold_output(self, w_o: Float32Array) -> Float32Array:
        """Return M⁻¹ W for output weights of shape (num_heads, head_dim, output_dim): it undoes the values' transform.

        With o' = o M the weights W' = M⁻¹ W give o' W' = o W.
        """
        matrices = self.inverses if not self.is_per_head else repeat_for_queries(self.inverses, w_o.shape[0])
        folded: Float32Array = np.matmul(matrices, w_o)
        return folded

    def _require_matrices(self) -> None:
        shape = self.matrices.shape
        if self.matrices.dtype != np.float32 or len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise SpecError(
                f"rotation of dtype {self.matrices.dtype} and shape {shape} is not allowed: "
                "float32, (1 or num_kv_heads, head_dim, head_dim)"
            )
        require_finite(self.matrices, "rotation")

    def _require_heads(self, x: Float32Array) -> None:
        heads = x.shape[-3] if x.ndim >= 3 else 0
        if x.ndim < 3 or x.shape[-1] != self.head_dim or (self.is_per_head and heads != len(self.matrices)):
            expected = len(self.matrices) if self.is_per_head else "num_kv_heads"
            raise SpecError(
                f"x of shape {x.shape} is not allowed: (…, {expected}, tokens, {self.head_dim}) for this rotation"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseRotation(DenseTransform):
    """An orthogonal matrix for a layer, or one for each of its KV heads.

    Parameters
    ----------
    kind : {"identity", "hadamard", "quarot", "oscar", "optr"}
        How it was made.
    matrices : float32, shape (1, d, d) or (num_kv_heads, d, d)
        Made read-only.
    composition : str
        What an OSCAR rotation is the product of; empty elsewhere.
    eigenvalues : float64, shape (1 or num_kv_heads, d), optional
        Of the covariance that it was made from, rising.

    Raises
    ------
    SpecError
        If the shape is not allowed, or a matrix is not orthogonal.
    NonFiniteError
        If a matrix holds NaN or infinity.
    """

    kind: Construction
    matrices: Float32Array
    composition: str = ""
    eigenvalues: Float64Array | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._require_matrices()
        error = orthogonality_error(self.matrices)
        if not error <= ORTHOGONAL_BOUND:
            raise SpecError(
                f"rotation with max|R Rᵀ - I| = {error:.2g} is not allowed: at most {ORTHOGONAL_BOUND:g}"
                + ("; a matrix rounded to bfloat16 has about 2e-3" if error < 1e-2 else "")
            )
        self.matrices.setflags(write=False)

    @property
    def inverses(self) -> Float32Array:
        """Rᵀ of every matrix, a view."""
        return self.matrices.swapaxes(-1, -2)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertibleTransform(DenseTransform):
    """A matrix that need not be orthogonal, for a layer or for each of its KV heads, stored with its inverse.

    Parameters
    ----------
    kind : {"balanced", "optr-general"}
        How it was made.
    matrices, inverses : float32, shape (1, d, d) or (num_kv_heads, d, d)
        Made read-only.
    composition : str
        What it is the product of.

    Raises
    ------
    SpecError
        If a shape is not allowed, or the matrices are not each other's inverses.
    NonFiniteError
        If a matrix holds NaN or infinity.
    """

    kind: Construction
    matrices: Float32Array
    inverses: Float32Array
    composition: str = ""

    def __post_init__(self) -> None:
        self._require_matrices()
        if self.inverses.dtype != np.float32 or self.inverses.shape != self.matrices.shape:
            raise SpecError(
                f"inverse of dtype {self.inverses.dtype} and shape {self.inverses.shape} is not allowed: float32, "
                f"{self.matrices.shape}"
            )
        require_finite(self.inverses, "inverse")
        product = self.matrices.astype(np.float64) @ self.inverses.astype(np.float64)
        error = float(np.abs(product - np.eye(self.head_dim)).max())
        if not error <= INVERSE_BOUND:
            raise SpecError(
                f"transform with max|M M⁻¹ - I| = {error:.2g} is not allowed: at most {INVERSE_BOUND:g}"
            )
        self.matrices.setflags(write=False)
        self.inverses.setflags(write=False)

    @property
    def condition(self) -> Float64Array:
        """Largest over least singular value of every matrix, float64, shape (1 or num_kv_heads,)."""
        condition: Float64Array = np.linalg.cond(self.matrices.astype(np.float64))
        return condition


def closed_form(kind: str, head_dim: int) -> DenseRotation | None:
    """Return the rotation of a construction that has a closed form, or None where only its maker knows the matrix.

    Raises
    ------
    SpecError
        If the construction does not exist for `head_dim`.
    """
    builders = {"identity": build_identity, "hadamard": build_hadamard, "quarot": build_quarot}
    return builders[kind](head_dim) if kind in builders else None


def build_identity(head_dim: int) -> DenseRotation:
    """Return R = I."""
    return DenseRotation(kind="identity", matrices=np.eye(head_dim, dtype=np.float32)[None])


def build_hadamard(head_dim: int) -> DenseRotation:
    """Return R = H/√d for every order that `producer.transform.hadamard_matrix` reaches.

    Raises
    ------
    SpecError
        If it does not reach `head_dim`.
    """
    return DenseRotation(kind="hadamard", matrices=normalized_hadamard(head_dim)[None])


def build_quarot(head_dim: int) -> DenseRotation:
    """Return QuaRot's rotation: H/√d in Sylvester's order, for queries, keys and values alike.

    Raises
    ------
    SpecError
        If `head_dim` is no power of two, as the public code asserts.
    """
    if head_dim < 1 or head_dim & (head_dim - 1):
        raise SpecError(
            f"quarot: head_dim {head_dim} is not allowed: a power of two; `hadamard` has more orders"
        )
    return DenseRotation(kind="quarot", matrices=normalized_hadamard(head_dim)[None])
