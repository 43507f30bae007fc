"""Comparison of rotations under one dialect on a trace's layer: clip search, selection, evaluation, null checks.

It makes the trials that a v2 record of a trace reports. A trial is one evaluation sequence: its last queries of all
query heads.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.experiment.trace.arm_protocol import DECODE_REPEATS, DECODE_WARMUP, sequence_ids
from producer.experiment.trace.output_error import OutputErrors, last_outputs
from producer.numerics.contract_bootstrap import MAX_TRIALS
from producer.numerics.nmse import TrialErrors, nmse_of_sums
from producer.scheme.calibration import LayerCalibration
from producer.scheme.fit import fit_layer
from producer.scheme.stored_cache import StoredCache, store_cache
from producer.system.processes import fork_map
from producer.trace.layer import LAST_QUERIES
from producer.trace.model_info import require_same_model
from producer.trace.texts import require_disjoint
from producer.transform.centring import center_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from producer.experiment.trace.arm_protocol import TraceProtocol
    from producer.experiment.trace.output_error import HeadErrors
    from producer.system.progress import Progress
    from producer.trace.files import Trace
    from producer.trace.layer import LayerTrace
    from producer.transform.transform_file import LayerTransforms

__all__ = ["LayerComparison", "TraceArm", "compare_arms", "null_nmse"]


@dataclass(slots=True, kw_only=True)
class TraceArm:
    """One arm on one layer.

    Attributes
    ----------
    id : str
    rotations : LayerTransforms
    clip_ratios : list of float
        The grid.
    query_nmse : list of list of float
        By clip ratio and calibration sequence.
    objective : list of float
        Their means, by clip ratio.
    clip_ratio : float
        The first one of the least objective.
    null_nmse : float
        Largest error of a calibration sequence when nothing is quantized.
    errors : TrialErrors
        By evaluation sequence.
    decode_us : list of float
        Mean time of a decode step over the stored cache, by evaluation sequence, µs of the host's clock.
    """

    id: str
    rotations: LayerTransforms
    clip_ratios: list[float]
    query_nmse: list[list[float]]
    objective: list[float]
    clip_ratio: float
    null_nmse: float
    errors: TrialErrors
    decode_us: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerComparison:
    """What was found on one layer.

    Attributes
    ----------
    layer_idx : int
    arms : list of TraceArm
        The baseline first.
    selected : int
        Place of the arm, not the baseline, with the least calibration objective.
    code_bytes, metadata_bytes, window_bytes : int
        Of the cache of one evaluation sequence; every arm stores the same.
    """

    layer_idx: int
    arms: list[TraceArm]
    selected: int
    code_bytes: int
    metadata_bytes: int
    window_bytes: int


def null_nmse(layer: LayerTrace, rotations: LayerTransforms) -> float:
    """Return what a transform alone does to the output of the last queries: Σ‖y' - y‖²/Σ‖y‖².

    Parameters
    ----------
    layer : LayerTrace
        With output weights.
    rotations : LayerTransforms

    Notes
    -----
    y' is attention in float32 over (k - μ) M and v M_V with queries q M⁻ᵀ and weights M_V⁻¹ W; y that of the layer in
    float64. So the unrotated attention itself has not 0 but the error of float32.
    """
    k = layer.k if rotations.key_mean is None else center_keys(layer.k, rotations.key_mean)
    turned = replace(
        layer,
        q=rotations.key.rotate_queries(layer.q),
        k=rotations.key.rotate(k),
        v=rotations.value.rotate(layer.v),
        w_o=rotations.value.fold_output(layer.w_o),  # type: ignore[arg-type]
    )
    plain = last_outputs(layer, np.float64)
    error = np.square(last_outputs(turned, np.float32) - plain).sum()
    return nmse_of_sums(float(error), float(np.square(plain).sum()))


def _nmse(errors: HeadErrors) -> float:
    return nmse_of_sums(math.fsum(errors.error), math.fsum(errors.reference))


def _store(
    protocol: TraceProtocol, rotations: LayerTransforms, clip_ratio: float, layer: LayerTrace
) -> StoredCache:
    return store_cache(protocol.encoders(rotations, clip_ratio), protocol.windows, layer.k, layer.v)


def _stored_errors(output: OutputErrors, stored: StoredCache) -> HeadErrors:
    return output.measure(*stored.restored())


def _decode_us(stored: StoredCache, layer: LayerTrace) -> float:
    """Return the mean time of a decode step with the last query of a sequence, in µs."""
    q, w_o = np.ascontiguousarray(layer.q[:, -1]), layer.w_o
    start = 0.0
    for turn in range(DECODE_WARMUP + DECODE_REPEATS):
        if turn == DECODE_WARMUP:
            start = time.perf_counter()
        stored.decode(q, w_o, layer.scaling)  # type: ignore[arg-type]
    return 1e6 * (time.perf_counter() - start) / DECODE_REPEATS


def _search(
    protocol: TraceProtocol, arms: Mapping[str, LayerTransforms], calibration: Sequence[LayerTrace]
) -> list[TraceArm]:
    """Return the arms with their clip searches and null checks, not yet evaluated."""
    tables = {name: [[0.0] * len(calibration) for _ in protocol.clip_grid] for name in arms}
    for place, layer in enumerate(calibration):
        output = OutputErrors(layer)
        for name, rotations in arms.items():
            for index, ratio in enumerate(protocol.clip_grid):
                stored = _store(protocol, rotations, ratio, layer)
                tables[name][index][place] = _nmse(_stored_errors(output, stored))
    found = []
    for name, rotations in arms.items():
        objective = [math.fsum(row) / len(row) for row in tables[name]]
        found.append(
            TraceArm(
                id=name,
                rotations=rotations,
                clip_ratios=list(protocol.clip_grid),
                query_nmse=tables[name],
                objective=objective,
                clip_ratio=protocol.clip_grid[objective.index(min(objective))],
                null_nmse=max(null_nmse(layer, rotations) for layer in calibration),
                errors=TrialErrors([], [], [], [], [], []),
                decode_us=[],
            )
        )
    return found


def _compare_layer(
    protocol: TraceProtocol,
    calibration: Trace,
    evaluation: Trace,
    rotations_of: Callable[[str, int, LayerCalibration], LayerTransforms],
    layer_idx: int,
) -> LayerComparison:
    layers = [calibration.layer(layer_idx, index) for index in range(len(calibration.sequences))]
    shared = LayerCalibration(layers)
    arms = _search(protocol, {name: rotations_of(name, layer_idx, shared) for name in protocol.arms}, layers)
    del layers, shared
    sizes: set[tuple[int, int, int]] = set()
    for index in range(len(evaluation.sequences)):
        layer = evaluation.layer(layer_idx, index)
        output = OutputErrors(layer)
        for arm in arms:
            stored = _store(protocol, arm.rotations, arm.clip_ratio, layer)
            sizes.add((stored.code_bytes, stored.metadata_bytes, stored.window_bytes))
            _add_trial(arm.errors, _stored_errors(output, stored))
            arm.decode_us.append(_decode_us(stored, layer))
    best = [min(arm.objective) for arm in arms]
    selected = min(range(1, len(arms)), key=best.__getitem__)
    # One length and one format: every arm and sequence stores the same.
    ((code_bytes, metadata_bytes, window_bytes),) = sizes
    return LayerComparison(
        layer_idx=layer_idx,
        arms=arms,
        selected=selected,
        code_bytes=code_bytes,
        metadata_bytes=metadata_bytes,
        window_bytes=window_bytes,
    )


def _add_trial(trials: TrialErrors, errors: HeadErrors) -> None:
    trials.nmse.append(_nmse(errors))
    trials.numerator.append(math.fsum(errors.error))
    trials.denominator.append(math.fsum(errors.reference))
    trials.key_part.append(math.fsum(errors.key_part))
    trials.value_part.append(math.fsum(errors.value_part))
    trials.cross_part.append(math.fsum(errors.cross_part))


def _require(protocol: TraceProtocol, calibration: Trace, evaluation: Trace) -> None:
    """Raise `SpecError` unless two traces can be compared in a record."""
    named = sequence_ids(calibration.sequences, evaluation.sequences)
    for trace, ids in zip((calibration, evaluation), named, strict=True):
        if len(set(ids)) != len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise SpecError(
                f"{trace.folder}: two sequences {twice!r} are not allowed: a record names each once"
            )
    require_same_model(evaluation.model, calibration.model, f"calibration {calibration.folder}")
    require_disjoint(calibration.sequences, evaluation.sequences)
    if len(evaluation.sequences) > MAX_TRIALS:
        raise SpecError(
            f"{len(evaluation.sequences)} evaluation sequences are not allowed: a v2 record holds at most {MAX_TRIALS}"
        )
    lengths = sorted({sequence.tokens for sequence in evaluation.sequences})
    if len(lengths) > 1:
        raise SpecError(f"evaluation sequences of {lengths} tokens are not allowed: a record has one length")
    shortest = protocol.sink + protocol.recent + LAST_QUERIES
    for sequence in (*calibration.sequences, *evaluation.sequences):
        if sequence.tokens < shortest:
            raise SpecError(
                f"sequence of {sequence.tokens} tokens of {sequence.name!r} is not allowed: {shortest} at least, or "
                "no quantized token is read"
            )


def compare_arms(
    protocol: TraceProtocol,
    calibration: Trace,
    evaluation: Trace,
    layers: Sequence[int],
    *,
    processes: int,
    progress: Progress,
    fitted: Mapping[str, Mapping[int, LayerTransforms]] | None = None,
) -> list[LayerComparison]:
    """Return the comparison of every asked layer.

    Parameters
    ----------
    protocol : TraceProtocol
    calibration, evaluation : Trace
        Of one model, of different texts; all evaluation sequences of one length.
    layers : sequence of int
    processes : int
        Layers are dealt out to so many processes; it changes no figure but the times.
    progress : Progress
    fitted : mapping of str to mapping of int to LayerTransforms, optional
        By arm and layer, the transforms that are not made here.

    Raises
    ------
    SpecError
        If traces or layers do not fit, the two share a text, or an arm is not known, or centres keys where the others
        do not.
    """
    _require(protocol, calibration, evaluation)
    num_layers = evaluation.model.num_layers
    for layer_idx in layers:
        if not 0 <= layer_idx < num_layers:
            raise SpecError(f"layer {layer_idx} is not allowed: 0 … {num_layers - 1}")
    given = fitted or {}
    for name, by_layer in given.items():
        for layer_idx in layers:
            if (by_layer[layer_idx].key_mean is not None) != protocol.center_keys:
                words = "without" if protocol.center_keys else "with"
                raise SpecError(
                    f"arm {name!r} {words} a key mean is not allowed: centring is one for all arms"
                )
    schemes = {name: protocol.scheme(name) for name in protocol.arms if name not in given}

    def rotations_of(name: str, layer_idx: int, traced: LayerCalibration) -> LayerTransforms:
        return fit_layer(schemes[name], traced).rotations if name in schemes else given[name][layer_idx]

    def work(layer_idx: int) -> LayerComparison:
        return _compare_layer(protocol, calibration, evaluation, rotations_of, layer_idx)

    return fork_map(work, layers, processes, progress=progress, unit="layer")
