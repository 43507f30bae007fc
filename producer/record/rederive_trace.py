"""Re-derivation of records of a trace from the traces that they name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from producer.errors import RecordError
from producer.experiment.trace.compare_arms import compare_arms
from producer.record.field_comparison import FieldComparison, compare_exactly
from producer.record.rederive_remade import REPORTED_REMADE, compare_remade, require_remade, trained_arms
from producer.record.rederive_v2 import RECOMPUTED, REPORTED, Rederivation, compare_v2
from producer.record.v2_trace import (
    computed_trace,
    fitted_digests,
    protocol_of_trace,
    require_same_traces,
)
from producer.scheme.fit import fit_layer
from producer.system.processes import fork_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from producer.experiment.trace.arm_protocol import TraceProtocol
    from producer.experiment.trace.fitted_arms import FittedArm
    from producer.record.reading import RecordV2
    from producer.record.v2 import ComputedV2
    from producer.system.progress import Progress
    from producer.trace.files import Trace
    from producer.transform.transform_file import LayerTransforms

__all__ = ["rederive_traces"]

_WORKLOAD = ("tokens", "kv_heads", "query_heads", "head_dimension", "output_dimension")
_TRACE = ("model_id", "weights_sha256", "layer", "head")
_RECIPE = ("method", "group_size", "key_granularity", "value_granularity", "rotation_count", "clip_grid_size")


def _sizes(stated: RecordV2, made: ComputedV2) -> Iterator[FieldComparison]:
    """Give the comparisons of what the traces fix and a synthetic slice's record states as its input."""
    for name in _WORKLOAD:
        yield compare_exactly(
            f"/workload/{name}", getattr(stated.workload, name), getattr(made.workload, name)
        )
    for name in _TRACE:
        pair = (getattr(record.workload.trace, name) for record in (stated, made))
        yield compare_exactly(f"/workload/trace/{name}", *pair)
    for name in _RECIPE:
        yield compare_exactly(f"/recipe/{name}", getattr(stated.recipe, name), getattr(made.recipe, name))


def _require_files(record: RecordV2, given: Mapping[str, FittedArm], *, remade: bool) -> None:
    """Raise unless the file of every fitted arm is given, the very file where it was not rebuilt."""
    for name, digest in fitted_digests(record).items():
        found = given[name].sha256 if name in given else "none"
        if found == "none" or (found != digest and not remade):
            rebuilt = " or a rebuilt one" if remade else ""
            raise RecordError(
                f"arm {name!r}: found {found} for its file, allowed: the file of SHA-256 {digest}{rebuilt}, "
                "with --fitted"
            )


def _rederivation(record: RecordV2, again: ComputedV2, names: list[str], *, remade: bool) -> Rederivation:
    sizes = list(_sizes(record, again))
    if not remade:
        return Rederivation([*sizes, *compare_v2(record, again)], RECOMPUTED, REPORTED)
    # The name of a model's file is no property of the model. The method is that of the selected arm.
    out = {"/workload/trace/model_id", *(["/recipe/method"] if names else [])}
    sizes = [each for each in sizes if each.field not in out]
    trained = [f"errors of the trained arm {name}" for name in names]
    return Rederivation(
        [*sizes, *compare_remade(record, again, names)],
        RECOMPUTED,
        (*trained, *REPORTED_REMADE),
        _means(record, again),
    )


def _means(record: RecordV2, again: ComputedV2) -> dict[str, tuple[float, float]]:
    """Return the mean error over the trials by arm, in a record and in its run."""
    stated, made = (
        {arm.rotation: math.fsum(arm.trials.nmse) / len(arm.trials.nmse) for arm in one.measurements.arms}
        for one in (record, again)
        if one.measurements is not None
    )
    return {name: (mean, made[name]) for name, mean in stated.items() if name in made}


def _earlier_balanced(
    record: RecordV2, protocol: TraceProtocol, calibration: Trace, layer_idx: int
) -> dict[str, dict[int, LayerTransforms]]:
    """Return the transforms of an arm `balanced` that has those of `balanced-plain`, as it had before, or nothing.

    The digest of the record tells; an arm from a file has its own.
    """
    stated = {one.id: one.key_sha256 for one in record.recipe.rotations or ()}
    if "balanced" not in stated or "balanced" in fitted_digests(record):
        return {}
    traced = [calibration.layer(layer_idx, place) for place in range(len(calibration.sequences))]
    plain = fit_layer(protocol.scheme("balanced-plain"), traced).rotations
    return {"balanced": {layer_idx: plain}} if plain.key.sha256 == stated["balanced"] else {}


def rederive_traces(
    records: Sequence[RecordV2],
    calibration: Trace,
    evaluation: Trace,
    *,
    processes: int,
    progress: Progress,
    fitted: Mapping[str, FittedArm] | None = None,
    remade: bool = False,
) -> list[Rederivation]:
    """Return what a run of each record's comparison shows.

    Parameters
    ----------
    records : sequence of RecordV2
        Of traces, with measurements.
    calibration, evaluation : Trace
    processes : int
        Records are dealt out to so many processes; it changes no figure.
    progress : Progress
    fitted : mapping of str to FittedArm, optional
    remade : bool
        Whether traces and files may be others than those that the records name by digest, rebuilt from the same model
        and sequences; `producer.record.rederive_remade` says what is compared then.

    Raises
    ------
    RecordError
        If a record names no comparison that is known here, other traces, or a fitted file that is not given;
        remade, if they are of another model or other sequences.
    SpecError
        If the traces do not fit one another.
    """
    given = fitted or {}
    for record in records:
        if remade:
            require_remade(record, calibration, evaluation, given)
        else:
            require_same_traces(record, calibration, evaluation)
        _require_files(record, given, remade=remade)
    protocols = [protocol_of_trace(record) for record in records]

    def work(number: int) -> Rederivation:
        index = number - 1
        record, digests = records[index], fitted_digests(records[index])
        trace = record.workload.trace
        layer_idx = 0 if trace is None else trace.layer
        (comparison,) = compare_arms(
            protocols[index],
            calibration,
            evaluation,
            [layer_idx],
            processes=1,
            progress=lambda _done, _total, _what: None,
            fitted={name: given[name].layers for name in digests}
            | _earlier_balanced(record, protocols[index], calibration, layer_idx),
        )
        # A record from before there was `file` names the construction of an arm from a file.
        unnamed = {one.id for one in record.recipe.rotations or () if one.construction == "file"}
        again = computed_trace(protocols[index], comparison, calibration, evaluation, unnamed)
        return _rederivation(record, again, trained_arms(record, given), remade=remade)

    return fork_map(work, range(1, len(records) + 1), processes, progress=progress, unit="record")
