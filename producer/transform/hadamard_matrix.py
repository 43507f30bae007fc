"""Hadamard matrices of orders 2^k·m: Sylvester's, and Paley's for m = 4·odd.

An order that neither construction reaches is refused; nothing is built larger and cut down, because a cut
Hadamard matrix is not orthogonal.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["hadamard_matrix", "has_hadamard_matrix", "normalized_hadamard"]

_MAX_ORDER = 8192


def _is_prime(number: int) -> bool:
    """Return whether a number is prime, by trial division."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _jacobsthal(prime: int) -> npt.NDArray[np.int8]:
    """Return Q, Q[i, j] the quadratic character of i - j modulo an odd prime, int8."""
    squares = np.zeros(prime, dtype=np.int8) - np.int8(1)
    squares[np.arange(1, prime) ** 2 % prime] = 1
    squares[0] = 0
    index = np.arange(prime)
    matrix: npt.NDArray[np.int8] = squares[(index[:, None] - index[None, :]) % prime]
    return matrix


def _paley(order: int) -> npt.NDArray[np.int8] | None:
    """Return a Hadamard matrix of Paley's constructions I and II over prime fields, or None.

    I: order - 1 = q prime, q ≡ 3 mod 4: I + S with S the skew conference matrix of order q + 1.
    II: order/2 - 1 = q prime, q ≡ 1 mod 4: C ⊗ [[1, 1], [1, -1]] + I ⊗ [[1, -1], [-1, -1]].
    """
    q = order - 1
    if q % 4 == 3 and _is_prime(q):
        conference = np.ones((order, order), dtype=np.int8)
        conference[1:, 1:] = _jacobsthal(q)
        conference[1:, 0] = -1
        conference[0, 0] = 0
        return conference + np.eye(order, dtype=np.int8)
    q = order // 2 - 1
    if order % 4 == 0 and q % 4 == 1 and _is_prime(q):
        conference = np.ones((q + 1, q + 1), dtype=np.int8)
        conference[1:, 1:] = _jacobsthal(q)
        conference[0, 0] = 0
        plus = np.array([[1, 1], [1, -1]], dtype=np.int8)
        minus = np.array([[1, -1], [-1, -1]], dtype=np.int8)
        return np.kron(conference, plus) + np.kron(np.eye(q + 1, dtype=np.int8), minus)
    return None


@functools.cache
def _construct(order: int) -> npt.NDArray[np.int8] | None:
    """Return the matrix of an order, or None: Sylvester doublings of the smallest Paley order that works."""
    if order == 1:
        return np.ones((1, 1), dtype=np.int8)
    if order % 2:
        return None
    half = _construct(order // 2)
    matrix = _paley(order) if half is None else np.kron(np.array([[1, 1], [1, -1]], dtype=np.int8), half)
    if matrix is not None:
        matrix.setflags(write=False)
    return matrix


def has_hadamard_matrix(order: int) -> bool:
    """Return whether `hadamard_matrix` has this order."""
    return 1 <= order <= _MAX_ORDER and _construct(order) is not None


def hadamard_matrix(order: int) -> npt.NDArray[np.int8]:
    """Return H with H Hᵀ = order·I, entries +1 and -1, int8, read-only.

    Parameters
    ----------
    order : int
        At most 8192. Powers of two give Sylvester's matrix. 2^k·m is made of k doublings of the smallest order m
        that Paley's construction I (m - 1 a prime ≡ 3 mod 4) or II (m/2 - 1 a prime ≡ 1 mod 4) reaches.

    Raises
    ------
    SpecError
        If none of the constructions reaches the order. Hadamard matrices of such an order may still be known:
        52 and 100 need fields of prime-power order, 92 a search.
    """
    matrix = _construct(order) if 1 <= order <= _MAX_ORDER else None
    if matrix is None:
        near = [str(other) for other in range(max(order - 16, 1), order + 17) if has_hadamard_matrix(other)]
        raise SpecError(
            f"order {order} has no Hadamard matrix here: powers of two and doublings of Paley's constructions over "
            f"prime fields, such as {', '.join(near) or '4'}; nothing is padded or cut"
        )
    return matrix


def normalized_hadamard(order: int) -> Float32Array:
    """Return H/√order, float32, shape (order, order), orthogonal to float32 rounding."""
    matrix: Float32Array = (hadamard_matrix(order) / np.sqrt(order)).astype(np.float32)
    return matrix
