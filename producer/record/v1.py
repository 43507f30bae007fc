"""Records of contract v1: built from a run, and the computation that one names."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from kvint2eval import __version__, witness_v1
from kvint2eval.contract.v1.model import (
    CONTRACT_VERSION,
    Candidate,
    Hardware,
    Metrics,
    Pin,
    Recipe,
    Record,
    Runtime,
)
from producer.errors import RecordError, SpecError
from producer.experiment.slice.spec import PROTOCOLS, PUBLISHED, SliceProtocol, SliceSpec
from producer.record.provenance import PRODUCER_ID, RECIPE_ARTIFACT, source_digest, specification_digest
from producer.system.environment import os_name

if TYPE_CHECKING:
    from producer.backend.base import RuntimeInfo
    from producer.experiment.slice.protocol import RunResult

__all__ = ["Record", "build_record", "computation_of", "record_text", "witness_of"]

_MODEL_ID = "synthetic-attention-slice"
_MODEL_VERSION = re.compile(
    r"(?P<protocol>[a-z]+)-v1 seed-(?P<seed>[0-9]+) calibration-(?P<calibration>[0-9]+)"
)
# The published record and the names by which it says what it is.
_PUBLISHED_ARTIFACT = ("kvint2eval-l4-output-aware-slice", "2")
_PUBLISHED_MODEL_ID = "synthetic-attention-head"
_PUBLISHED_MODEL_VERSION = re.compile(r"seed-(?P<seed>[0-9]+)-v2")
# What the producer computes, whatever the protocol.
_RECIPE: dict[str, Any] = {
    "method": "optr-output-aware-int2",
    "baseline": "identity-rotation-int2",
    "bits": 2,
    "key_granularity": "per-token-group",
    "value_granularity": "per-token-group",
    "objective": "post-wo-attention-output-nmse",
}


def build_record(result: RunResult, runtime: RuntimeInfo) -> Record:
    """Return the v1 record of a run, its witness filled in.

    Parameters
    ----------
    result : RunResult
    runtime : RuntimeInfo
        What the backend ran on.
    """
    spec, protocol = result.spec, result.protocol
    source = source_digest()
    record = Record(
        contract_version=CONTRACT_VERSION,
        artifact=Pin(id=PRODUCER_ID, version=__version__, sha256=source),
        recipe_artifact=RECIPE_ARTIFACT,
        model=Pin(
            id=_MODEL_ID,
            version=f"{protocol.name}-v1 seed-{spec.seed} calibration-{protocol.calibration_queries}",
            sha256=specification_digest(spec, protocol),
        ),
        runtime=Runtime(
            name=runtime.name,
            version=runtime.version,
            driver=runtime.driver,
            kernel=runtime.kernel,
            sha256=runtime.sha256 or source,
        ),
        hardware=Hardware(
            os=os_name(),
            gpu=runtime.gpu,
            gpu_memory_bytes=runtime.gpu_memory_bytes,
            context_tokens=spec.seq_len,
            kv_heads=spec.num_kv_heads,
            head_dimension=spec.head_dim,
            output_dimension=spec.output_dim,
            seed=spec.seed,
        ),
        recipe=Recipe(**_RECIPE, group_size=protocol.group_size),
        evidence="observed",
        metrics=_metrics(result),
    )
    return record.model_copy(update={"witness_sha256": witness_v1(record)})


def _metrics(result: RunResult) -> Metrics:
    rows = tuple(
        Candidate(
            rotation=arm.index,
            clip_ratio=arm.clip_ratio,
            calibration_milliseconds=arm.calibration_ms,
            output_nmse_mean=arm.nmse_summary.mean,
            output_nmse_stddev=arm.nmse_summary.stddev,
            task_accuracy_mean=result.quality(arm).mean,
            task_accuracy_stddev=result.quality(arm).stddev,
            decode_microseconds_mean=arm.decode_summary.mean,
            decode_microseconds_stddev=arm.decode_summary.stddev,
        )
        for arm in result.arms
    )
    baseline, selected = rows[0], rows[result.selected]
    return Metrics(
        candidate_count=len(rows),
        decode_trials=result.protocol.evaluation_queries,
        selected_rotation=result.selected,
        candidates=rows,
        transform_milliseconds=selected.calibration_milliseconds,
        cache_bytes=result.arms[result.selected].code_bytes,
        baseline_output_nmse=baseline.output_nmse_mean,
        candidate_output_nmse=selected.output_nmse_mean,
        baseline_task_accuracy=baseline.task_accuracy_mean,
        candidate_task_accuracy=selected.task_accuracy_mean,
        baseline_decode_microseconds=baseline.decode_microseconds_mean,
        candidate_decode_microseconds=selected.decode_microseconds_mean,
    )


def record_text(record: Record) -> str:
    """Return a record as indented JSON with a line end: the bytes that `run` writes."""
    members: dict[str, Any] = record.model_dump(mode="json")
    return json.dumps(members, indent=2, ensure_ascii=False) + "\n"


def witness_of(record: Record) -> str:
    """Return the witness digest that a record ought to have."""
    return witness_v1(record)


def computation_of(record: Record) -> tuple[SliceSpec, SliceProtocol]:
    """Return the slice and the protocol that a record names by its artifact and model.

    Raises
    ------
    RecordError
        If it names none that is known here, one that is not allowed, or another recipe.
    """
    for name, expected in _RECIPE.items():
        found = getattr(record.recipe, name)
        if found != expected:
            raise RecordError(
                f"/recipe/{name}: found {found!r}, allowed: {expected!r}, which is what is computed here"
            )
    try:
        return _slice_of(record), _protocol_of(record)
    except SpecError as error:
        raise RecordError(f"the record names a computation that is not allowed: {error}") from error


def _slice_of(record: Record) -> SliceSpec:
    hardware = record.hardware
    return SliceSpec(
        seq_len=hardware.context_tokens,
        num_kv_heads=hardware.kv_heads,
        head_dim=hardware.head_dimension,
        output_dim=hardware.output_dimension,
        seed=hardware.seed,
    )


def _protocol_of(record: Record) -> SliceProtocol:
    artifact, model = record.artifact, record.model
    counts: dict[str, Any] = {
        "evaluation_queries": record.metrics.decode_trials,
        "num_rotations": record.metrics.candidate_count - 1,
        "group_size": record.recipe.group_size,
    }
    if (artifact.id, artifact.version) == _PUBLISHED_ARTIFACT and model.id == _PUBLISHED_MODEL_ID:
        match = _PUBLISHED_MODEL_VERSION.fullmatch(model.version)
        if match is not None and int(match["seed"]) == record.hardware.seed:
            return dataclasses.replace(PUBLISHED, **counts)
    if artifact.id == PRODUCER_ID and model.id == _MODEL_ID:
        match = _MODEL_VERSION.fullmatch(model.version)
        if (
            match is not None
            and match["protocol"] in PROTOCOLS
            and int(match["seed"]) == record.hardware.seed
        ):
            protocol = PROTOCOLS[match["protocol"]]
            return dataclasses.replace(protocol, calibration_queries=int(match["calibration"]), **counts)
    raise RecordError(
        f"artifact {artifact.id!r} version {artifact.version!r} with model {model.id!r} version "
        f"{model.version!r} and seed {record.hardware.seed} names no computation that is known here; allowed: "
        f"artifact {PRODUCER_ID!r} with model {_MODEL_ID!r}, or artifact {_PUBLISHED_ARTIFACT[0]!r} version "
        f"{_PUBLISHED_ARTIFACT[1]!r} with model {_PUBLISHED_MODEL_ID!r} version 'seed-SEED-v2'"
    )
