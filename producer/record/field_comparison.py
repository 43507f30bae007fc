"""Comparison of a record's field with its recomputed value."""

from dataclasses import dataclass

__all__ = ["NMSE_TOLERANCE", "FieldComparison"]

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
