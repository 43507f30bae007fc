"""NMSE of an attention output (E10), and its split into a key, a value and a cross part (E20)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array

__all__ = ["DENOMINATOR_FLOOR", "TrialErrors", "nmse", "nmse_of_sums", "split_errors"]

#: Added to the denominator of an NMSE.
DENOMINATOR_FLOOR = 1e-30


def nmse(observed: Float32Array, reference: Float32Array) -> Float64Array:
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
    return error / (power + DENOMINATOR_FLOOR)


def nmse_of_sums(error: float, power: float) -> float:
    """Return Σ(a - b)² / (Σb² + 10⁻³⁰) of the two sums."""
    return error / (power + DENOMINATOR_FLOOR)


@dataclass(frozen=True, slots=True)
class TrialErrors:
    """Sums of squares by trial, over the columns of the projected output.

    With y the unquantized output, y_K the output of quantized keys and unquantized values, and y' that of both
    quantized: e_K = y_K - y and e_V = y' - y_K.

    Attributes
    ----------
    nmse : list of float
        numerator / (denominator + 1e-30).
    numerator : list of float
        ‖y' - y‖².
    denominator : list of float
        ‖y‖².
    key_part, value_part : list of float
        ‖e_K‖², ‖e_V‖².
    cross_part : list of float
        2·⟨e_K, e_V⟩: numerator = key_part + value_part + cross_part.
    """

    nmse: list[float]
    numerator: list[float]
    denominator: list[float]
    key_part: list[float]
    value_part: list[float]
    cross_part: list[float]


def split_errors(outputs: Float32Array, key_outputs: Float32Array, references: Float32Array) -> TrialErrors:
    """Return the squared errors of trials and their split (E20).

    Parameters
    ----------
    outputs : float32, shape (trials, output_dim)
        y', keys and values quantized.
    key_outputs : float32, shape (trials, output_dim)
        y_K, keys quantized.
    references : float32, shape (trials, output_dim)
        y, nothing quantized.

    Notes
    -----
    Source: OptR, equations 8 and 10, summed over the query heads by the projection. Differences and products in
    float64; each sum is exact and rounded once, so it does not depend on the order of the columns. The split adds
    up whatever y_K is.
    """
    whole, keys, plain = (each.astype(np.float64) for each in (outputs, key_outputs, references))
    numerator, denominator = _sums((whole - plain) ** 2), _sums(plain**2)
    return TrialErrors(
        nmse=[nmse_of_sums(*sums) for sums in zip(numerator, denominator, strict=True)],
        numerator=numerator,
        denominator=denominator,
        key_part=_sums((keys - plain) ** 2),
        value_part=_sums((whole - keys) ** 2),
        cross_part=_sums(2 * (keys - plain) * (whole - keys)),
    )


def _sums(rows: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    return [math.fsum(row) for row in rows.tolist()]
