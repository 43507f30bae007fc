"""Records of contract v2 of traces, one a layer: built from a comparison, and the comparison that one names."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.backend.cpu import NumpyBackend
from producer.errors import RecordError, SpecError
from producer.experiment.trace.arm_protocol import DECODE_REPEATS, DECODE_WARMUP, TraceProtocol, sequence_ids
from producer.numerics.bootstrap import summarize
from producer.quantize import get_pair, present_name
from producer.record.field_comparison import NULL_CHECK_BOUND
from producer.record.reading import RecordV2
from producer.record.v2 import (
    GRANULARITIES,
    OBJECTIVE,
    ComputedV2,
    artifacts_json,
    claim_json,
    dialect_json,
    environment_json,
    is_fair_baseline,
    sealed_v2,
    summary_json,
)
from producer.trace.files import FORMAT
from producer.transform.dense import closed_form

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from producer.experiment.trace.compare_arms import LayerComparison, TraceArm
    from producer.trace.files import Trace

__all__ = [
    "PROTOCOL",
    "build_trace_record",
    "computed_trace",
    "fitted_digests",
    "is_of_trace",
    "protocol_of_trace",
    "require_same_traces",
    "trace_record_text",
]

#: Name of the protocol in a record.
PROTOCOL = "trace-arms"

_CALIBRATION = "calibration trace"
_FITTED = "transforms "
_CENTRINGS = {False: "none", True: "channel-mean"}
# NMSE of an output of zeros.
_ZERO = 1.0


def build_trace_record(
    protocol: TraceProtocol,
    comparison: LayerComparison,
    calibration: Trace,
    evaluation: Trace,
    fitted: Mapping[str, str] | None = None,
    named: Collection[str] = (),
) -> dict[str, Any]:
    """Return the v2 record of the arms on one layer as JSON values, its witness filled in.

    Parameters
    ----------
    protocol : TraceProtocol
    comparison : LayerComparison
        Of these traces.
    calibration, evaluation : Trace
    fitted : mapping of str to str, optional
        SHA-256 of the files of the arms that came from files.
    named : collection of str, optional
        Arms from files whose construction is written as their file says it, as it was before there was `file`.

    Raises
    ------
    SpecError
        If an arm transforms keys in another way than values.

    Notes
    -----
    The record claims that the selected arm has less error than the baseline where its trials show it: the interval
    excludes no effect, and the arm is better than an output of zeros. Elsewhere it claims nothing.
    """
    backend, model = NumpyBackend(1), evaluation.model
    unnamed = set(fitted or {}) - set(named)
    why = "a file beside the trace's arrays; rederive reads it with --calibration"
    artifacts = [
        (
            "weights",
            model.name,
            None,
            model.weights_sha256,
            "the model's file, which is not in the repository",
        ),
        ("file", _CALIBRATION, FORMAT, calibration.manifest_sha256, why),
        *(
            ("file", f"{_FITTED}{name}", None, digest, "a fitted file; rederive reads it with --fitted")
            for name, digest in (fitted or {}).items()
        ),
    ]
    return sealed_v2(
        **_computed(protocol, comparison, calibration, evaluation, unnamed),
        environment=environment_json(backend),
        artifacts=artifacts_json(backend, *artifacts),
    )


def computed_trace(
    protocol: TraceProtocol,
    comparison: LayerComparison,
    calibration: Trace,
    evaluation: Trace,
    unnamed: Collection[str],
) -> ComputedV2:
    """Return what a comparison gives of a v2 record, to compare with one; see `build_trace_record`.

    `unnamed` are the arms from files whose construction is written as `file`.
    """
    return ComputedV2.of(_computed(protocol, comparison, calibration, evaluation, unnamed))


def _computed(
    protocol: TraceProtocol,
    comparison: LayerComparison,
    calibration: Trace,
    evaluation: Trace,
    unnamed: Collection[str],
) -> dict[str, Any]:
    return {
        "recipe": _recipe(protocol, comparison, evaluation.model.head_dim, unnamed),
        "workload": _workload(comparison.layer_idx, evaluation),
        "protocol": _protocol(calibration, evaluation),
        "measurements": _measurements(comparison, calibration, evaluation),
        "claims": _claims(comparison),
    }


def trace_record_text(record: dict[str, Any]) -> str:
    """Return a record as one line of JSON Lines, with its line end."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _rotation(arm: TraceArm, unnamed: Collection[str]) -> dict[str, Any]:
    key, value = arm.rotations.key, arm.rotations.value
    if key.kind != value.kind:
        raise SpecError(
            f"arm {arm.id!r} with keys by {key.kind} and values by {value.kind} is not allowed: one kind"
        )
    digests = {"key_sha256": key.sha256, "value_sha256": value.sha256}
    # A closed form was compared when its file was read; of any other transform only the digest is sure.
    is_file = arm.id in unnamed and closed_form(key.kind, key.head_dim) is None
    return {"id": arm.id, "construction": "file" if is_file else key.kind, "seed": None} | digests


def _recipe(
    protocol: TraceProtocol, comparison: LayerComparison, head_dim: int, unnamed: Collection[str]
) -> dict[str, Any]:
    rotations = [_rotation(arm, unnamed) for arm in comparison.arms]
    key, value = (GRANULARITIES[one.numerics.group_axis] for one in get_pair(protocol.dialect))
    return {
        "method": rotations[comparison.selected]["construction"],
        "bits": 2,
        "group_size": protocol.group_size or head_dim,
        "key_granularity": key,
        "value_granularity": value,
        "dialect": dialect_json(protocol.dialect),
        "key_centring": _CENTRINGS[protocol.center_keys],
        "sink_tokens": protocol.sink,
        "recent_tokens": protocol.recent,
        "window_dtype": protocol.window_dtype,
        "clip_grid": list(protocol.clip_grid),
        "clip_grid_size": len(protocol.clip_grid),
        "objective": OBJECTIVE,
        "baseline": comparison.arms[0].id,
        "rotations": rotations,
        "rotation_count": len(protocol.arms),
    }


def _workload(layer_idx: int, evaluation: Trace) -> dict[str, Any]:
    model = evaluation.model
    return {
        "synthetic": None,
        "trace": {
            "manifest_sha256": evaluation.manifest_sha256,
            "model_id": model.name,
            "revision": "none: the digest of the weights tells it",
            "weights_sha256": model.weights_sha256,
            "layer": layer_idx,
            "head": 0,
            "captured_by": f"kvint2eval-producer trace, {FORMAT}",
        },
        "tokens": evaluation.sequences[0].tokens,
        "kv_heads": model.num_kv_heads,
        "query_heads": model.num_heads,
        "head_dimension": model.head_dim,
        "output_dimension": model.hidden_size,
    }


def _protocol(calibration: Trace, evaluation: Trace) -> dict[str, Any]:
    fitted, judged = sequence_ids(calibration.sequences, evaluation.sequences)
    return {
        "name": PROTOCOL,
        "calibration_queries": fitted,
        "evaluation_queries": judged,
        "arms_share_queries": True,
        "selection_reads": "calibration",
        "trials": len(evaluation.sequences),
        "clock": "host",
        "warmup": DECODE_WARMUP,
        "repeats": DECODE_REPEATS,
        "synchronised": True,
    }


def _measurements(comparison: LayerComparison, calibration: Trace, evaluation: Trace) -> dict[str, Any]:
    model, tokens = evaluation.model, evaluation.sequences[0].tokens
    sizes = (comparison.code_bytes, comparison.metadata_bytes, comparison.window_bytes)
    elements = 2 * tokens * model.num_kv_heads * model.head_dim
    _, queries = sequence_ids(calibration.sequences, evaluation.sequences)
    return {
        "selected": comparison.arms[comparison.selected].id,
        "null_check_bound": NULL_CHECK_BOUND,
        "null_checks": [{"rotation": arm.id, "nmse": arm.null_nmse} for arm in comparison.arms],
        "arms": [
            {
                "rotation": arm.id,
                "clip_ratio": arm.clip_ratio,
                "calibration": {
                    "clip_ratio": arm.clip_ratios,
                    "objective": arm.objective,
                    "query_nmse": arm.query_nmse,
                },
                "summary": summary_json(arm.errors.nmse, arm.decode_us),
                "trials": {"query": queries} | dataclasses.asdict(arm.errors) | {"decode_us": arm.decode_us},
            }
            for arm in comparison.arms
        ],
        "storage": dict(zip(("codes_bytes", "metadata_bytes", "window_bytes"), sizes, strict=True))
        | {"bits_per_element": 8 * sum(sizes) / elements},
    }


def _claims(comparison: LayerComparison) -> list[dict[str, Any]]:
    baseline, selected = comparison.arms[0], comparison.arms[comparison.selected]
    claim = claim_json((baseline.id, selected.id), (baseline.errors.nmse, selected.errors.nmse))
    # Six trials are the contract's least for the level 0.95.
    middle = np.median(np.subtract(baseline.errors.nmse, selected.errors.nmse))
    is_shown = claim["low"] > 0 and middle > 0 and len(selected.errors.nmse) >= 6
    is_shown &= is_fair_baseline(baseline.errors, min(baseline.objective), min(selected.objective))
    return [claim] if is_shown and summarize(selected.errors.nmse).mean < _ZERO else []


def is_of_trace(record: Any) -> bool:
    """Return whether a record, of whatever contract, is a v2 record of a trace."""
    return isinstance(record, RecordV2) and record.workload.trace is not None


def fitted_digests(record: RecordV2) -> dict[str, str]:
    """Return the SHA-256 of the files that a record's arms came from, by arm."""
    return {
        artifact.id.removeprefix(_FITTED): artifact.sha256
        for artifact in record.artifacts
        if artifact.role == "file" and artifact.id.startswith(_FITTED)
    }


def protocol_of_trace(record: RecordV2) -> TraceProtocol:
    """Return the comparison that a record of a trace names.

    Raises
    ------
    RecordError
        If it names none that is known here, or leaves something open.
    """
    recipe, rotations = record.recipe, record.recipe.rotations or ()
    ids = [rotation.id for rotation in rotations]
    expected = (
        ("/protocol/name", record.protocol.name, (PROTOCOL,)),
        ("/recipe/bits", recipe.bits, (2,)),
        ("/recipe/baseline", recipe.baseline, tuple(ids[:1])),
        ("/recipe/key_centring", recipe.key_centring, tuple(_CENTRINGS.values())),
        ("/recipe/objective", recipe.objective, (OBJECTIVE,)),
    )
    for pointer, found, allowed in expected:
        if found not in allowed:
            words = " or ".join(map(repr, allowed)) or "an arm"
            raise RecordError(f"{pointer}: found {found!r}, allowed: {words}, which is what is computed here")
    known = (recipe.dialect, recipe.clip_grid, recipe.sink_tokens, recipe.recent_tokens, recipe.window_dtype)
    if any(value is None for value in known):
        raise RecordError(
            "/recipe: the record leaves open what was run: dialect, clip grid or windows are null"
        )
    try:
        return TraceProtocol(
            arms=tuple(ids),
            dialect=present_name(recipe.dialect.id, recipe.dialect.fingerprint_sha256),  # type: ignore[union-attr]
            clip_grid=recipe.clip_grid,  # type: ignore[arg-type]
            center_keys=recipe.key_centring == _CENTRINGS[True],
            group_size=recipe.group_size,
            sink=recipe.sink_tokens,  # type: ignore[arg-type]
            recent=recipe.recent_tokens,  # type: ignore[arg-type]
            window_dtype=recipe.window_dtype,  # type: ignore[arg-type]
        )
    except SpecError as error:
        raise RecordError(f"the record names a comparison that is not allowed: {error}") from error


def require_same_traces(record: RecordV2, calibration: Trace, evaluation: Trace) -> None:
    """Raise `RecordError` unless the two traces are those of a record, by the digests of their manifests."""
    stated = {artifact.id: artifact.sha256 for artifact in record.artifacts if artifact.role == "file"}
    trace = record.workload.trace
    for where, digest, found in (
        ("the evaluation", "" if trace is None else trace.manifest_sha256, evaluation),
        ("the calibration", stated.get(_CALIBRATION, ""), calibration),
    ):
        if digest != found.manifest_sha256:
            raise RecordError(
                f"{found.folder}: found a trace with the manifest {found.manifest_sha256}, allowed: "
                f"{digest or 'none'}, which the record names as {where}"
            )
