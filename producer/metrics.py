"""The error measure of an output."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.arrays import Float32Array, Float64Array

__all__ = ["nmse"]

_FLOOR = 1e-30


def nmse(observed: "Float32Array", reference: "Float32Array") -> "Float64Array":
    """Return the normalised squared error along the last axis, float64 (E10).

    Parameters
    ----------
    observed, reference : float32, shape (…, output_dim)

    Returns
    -------
    float64, shape (…)
        Σ(a - b)² / (Σb² + 10⁻³⁰). An output of zeros has 1.

    Notes
    -----
    Differences and sums in float64 over the float32 outputs; sums by `numpy.einsum`, a fixed order.
    """
    a, b = observed.astype(np.float64), reference.astype(np.float64)
    difference = a - b
    error: Float64Array = np.einsum("...i,...i->...", difference, difference)
    power: Float64Array = np.einsum("...i,...i->...", b, b)
    return error / (power + _FLOOR)
