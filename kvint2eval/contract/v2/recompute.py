"""Summaries from trials, without NumPy: exact sums, rounded once.

The producer computes the same with NumPy; neither uses the other's code. Figures are compared with `TOLERANCE`,
which covers other orders of summation and nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DENOMINATOR_FLOOR", "TOLERANCE", "is_close", "mean", "median", "population_deviation"]

TOLERANCE = 1e-9
"""How far a stated figure may lie from the recomputed one, relative to the larger magnitude that it is made of."""

DENOMINATOR_FLOOR = 1e-30
"""Added to the denominator of an NMSE."""


def is_close(stated: float, computed: float, magnitude: float | None = None) -> bool:
    """Whether a stated figure is the computed one within `TOLERANCE`.

    Parameters
    ----------
    stated, computed
        The figures; finite.
    magnitude
        What the tolerance is relative to, by default the computed figure.
    """
    return abs(stated - computed) <= TOLERANCE * abs(computed if magnitude is None else magnitude)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean: the exact sum, rounded once, over the number of values."""
    return math.fsum(values) / len(values)


def population_deviation(values: Sequence[float], center: float) -> float:
    """Population standard deviation (divided by n) around a mean."""
    return math.sqrt(math.fsum([(value - center) ** 2 for value in values]) / len(values))


def median(values: Sequence[float]) -> float:
    """Median: the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
