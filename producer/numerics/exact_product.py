"""Row-by-matrix products whose value depends on the row and the matrix alone, not on how many rows there are.

A product in float32 is summed in an order that its library chooses by shape, thread and processor, so the last bit of
a row changes with the rows beside it, and a quantizer turns a last bit into another code. Here both factors are rounded
to a fixed-point grid, so coarse that float64 holds every partial sum exactly: any order gives the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = ["ExactMatrix", "exact_matrix", "exact_product"]

#: Significant bits of a float64.
_BITS = 53
#: Bits of a matrix entry; what is left of 53 after the d terms of a sum are the bits of a row's entry, 25 at d = 64.
_MATRIX_BITS = 22


@dataclass(frozen=True, slots=True)
class ExactMatrix:
    """A matrix on its grid.

    Attributes
    ----------
    whole : float64, shape (…, d, n)
        Whole numbers of at most 22 bits.
    unit : float
        What they count, a power of two: one for all matrices.
    """

    whole: Float64Array
    unit: float


def exact_matrix(matrices: Float32Array) -> ExactMatrix:
    """Return matrices, float32, shape (…, d, n), rounded half to even to 2^-22 of the power of two above their largest.

    Each entry moves by at most 2^-23 of that power, as a rounding to float32 moves the largest of them.
    """
    top = float(np.abs(matrices).max(initial=0.0))
    unit = 2.0 ** (math.frexp(top)[1] - _MATRIX_BITS)
    whole: Float64Array = np.rint(matrices.astype(np.float64) / unit)
    return ExactMatrix(whole, unit)


def exact_product(rows: Float32Array, matrix: ExactMatrix) -> Float32Array:
    """Return rows M, float32, shape (…, tokens, n): the same bits for a row in any number of them and on any machine.

    Parameters
    ----------
    rows : float32, shape (…, tokens, d)
        Every row is rounded half to even to 2^-b of the power of two above its largest entry, b = 31 - ⌈log₂ d⌉.
    matrix : ExactMatrix
        Broadcasts against the rows.

    Notes
    -----
    A product of b and 22 bits and a sum of d of them stay below 2^53, so float64 rounds none (E40). The sum is rounded
    to float32 once. Rows with NaN or infinity give NaN.
    """
    bits = _BITS - _MATRIX_BITS - max(0, math.ceil(math.log2(max(1, rows.shape[-1]))))
    top = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.ldexp(1.0, np.frexp(top)[1].astype(np.int64) - bits)
        whole = np.rint(rows.astype(np.float64) / unit)
        product: Float32Array = ((whole @ matrix.whole) * (unit * matrix.unit)).astype(np.float32)
    return product
