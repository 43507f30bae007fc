"""Re-derivation from regenerated inputs: a record compared with a run whose traces and fits were rebuilt.

Their bytes are others: a model's keys differ in the last bits, so eigenvectors do, and a value next to the edge of a
code takes the other code. What a record says of an error comes out again within `REMADE_TOLERANCE` all the same, where
the transform is computed in closed form and the linear algebra gives eigenvectors the same signs. A trained transform
follows another path from the first other bit on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from producer.errors import RecordError
from producer.experiment.trace.arm_protocol import sequence_id, sequence_ids
from producer.numerics.contract_bootstrap import paired_interval
from producer.record.field_comparison import FieldComparison
from producer.record.rederive_v2 import REPORTED, compare_v2
from producer.record.v2_trace import fitted_digests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from producer.experiment.trace.fitted_arms import FittedArm
    from producer.record.reading import RecordV2
    from producer.record.v2 import ComputedV2
    from producer.trace.files import Trace

__all__ = ["REMADE_TOLERANCE", "REPORTED_REMADE", "compare_remade", "require_remade", "trained_arms"]

#: Largest relative difference of a trial's error that agrees; on two processors 900 of SmolLM2 differed by at most
#: 8·10⁻³ (docs/results/balanced.md).
REMADE_TOLERANCE = 2e-2

REPORTED_REMADE = (
    "digests of traces, transforms and fitted files, which were rebuilt",
    "errors of the calibration but for the clip that they choose",
    *REPORTED,
)
"""Fields that a run from rebuilt traces and files cannot recompute."""

# NMSE of an output of zeros.
_ZERO = 1.0

#: Constructions that are found by steps of training.
_TRAINED = frozenset({"optr", "optr-general"})


def trained_arms(record: RecordV2, fitted: Mapping[str, FittedArm] | None = None) -> list[str]:
    """Return the arms of a record whose transforms were trained.

    Parameters
    ----------
    record : RecordV2
    fitted : mapping of str to FittedArm, optional
        Where the record says `file`, the given file tells.
    """
    given = fitted or {}

    def is_trained(name: str, construction: str) -> bool:
        if construction != "file" or name not in given:
            return construction in _TRAINED
        return any(layer.key.kind in _TRAINED for layer in given[name].layers.values())

    return [one.id for one in record.recipe.rotations or () if is_trained(one.id, one.construction)]


def require_remade(
    record: RecordV2, calibration: Trace, evaluation: Trace, fitted: Mapping[str, FittedArm]
) -> None:
    """Raise unless traces and files are of what a record names, whatever their bytes.

    Parameters
    ----------
    record : RecordV2
        Of a trace.
    calibration, evaluation : Trace
    fitted : mapping of str to FittedArm

    Raises
    ------
    RecordError
        If the model has other weights, a trace other sequences, or a file was fitted to others than the calibration's.

    Notes
    -----
    A record names sequences by text, place and length, and a file by its digest alone: that a text of that name is the
    same text, and a file of the same scheme, shows in the figures.
    """
    stated = "" if record.workload.trace is None else record.workload.trace.weights_sha256
    named = sequence_ids(calibration.sequences, evaluation.sequences)
    for trace, found, ids, where in (
        (calibration, named[0], record.protocol.calibration_queries or (), "calibration"),
        (evaluation, named[1], record.protocol.evaluation_queries or (), "evaluation"),
    ):
        if trace.model.weights_sha256 != stated:
            raise RecordError(
                f"{trace.folder}: found a model with the weights {trace.model.weights_sha256}, allowed: {stated}"
            )
        if found != list(ids):
            raise RecordError(
                f"{trace.folder}: found the sequences {', '.join(found)}, allowed: {', '.join(ids)}, which the "
                f"record names as the {where}"
            )
    texts = {sequence.token_ids_sha256 for sequence in calibration.sequences}
    for name in fitted_digests(record):
        if name not in fitted:
            continue
        if {sequence.token_ids_sha256 for sequence in fitted[name].calibration} != texts:
            own, allowed = (
                ", ".join(map(sequence_id, sequences))
                for sequences in (fitted[name].calibration, calibration.sequences)
            )
            raise RecordError(f"arm {name!r}: found a file fitted to {own}, allowed: fitted to {allowed}")


def compare_remade(
    published: RecordV2, again: ComputedV2, trained_names: Sequence[str]
) -> list[FieldComparison]:
    """Return the comparisons of a record's fields with a run from rebuilt traces and files.

    Parameters
    ----------
    published : RecordV2
        As read; with measurements, and not refused by the adjudicator: what follows from its own figures is not looked
        at here.
    again : ComputedV2
        Of a run from the other traces and files.
    trained_names : sequence of str
        Arms whose transforms were trained (`trained_arms`).

    Returns
    -------
    list of FieldComparison
        What `compare_v2` compares but for digests of transforms and the table of the clip search. Of trained arms only
        queries and denominators; where there are any, the selection among the others. Then, of each claim on errors,
        whether it holds on the new trials, and its value: within `REMADE_TOLERANCE` of the baseline's error, or
        where an arm was trained within the width of the new interval.
    """
    trained = set(trained_names)
    arms = () if published.measurements is None else published.measurements.arms
    own = tuple(f"/measurements/arms/{place}/" for place, arm in enumerate(arms) if arm.rotation in trained)
    compared = [
        each
        for each in compare_v2(published, again, REMADE_TOLERANCE)
        if _is_compared(each.field, of_trained=each.field.startswith(own), has_trained=bool(trained))
    ]
    if trained:
        compared += _selection(published, again, trained)
    return [*compared, *_claims(published, again, trained)]


def _is_compared(field: str, *, of_trained: bool, has_trained: bool) -> bool:
    if field.endswith(("/key_sha256", "/value_sha256")) or "/calibration/query_nmse/" in field:
        return False
    if of_trained:
        return "/trials/query" in field or "/trials/denominator/" in field or field.endswith("/rotation")
    return field != "/measurements/selected" or not has_trained


def _selection(published: RecordV2, again: ComputedV2, trained: Collection[str]) -> Iterator[FieldComparison]:
    """Give the comparison of the arm that the calibration selects among those that were not trained."""
    out = {published.recipe.baseline, *trained}
    selected = []
    for record in (published, again):
        arms = () if record.measurements is None else record.measurements.arms
        best = {
            arm.rotation: min(arm.calibration.objective, default=math.inf)
            for arm in arms
            if arm.rotation not in out
        }
        selected.append(min(best, key=best.__getitem__) if best else "none")
    if selected != ["none", "none"]:
        stated, made = selected
        field = "/measurements/arms/*/calibration/objective"
        yield FieldComparison(field, stated, made, None, 0.0, stated == made)


def _claims(published: RecordV2, again: ComputedV2, trained: Collection[str]) -> Iterator[FieldComparison]:
    """Give the comparisons of the claims on errors."""
    arms = again.measurements.arms
    trials = {arm.rotation: arm.trials.nmse for arm in arms}
    for place, claim in enumerate(published.claims):
        if claim.metric != "output_nmse":
            continue
        field = f"/claims/{place}"
        if not {claim.baseline, claim.candidate} <= trials.keys():
            yield FieldComparison(field, claim.candidate, "no such arm", None, 0.0, agrees=False)
            continue
        pair = trials[claim.baseline], trials[claim.candidate]
        baseline, candidate = (math.fsum(nmse) / len(nmse) for nmse in pair)
        low, high = paired_interval(*pair, level=claim.level, resamples=claim.resamples, seed=claim.seed)
        stated, found = _stands(claim.low, 0.0), _stands(low, candidate)
        yield FieldComparison(field, stated, found, None, 0.0, stated == found)
        made = baseline - candidate
        difference = abs(claim.value - made) / (baseline or 1.0)
        is_trained = claim.baseline in trained or claim.candidate in trained
        allowed = (high - low) / (baseline or 1.0) if is_trained else REMADE_TOLERANCE
        yield FieldComparison(f"{field}/value", claim.value, made, difference, allowed, difference <= allowed)


def _stands(low: float, candidate: float) -> str:
    """Return what becomes of a claim: its interval is above 0, and the arm better than an output of zeros."""
    return "stands" if low > 0 and candidate < _ZERO else "not shown"
