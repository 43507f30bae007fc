"""Records of a trace beside a run from traces and fitted files that were made again, on another processor or later.

Their bytes are others: a model's keys differ in the last bits, so eigenvectors do, and a value next to the edge of a
code takes the other code. What a record says of an error comes out again within `REMADE_TOLERANCE` all the same, where
the transform is computed in closed form. A trained one follows another path from the first other bit on.
"""

from typing import TYPE_CHECKING

from producer.errors import RecordError
from producer.interval import paired_interval
from producer.rederive import Comparison
from producer.rederive_v2 import REPORTED, compare_v2
from producer.trace_protocol import sequence_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from producer.fitted_arms import FittedArm
    from producer.record_parts import RecordV2
    from producer.trace.files import Trace

__all__ = ["REMADE_TOLERANCE", "REPORTED_REMADE", "compare_remade", "require_remade", "trained_arms"]

#: Largest relative difference of a trial's error that agrees; on two processors 900 of SmolLM2 differed by at most
#: 8·10⁻³ (docs/balanced.md).
REMADE_TOLERANCE = 2e-2

REPORTED_REMADE = (
    "digests of traces, transforms and fitted files, which were made again",
    "errors of the calibration but for the clip that they choose",
    *REPORTED,
)
"""What a run from traces and files that were made again does not give again."""

#: Constructions that are found by steps of training.
_TRAINED = frozenset({"optr", "optr-general"})


def trained_arms(record: "RecordV2") -> list[str]:
    """Return the arms of a record whose transforms were trained."""
    return [one.id for one in record.recipe.rotations or () if one.construction in _TRAINED]


def require_remade(
    record: "RecordV2", calibration: "Trace", evaluation: "Trace", fitted: "Mapping[str, FittedArm]"
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
    for trace, ids, where in (
        (calibration, record.protocol.calibration_queries or (), "calibration"),
        (evaluation, record.protocol.evaluation_queries or (), "evaluation"),
    ):
        if trace.model.weights_sha256 != stated:
            raise RecordError(
                f"{trace.folder}: found a model with the weights {trace.model.weights_sha256}, allowed: {stated}"
            )
        found = [sequence_id(sequence) for sequence in trace.sequences]
        if found != list(ids):
            raise RecordError(
                f"{trace.folder}: found the sequences {', '.join(found)}, allowed: {', '.join(ids)}, which the "
                f"record names as the {where}"
            )
    texts = {sequence.token_ids_sha256 for sequence in calibration.sequences}
    for name, arm in fitted.items():
        if {sequence.token_ids_sha256 for sequence in arm.calibration} != texts:
            names = ", ".join(sequence_id(sequence) for sequence in arm.calibration)
            raise RecordError(
                f"arm {name!r}: found a file fitted to {names}, allowed: the sequences of the calibration"
            )


def compare_remade(published: "RecordV2", again: "RecordV2") -> list[Comparison]:
    """Return the comparisons of what comes out again from traces and files that were made again.

    Parameters
    ----------
    published : RecordV2
        As read; with measurements.
    again : RecordV2
        Of a run from the other traces and files.

    Returns
    -------
    list of Comparison
        All that `compare_v2` compares but for digests of transforms, the table of the clip search, and trained arms;
        then which of the other arms the calibration selects, and whether each claim on errors stands, whoever makes it.
    """
    skipped = _left_out(published)
    compared = [
        each
        for each in compare_v2(published, again, REMADE_TOLERANCE)
        if not each.field.startswith(skipped)
        and not each.field.endswith(("/key_sha256", "/value_sha256"))
        and "/calibration/query_nmse/" not in each.field
    ]
    return [*compared, *_selection(published, again), *_claims(published, again)]


def _left_out(record: "RecordV2") -> tuple[str, ...]:
    """Return how the pointers start of what hangs on trained arms."""
    trained, measured = trained_arms(record), record.measurements
    arms = () if measured is None else measured.arms
    places = [place for place, arm in enumerate(arms) if arm.rotation in trained]
    return ("/measurements/selected", *(f"/measurements/arms/{place}/" for place in places))


def _selection(published: "RecordV2", again: "RecordV2") -> "Iterator[Comparison]":
    """Give the comparison of the untrained arm that the calibration selects."""
    out = {published.recipe.baseline, *trained_arms(published)}
    selected = []
    for record in (published, again):
        arms = () if record.measurements is None else record.measurements.arms
        best = {arm.rotation: min(arm.calibration.objective) for arm in arms if arm.rotation not in out}
        selected.append(min(best, key=best.__getitem__) if best else "none")
    if selected != ["none", "none"]:
        stated, made = selected
        yield Comparison("/measurements/selected", stated, made, None, 0.0, stated == made)


def _claims(published: "RecordV2", again: "RecordV2") -> "Iterator[Comparison]":
    """Give for each claim on errors whether it stands on the trials that were made again."""
    arms = () if again.measurements is None else again.measurements.arms
    trials = {arm.rotation: arm.trials.nmse for arm in arms}
    for place, claim in enumerate(published.claims):
        if claim.metric != "output_nmse":
            continue
        found = "no such arms"
        if {claim.baseline, claim.candidate} <= trials.keys():
            pair = trials[claim.baseline], trials[claim.candidate]
            low, _ = paired_interval(*pair, level=claim.level, resamples=claim.resamples, seed=claim.seed)
            found = "stands" if low > 0 else "not shown"
        yield Comparison(f"/claims/{place}", "stands", found, None, 0.0, found == "stands")
