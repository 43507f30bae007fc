"""Re-derivation of v1 records: all that is deterministic is recomputed and compared field by field.

Times, hardware and the digests of other artifacts cannot be recomputed; they are only reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.experiment.slice.protocol import run_protocol
from producer.record.field_comparison import (
    NMSE_TOLERANCE,
    STDDEV_TOLERANCE,
    FieldComparison,
    compare_exactly,
    compare_numbers,
)
from producer.record.v1 import build_record, computation_of, witness_of

if TYPE_CHECKING:
    from producer.backend.base import Backend
    from producer.record.v1 import Record
    from producer.system.progress import Progress

__all__ = ["compare_records", "rederive"]


_NMSE_ROW = ("output_nmse_mean", "output_nmse_stddev")
_EXACT_ROW = ("clip_ratio", "task_accuracy_mean", "task_accuracy_stddev")
_EXACT_SUMMARY = ("candidate_count", "decode_trials", "selected_rotation", "cache_bytes")
_NMSE_SUMMARY = ("baseline_output_nmse", "candidate_output_nmse")
_ACCURACY_SUMMARY = ("baseline_task_accuracy", "candidate_task_accuracy")


def _compare(
    field: str, published: float | str | None, recomputed: float | str | None, tolerance: float = 0.0
) -> FieldComparison:
    if isinstance(published, str) or isinstance(recomputed, str):
        return compare_exactly(field, published, recomputed)
    return compare_numbers(field, published, recomputed, tolerance)


def compare_records(published: Record, recomputed: Record) -> list[FieldComparison]:
    """Return the comparisons of all deterministic fields, in the order of the record.

    Parameters
    ----------
    published : Record
        As read.
    recomputed : Record
        What `build_record` gives for a run of the same computation.
    """
    found: list[FieldComparison] = []
    if published.model.id == recomputed.model.id:
        found.append(_compare("/model/sha256", published.model.sha256, recomputed.model.sha256))
    theirs, ours = published.metrics, recomputed.metrics
    found += [
        _compare(f"/metrics/{name}", getattr(theirs, name), getattr(ours, name)) for name in _EXACT_SUMMARY
    ]
    by_rotation = {row.rotation: (place, row) for place, row in enumerate(theirs.candidates or ())}
    for row in ours.candidates or ():
        place, their = by_rotation.get(row.rotation, (row.rotation, None))
        for name in (*_NMSE_ROW, *_EXACT_ROW):
            tolerance = (
                NMSE_TOLERANCE if name in _NMSE_ROW else STDDEV_TOLERANCE if name.endswith("stddev") else 0.0
            )
            value = None if their is None else getattr(their, name)
            found.append(
                _compare(f"/metrics/candidates/{place}/{name}", value, getattr(row, name), tolerance)
            )
    for names, tolerance in ((_NMSE_SUMMARY, NMSE_TOLERANCE), (_ACCURACY_SUMMARY, 0.0)):
        found += [
            _compare(f"/metrics/{name}", getattr(theirs, name), getattr(ours, name), tolerance)
            for name in names
        ]
    # The witness covers the times, so it is the record's own digest that is recomputed.
    found.append(_compare("/witness_sha256", published.witness_sha256, witness_of(published)))
    return found


def rederive(record: Record, backend: Backend, progress: Progress) -> list[FieldComparison]:
    """Return the comparisons of a record with the same computation run here.

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
    spec, protocol = computation_of(record)
    result = run_protocol(spec, protocol, backend, progress=progress, null_check=False)
    return compare_records(record, build_record(result, backend.runtime))
