"""Re-derivation of v2 records, trial by trial, and the fields that cannot be recomputed.

A figure is *re-derived* when this run gives it again, *recomputed* when it follows from other figures of the record
(the adjudicator does that), and *only reported* when it cannot be recomputed: times and hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer.experiment.slice.protocol import run_protocol
from producer.record.field_comparison import (
    NMSE_TOLERANCE,
    NULL_CHECK_BOUND,
    FieldComparison,
    compare_exactly,
    compare_numbers,
)
from producer.record.v2_slice import computation_of_v2, computed_v2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from producer.backend.base import Backend
    from producer.record.v2 import ComputedV2, RecordV2
    from producer.system.progress import Progress

__all__ = ["RECOMPUTED", "REPORTED", "Rederivation", "compare_v2", "rederive_v2"]

RECOMPUTED = (
    "bits per element, from the stored bytes",
    "summaries, from the trials",
    "calibration objectives, from the values of the queries",
    "selection and chosen clips, from the objectives",
    "values and intervals of claims, from the trials and the seed",
    "witness",
)
"""What follows from other figures of the record: `kvint2eval adjudicate` recomputes it."""

REPORTED = (
    "decode times and their medians",
    "clock, warm-up and repeats",
    "environment",
    "digests of paper, kernels and weights",
)
"""Fields that cannot be recomputed: times, environment, foreign digests."""

_ERRORS = ("numerator", "denominator", "key_part", "value_part", "cross_part")


@dataclass(frozen=True, slots=True)
class Rederivation:
    """What a run of a record's computation shows.

    Attributes
    ----------
    rederived : list of FieldComparison
        Figures that were recomputed.
    recomputed, reported : tuple of str
        What the other figures rest on.
    means : dict of str to tuple of float, optional
        By arm, the mean NMSE that the record states and that of the run, where not all arms are compared.
    """

    rederived: list[FieldComparison]
    recomputed: tuple[str, ...]
    reported: tuple[str, ...]
    means: dict[str, tuple[float, float]] | None = None


def compare_v2(
    published: RecordV2, recomputed: ComputedV2, tolerance: float = NMSE_TOLERANCE
) -> list[FieldComparison]:
    """Return the comparisons of all deterministic figures, in the order of the record.

    Parameters
    ----------
    published : Record
        As read; with measurements.
    recomputed : ComputedV2
        What a run of the same computation gives.
    tolerance : float
        Largest relative difference of an error that agrees.
    """
    found = list(_recipe(published, recomputed))
    theirs, ours = published.measurements, recomputed.measurements
    if theirs is None or ours is None:
        return [*found, compare_exactly("/measurements", theirs is None, ours is None)]
    found.append(compare_exactly("/measurements/selected", theirs.selected, ours.selected))
    found += [
        compare_exactly(
            f"/measurements/storage/{name}", getattr(theirs.storage, name), getattr(ours.storage, name)
        )
        for name in ("codes_bytes", "metadata_bytes", "window_bytes")
    ]
    checks = {check.rotation: check.nmse for check in theirs.null_checks}
    for index, check in enumerate(ours.null_checks):
        field, stated = f"/measurements/null_checks/{index}/nmse", checks.get(check.rotation)
        difference = None if stated is None else abs(stated - check.nmse)
        agrees = difference is not None and difference <= NULL_CHECK_BOUND
        found.append(FieldComparison(field, stated, check.nmse, difference, NULL_CHECK_BOUND, agrees))
    arms = {arm.rotation: (index, arm) for index, arm in enumerate(theirs.arms)}
    for index, arm in enumerate(ours.arms):
        if arm.rotation not in arms:
            found.append(compare_exactly(f"/measurements/arms/{index}/rotation", "missing", arm.rotation))
        else:
            found += _arm(
                f"/measurements/arms/{arms[arm.rotation][0]}", arms[arm.rotation][1], arm, tolerance
            )
    return found


def _recipe(published: RecordV2, recomputed: ComputedV2) -> Iterator[FieldComparison]:
    theirs, ours = published.recipe, recomputed.recipe
    if theirs.dialect is not None and ours.dialect is not None:
        field = "/recipe/dialect/fingerprint_sha256"
        yield compare_exactly(field, theirs.dialect.fingerprint_sha256, ours.dialect.fingerprint_sha256)
    yield compare_exactly("/recipe/clip_grid", theirs.clip_grid, ours.clip_grid)
    pairs = zip(theirs.rotations or (), ours.rotations or (), strict=False)
    for index, (stated, made) in enumerate(pairs):
        for name in ("id", "construction", "seed", "key_sha256", "value_sha256"):
            yield compare_exactly(
                f"/recipe/rotations/{index}/{name}", getattr(stated, name), getattr(made, name)
            )
    for name in ("calibration_queries", "evaluation_queries", "arms_share_queries", "selection_reads"):
        yield compare_exactly(
            f"/protocol/{name}", getattr(published.protocol, name), getattr(recomputed.protocol, name)
        )


def _arm(field: str, stated: Any, made: Any, tolerance: float) -> Iterator[FieldComparison]:
    yield compare_exactly(f"{field}/clip_ratio", stated.clip_ratio, made.clip_ratio)
    rows = zip(stated.calibration.query_nmse, made.calibration.query_nmse, strict=False)
    for index, (theirs, ours) in enumerate(rows):
        yield from _column(f"{field}/calibration/query_nmse/{index}", theirs, ours, ours, tolerance)
    yield compare_exactly(f"{field}/trials/query", stated.trials.query, made.trials.query)
    # A part can be small beside the others: its rounding is that of the largest.
    scales = [key + value for key, value in zip(made.trials.key_part, made.trials.value_part, strict=True)]
    for name in ("nmse", *_ERRORS):
        theirs, ours = getattr(stated.trials, name), getattr(made.trials, name)
        is_part = name in ("key_part", "value_part", "cross_part")
        yield from _column(f"{field}/trials/{name}", theirs, ours, scales if is_part else ours, tolerance)


def _column(
    field: str,
    stated: Sequence[float],
    made: Sequence[float],
    scales: Sequence[float],
    tolerance: float,
) -> Iterator[FieldComparison]:
    for index in range(max(len(stated), len(made))):
        theirs, ours = (values[index] if index < len(values) else None for values in (stated, made))
        scale = scales[index] if index < len(scales) else 0.0
        yield compare_numbers(f"{field}/{index}", theirs, ours, tolerance, scale)


def rederive_v2(record: RecordV2, backend: Backend, progress: Progress) -> Rederivation:
    """Return what a run of the record's computation shows, trial by trial.

    Parameters
    ----------
    record : Record
    backend : Backend
    progress : callable
        See `producer.system.progress.Progress`.

    Raises
    ------
    RecordError
        If the record names no computation that is known here.
    """
    spec, protocol = computation_of_v2(record)
    result = run_protocol(spec, protocol, backend, progress=progress, null_check=True, keeps_errors=True)
    return Rederivation(compare_v2(record, computed_v2(result, backend)), RECOMPUTED, REPORTED)
