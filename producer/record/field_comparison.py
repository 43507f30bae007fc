"""Comparison of a record's field with its recomputed value, and the tolerances of all comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "NMSE_TOLERANCE",
    "NULL_CHECK_BOUND",
    "STDDEV_TOLERANCE",
    "FieldComparison",
    "compare_exactly",
    "compare_numbers",
]

#: Largest NMSE of a null check: contract v2, step 13, "the bound is 1e-9 and every check is at most that". Two checks
#: below it are rounding noise both, so they agree.
NULL_CHECK_BOUND = 1e-9

#: Relative difference of a standard deviation of accuracies: √(p(1-p)) may be rounded in more than one order.
STDDEV_TOLERANCE = 1e-9

#: Relative difference within which an NMSE counts as the same: twice what the published float32 sums cost.
NMSE_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """One field of a record.

    Attributes
    ----------
    field : str
        JSON pointer.
    published, recomputed : float, int, str or None
        None where the record has no such row.
    difference : float or None
        Relative to the published value where that is not 0; None for text.
    tolerance : float
        Largest difference that agrees; 0 asks for equality.
    agrees : bool
    """

    field: str
    published: float | str | None
    recomputed: float | str | None
    difference: float | None
    tolerance: float
    agrees: bool


def compare_exactly(field: str, published: Any, recomputed: Any) -> FieldComparison:
    """Return the comparison of a field that has to be equal; what is neither number nor text is shown as Python's."""
    shown = [
        value if value is None or isinstance(value, int | float | str) else repr(value)
        for value in (published, recomputed)
    ]
    return FieldComparison(field, shown[0], shown[1], None, 0.0, published == recomputed)


def compare_numbers(
    field: str,
    published: float | None,
    recomputed: float | None,
    tolerance: float,
    scale: float | None = None,
) -> FieldComparison:
    """Return the comparison of a number.

    Parameters
    ----------
    field : str
    published, recomputed : float, or None
        Where one is None both have to be.
    tolerance : float
        Largest difference that agrees.
    scale : float, optional
        What the difference is relative to; 0 asks for equality. By default the published number, or 1 where that is 0.
    """
    if published is None or recomputed is None:
        return FieldComparison(field, published, recomputed, None, tolerance, published == recomputed)
    difference = abs(published - recomputed)
    if scale is None:
        scale = published or 1.0
    if not scale:
        return FieldComparison(field, published, recomputed, difference, 0.0, difference == 0)
    # Written so that a NaN does not agree.
    relative = difference / abs(scale)
    return FieldComparison(field, published, recomputed, relative, tolerance, relative <= tolerance)
