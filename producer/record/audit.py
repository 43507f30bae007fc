"""Audit of a computation's soundness: each finding is computed by running, and carries the number that shows it.

An audit looks at the *computation* that a record names, a slice and a protocol, and at what the record claims
of it; it knows no record. Codes are stable: none changes its meaning and none is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.experiment.slice.clip_search import next_ratios
from producer.experiment.slice.protocol import ProtocolRun, RunResult, run_and_keep, select
from producer.numerics.mt19937 import NormalStream
from producer.record.computation import computation
from producer.record.field_comparison import NULL_CHECK_BOUND
from producer.record.reading import RecordV2

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.backend.base import Backend
    from producer.experiment.slice.protocol import Arm
    from producer.experiment.slice.spec import SliceProtocol, SliceSpec
    from producer.numerics.arrays import Float32Array
    from producer.record.v1 import Record
    from producer.system.progress import Progress

__all__ = ["CODES", "Claims", "Finding", "audit", "audit_record", "claims_of"]

CODES = {
    "AUDIT_WO_NOT_INVERTED": "A rotation without any quantization changes the output.",
    "AUDIT_DUPLICATE_ROTATIONS": "Rotations that count as different candidates are one, up to sign.",
    "AUDIT_SELECTION_READS_EVALUATION": "The selected rotation depends on the evaluation, not only on the calibration.",
    "AUDIT_UNPAIRED_QUERIES": "Candidates are compared on different evaluation queries.",
    "AUDIT_CLIP_AT_GRID_EDGE": "A reported clip ratio is the last of its grid, and a smaller one is better.",
    "AUDIT_LOSES_TO_ZERO": "The selected candidate's error is not below that of an output of zeros.",
    "AUDIT_ZERO_PASSES_QUALITY": "An output of zeros passes the quality check.",
}

_SAME_ROTATION = 1e-5
_PROBES = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and what shows it.

    Attributes
    ----------
    code : str
        One of `CODES`.
    message : str
        One sentence with the numbers in it.
    figures : dict
        The numbers by name.
    """

    code: str
    message: str
    figures: dict[str, float | int]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a record says came out.

    Attributes
    ----------
    selected : int
        Index of the selected rotation.
    clip_ratios : dict
        Arm → clip ratio.
    """

    selected: int
    clip_ratios: dict[int, float]


def claims_of(result: RunResult) -> Claims:
    """Return what a record of this run would claim."""
    return Claims(result.selected, {arm.index: arm.clip_ratio for arm in result.arms})


@dataclass(frozen=True, slots=True)
class _Evidence:
    """All that a check may look at."""

    run: ProtocolRun
    result: RunResult
    claims: Claims

    @property
    def selected(self) -> Arm:
        return self.result.arms[self.claims.selected]


def _check_output_rotation(evidence: _Evidence) -> Finding | None:
    """Compare the null check with the one that the inverse rotation of W_O gives."""
    run = evidence.run
    nulls = {arm.index: run.null_nmse(arm, run.protocol.output_rotation) for arm in run.arms}
    worst = max(nulls, key=lambda index: nulls[index])
    if nulls[worst] <= NULL_CHECK_BOUND:
        return None
    inverse = run.null_nmse(run.arms[worst], "inverse")
    # Below the bound it is rounding alone, whose digits are those of a machine.
    other = f"at most {NULL_CHECK_BOUND:g}, the bound" if inverse <= NULL_CHECK_BOUND else f"{inverse:.4g}"
    return Finding(
        "AUDIT_WO_NOT_INVERTED",
        f"rotation {worst} without quantization gives NMSE {nulls[worst]:.4g}; with W_O rotated by the inverse {other}",
        {
            "rotation": worst,
            "null_nmse": nulls[worst],
            "null_nmse_inverse": inverse,
            "bound": NULL_CHECK_BOUND,
        },
    )


def _check_duplicates(evidence: _Evidence) -> Finding | None:
    """Compare what all rotations do to a few random vectors, up to one sign for all of them."""
    d = evidence.result.spec.head_dim
    probes = NormalStream(1).normals(_PROBES * d).reshape(_PROBES, d)
    distinct: list[Float32Array] = []
    first_of: dict[int, int] = {}
    for arm in evidence.result.arms[1:]:
        image = arm.rotation.rotate(probes)
        for place, other in enumerate(distinct):
            if min(np.abs(image - other).max(), np.abs(image + other).max()) <= _SAME_ROTATION:
                first_of[arm.index] = place
                break
        else:
            first_of[arm.index] = len(distinct)
            distinct.append(image)
    if len(distinct) == len(first_of):
        return None
    objectives = [arm.curve.best_objective for arm in evidence.result.arms[1:]]
    spread = max(objectives) / min(objectives) - 1
    return Finding(
        "AUDIT_DUPLICATE_ROTATIONS",
        f"{len(first_of)} rotations are {len(distinct)} up to sign; their calibration objectives differ by "
        f"{spread:.2g} relative",
        {"rotations": len(first_of), "distinct": len(distinct), "objective_spread": spread},
    )


def _check_selection(evidence: _Evidence) -> Finding | None:
    """Repeat the selection with the evaluation reversed: a sound one gives the same candidate."""
    arms = evidence.result.arms
    calibration = [arm.curve.best_objective for arm in arms]
    evaluation = [arm.nmse_summary.mean for arm in arms]
    turned = [evaluation[0], *(-value for value in evaluation[1:])]
    protocol = evidence.run.protocol
    reads = select(protocol, calibration, evaluation) != select(protocol, calibration, turned)
    best = min(range(1, len(arms)), key=lambda index: calibration[index])
    selected = evidence.claims.selected
    if not reads and selected == best:
        return None
    how = "changes when the evaluation alone is changed" if reads else "is not the best of the calibration"
    return Finding(
        "AUDIT_SELECTION_READS_EVALUATION",
        f"the selected rotation {how}: rotation {selected} has calibration objective {calibration[selected]:.9g} "
        f"and evaluation mean {evaluation[selected]:.6g}, rotation {best} has the least calibration objective, "
        f"{calibration[best]:.9g}, and evaluation mean {evaluation[best]:.6g}",
        {
            "selected": selected,
            "selected_calibration": calibration[selected],
            "selected_evaluation": evaluation[selected],
            "calibration_best": best,
            "calibration_best_calibration": calibration[best],
            "calibration_best_evaluation": evaluation[best],
        },
    )


def _check_pairing(evidence: _Evidence) -> Finding | None:
    """Count the different sets of evaluation queries."""
    sets = len({arm.queries_sha256 for arm in evidence.result.arms})
    if sets == 1:
        return None
    arms = len(evidence.result.arms)
    selected = evidence.selected.nmse_summary
    return Finding(
        "AUDIT_UNPAIRED_QUERIES",
        f"{arms} candidates were evaluated on {sets} different sets of {len(evidence.selected.nmse)} queries; the "
        f"deviation over one set is {selected.stddev:.4g} at a mean of {selected.mean:.4g}",
        {"candidates": arms, "query_sets": sets, "mean": selected.mean, "stddev": selected.stddev},
    )


def _check_clip(evidence: _Evidence) -> Finding | None:
    """Extend the grid below the reported ratio of the baseline and of the selected rotation."""
    run, last = evidence.run, evidence.result.grid[-1]
    for arm in (evidence.result.arms[0], evidence.selected):
        if evidence.claims.clip_ratios.get(arm.index) != last:
            continue
        at_edge = arm.curve.objectives[arm.curve.ratios.index(last)]
        ratios: list[float] = []
        beyond: list[float] = []
        # On until the objective rises again, so that the number shows how far off the edge was.
        while more := next_ratios(ratios[-1] if ratios else last, run.protocol.clips):
            beyond += run.objectives(arm, more)
            ratios += more
            if beyond[-1] > min(beyond):
                break
        if not beyond or min(beyond) >= at_edge:
            continue
        best = beyond.index(min(beyond))
        return Finding(
            "AUDIT_CLIP_AT_GRID_EDGE",
            f"rotation {arm.index} reports clip ratio {last:g}, the last of its grid, with calibration objective "
            f"{at_edge:.6g}; {ratios[0]:g} gives {beyond[0]:.6g}, and {ratios[best]:g} gives {beyond[best]:.6g}",
            {
                "rotation": arm.index,
                "clip_ratio": last,
                "objective": at_edge,
                "next_ratio": ratios[0],
                "next_objective": beyond[0],
                "best_ratio": ratios[best],
                "best_objective": beyond[best],
            },
        )
    return None


def _zero_nmse(evidence: _Evidence) -> float:
    """Return the mean NMSE of an output of zeros on the selected rotation's evaluation queries."""
    reference = evidence.run.evaluation_reference[evidence.claims.selected]
    return float(evidence.run.backend.nmse(np.zeros_like(reference), reference).mean())


def _check_zero(evidence: _Evidence) -> Finding | None:
    """Compare the selected rotation with an output of zeros."""
    zero = _zero_nmse(evidence)
    mean, baseline = evidence.selected.nmse_summary.mean, evidence.result.arms[0].nmse_summary.mean
    if mean < zero:
        return None
    return Finding(
        "AUDIT_LOSES_TO_ZERO",
        f"the selected rotation has mean NMSE {mean:.6g} and the baseline {baseline:.6g}; an output of zeros has "
        f"{zero:.6g}",
        {"selected_nmse": mean, "baseline_nmse": baseline, "zero_nmse": zero},
    )


def _check_quality(evidence: _Evidence) -> Finding | None:
    """Put an output of zeros through the quality check."""
    zero = _zero_nmse(evidence)
    if not evidence.result.passes(zero):
        return None
    threshold = evidence.run.protocol.quality_threshold
    return Finding(
        "AUDIT_ZERO_PASSES_QUALITY",
        f"an output of zeros has NMSE {zero:.6g} and passes the quality check, whose threshold is {threshold:g}",
        {"zero_nmse": zero, "threshold": threshold},
    )


_CHECKS: tuple[Callable[[_Evidence], Finding | None], ...] = (
    _check_output_rotation,
    _check_duplicates,
    _check_selection,
    _check_pairing,
    _check_clip,
    _check_zero,
    _check_quality,
)


def audit(
    spec: SliceSpec,
    protocol: SliceProtocol,
    backend: Backend,
    *,
    progress: Progress,
    claims: Callable[[RunResult], Claims] = claims_of,
) -> list[Finding]:
    """Return the soundness findings of a computation.

    Parameters
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    backend : Backend
    progress : callable
        See `producer.system.progress.Progress`.
    claims : callable
        Result of the run → what is claimed of it; by default what came out.

    Returns
    -------
    list of Finding
        In the order of `CODES`; empty when nothing was found.

    Notes
    -----
    Limits: what a protocol does not name is not looked at, and an audit says nothing of the figures
    themselves; that is `producer.record.rederive_v1`.
    """
    run, result = run_and_keep(spec, protocol, backend, progress=progress, null_check=False)
    evidence = _Evidence(run, result, claims(result))
    return [finding for check in _CHECKS if (finding := check(evidence)) is not None]


def _claims_of_record(record: Record | RecordV2) -> Claims:
    """Return what a record claims; a selection that is no number of a rotation is 0, which is no candidate."""
    if not isinstance(record, RecordV2):
        rows = record.metrics.candidates or ()
        return Claims(record.metrics.selected_rotation, {row.rotation: row.clip_ratio for row in rows})
    if record.measurements is None:
        return Claims(0, {})
    places = {rotation.id: index for index, rotation in enumerate(record.recipe.rotations or ())}
    ratios = {places.get(arm.rotation, 0): arm.clip_ratio for arm in record.measurements.arms}
    return Claims(places.get(record.measurements.selected, 0), ratios)


def audit_record(record: Record | RecordV2, backend: Backend, progress: Progress) -> list[Finding]:
    """Return the soundness findings of the computation that a record names, with what the record claims.

    Raises
    ------
    RecordError
        If the record names no computation that is known here.
    """
    spec, protocol = computation(record)
    claimed = _claims_of_record(record)
    if not 1 <= claimed.selected <= protocol.num_rotations:
        # A selection that is no candidate cannot be looked at; what came out is.
        return audit(spec, protocol, backend, progress=progress)
    return audit(spec, protocol, backend, progress=progress, claims=lambda _: claimed)
