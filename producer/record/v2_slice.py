"""Records of contract v2 of synthetic slices: built from a run, and the computation that one names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from producer.errors import RecordError, SpecError
from producer.experiment.slice.spec import PROTOCOLS, SliceProtocol, SliceSpec
from producer.numerics.contract_bootstrap import MAX_TRIALS
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
from producer.transform.digest import rotation_digest

if TYPE_CHECKING:
    from producer.backend.base import Backend
    from producer.experiment.slice.protocol import Arm, RunResult

__all__ = ["RecordV2", "build_record_v2", "computation_of_v2", "computed_v2", "require_v2"]

_DIALECT = "symmetric-absmax-clip"
_GENERATOR = "kvint2eval-synthetic-slice-v1"


def require_v2(protocol: SliceProtocol) -> None:
    """Raise `SpecError` unless a protocol's trials fit into a v2 record."""
    if protocol.evaluation_queries > MAX_TRIALS:
        raise SpecError(
            f"evaluation_queries {protocol.evaluation_queries} is not allowed: a v2 record holds at most {MAX_TRIALS}"
        )


def build_record_v2(result: RunResult, backend: Backend) -> dict[str, Any]:
    """Return the v2 record of a run as JSON values, its witness filled in.

    Parameters
    ----------
    result : RunResult
        Of a run that kept its errors and its null checks.
    backend : Backend
        What it ran on.

    Raises
    ------
    SpecError
        If the run did not keep its errors or null checks.
    """
    return sealed_v2(
        **_computed(result, backend),
        environment=environment_json(backend),
        artifacts=artifacts_json(backend),
    )


def computed_v2(result: RunResult, backend: Backend) -> ComputedV2:
    """Return what a run gives of a v2 record, to compare with one; see `build_record_v2`."""
    return ComputedV2.of(_computed(result, backend))


def _computed(result: RunResult, backend: Backend) -> dict[str, Any]:
    return {
        "recipe": _recipe(result),
        "workload": _workload(result.spec),
        "protocol": _protocol(result, backend),
        "measurements": _measurements(result),
        "claims": _claims(result),
    }


def _rotation_id(index: int) -> str:
    return f"r{index}"


def _recipe(result: RunResult) -> dict[str, Any]:
    protocol = result.protocol
    rotations = []
    for arm in result.arms:
        digest = rotation_digest(arm.rotation)
        rotations.append(
            {
                "id": _rotation_id(arm.index),
                "construction": arm.rotation.kind,
                "seed": result.spec.seed if arm.index and protocol.sign_source == "drawn" else None,
                "key_sha256": digest,
                "value_sha256": digest,
            }
        )
    return {
        "method": "hadamard",
        "bits": 2,
        "group_size": protocol.group_size,
        "key_granularity": GRANULARITIES["channels"],
        "value_granularity": GRANULARITIES["channels"],
        "dialect": dialect_json(_DIALECT),
        "key_centring": "none",
        "sink_tokens": 0,
        "recent_tokens": 0,
        "window_dtype": "float32",
        "clip_grid": result.grid,
        "clip_grid_size": len(result.grid),
        "objective": OBJECTIVE,
        "baseline": _rotation_id(0),
        "rotations": rotations,
        "rotation_count": protocol.num_rotations + 1,
    }


def _workload(spec: SliceSpec) -> dict[str, Any]:
    return {
        "synthetic": {
            "generator": _GENERATOR,
            "seed": spec.seed,
            "outlier_stride": spec.outlier_stride,
            "outlier_factor": spec.outlier_factor,
        },
        "trace": None,
        "tokens": spec.seq_len,
        "kv_heads": spec.num_kv_heads,
        "query_heads": spec.num_kv_heads,
        "head_dimension": spec.head_dim,
        "output_dimension": spec.output_dim,
    }


def _queries(protocol: SliceProtocol, arm: int) -> list[str]:
    """Ids of an arm's evaluation queries: their place in the order in which all queries are drawn."""
    share = 0 if protocol.shared_evaluation else arm
    first = protocol.calibration_queries + share * protocol.evaluation_queries
    return [f"q{index}" for index in range(first, first + protocol.evaluation_queries)]


def _protocol(result: RunResult, backend: Backend) -> dict[str, Any]:
    protocol = result.protocol
    described: dict[str, Any] = backend.describe()
    is_cuda = backend.runtime.name == "cuda"
    return {
        "name": protocol.name,
        "calibration_queries": [f"q{index}" for index in range(protocol.calibration_queries)],
        "evaluation_queries": _queries(protocol, 0),
        "arms_share_queries": protocol.shared_evaluation,
        "selection_reads": protocol.selection,
        "trials": protocol.evaluation_queries,
        "clock": "cuda-event" if is_cuda else "host",
        "warmup": int(described.get("decode_warmup", 0)),
        "repeats": int(described.get("decode_repeats", 1)),
        "synchronised": True,
    }


def _measurements(result: RunResult) -> dict[str, Any]:
    arms = [_arm(result, arm) for arm in result.arms]
    selected, spec = result.arms[result.selected], result.spec
    elements = 2 * spec.seq_len * spec.row_width
    return {
        "selected": _rotation_id(result.selected),
        "null_check_bound": NULL_CHECK_BOUND,
        "null_checks": [{"rotation": _rotation_id(arm.index), "nmse": arm.null_nmse} for arm in result.arms],
        "arms": arms,
        "storage": {
            "codes_bytes": selected.code_bytes,
            "metadata_bytes": selected.scale_bytes,
            "window_bytes": 0,
            "bits_per_element": 8 * (selected.code_bytes + selected.scale_bytes) / elements,
        },
    }


def _arm(result: RunResult, arm: Arm) -> dict[str, Any]:
    errors = arm.errors
    if errors is None or arm.null_nmse is None:
        raise SpecError("the run kept no errors or null checks: a v2 record needs both")
    return {
        "rotation": _rotation_id(arm.index),
        "clip_ratio": arm.clip_ratio,
        "calibration": {
            "clip_ratio": arm.curve.ratios,
            "objective": arm.curve.objectives,
            "query_nmse": arm.calibration_nmse,
        },
        "summary": summary_json(errors.nmse, arm.decode_us),
        "trials": {"query": _queries(result.protocol, arm.index)}
        | dataclasses.asdict(errors)
        | {"decode_us": arm.decode_us},
    }


def _claims(result: RunResult) -> list[dict[str, Any]]:
    """The one thing that a run claims, that its selected arm has less error than a baseline that works."""
    arms = result.arms[0], result.arms[result.selected]
    baseline, selected = (arm.errors for arm in arms)
    if baseline is None or selected is None:
        raise SpecError("the run kept no errors: a v2 record needs them")
    if not is_fair_baseline(baseline, *(min(arm.curve.objectives) for arm in arms)):
        return []
    names = _rotation_id(0), _rotation_id(result.selected)
    return [claim_json(names, (baseline.nmse, selected.nmse))]


def computation_of_v2(record: RecordV2) -> tuple[SliceSpec, SliceProtocol]:
    """Return the slice and the protocol that a record names.

    Raises
    ------
    RecordError
        If it names none that is known here, or one that is not allowed.
    """
    recipe, workload, protocol = record.recipe, record.workload, record.protocol
    synthetic = workload.synthetic
    if workload.trace is not None:
        raise RecordError(
            "/workload/trace: found a trace, allowed: a synthetic slice; `rederive` runs a record of a trace again "
            "with --calibration and --trace, and what an audit asks are rules of `kvint2eval adjudicate`"
        )
    expected = (
        ("/workload/synthetic/generator", None if synthetic is None else synthetic.generator, (_GENERATOR,)),
        ("/recipe/dialect/id", None if recipe.dialect is None else recipe.dialect.id, (_DIALECT,)),
        ("/protocol/name", protocol.name, tuple(PROTOCOLS)),
        ("/workload/query_heads", workload.query_heads, (workload.kv_heads,)),
        ("/recipe/key_centring", recipe.key_centring, ("none",)),
        ("/recipe/sink_tokens", recipe.sink_tokens, (0,)),
        ("/recipe/recent_tokens", recipe.recent_tokens, (0,)),
    )
    for pointer, found, allowed in expected:
        if found not in allowed:
            words = " or ".join(map(repr, allowed))
            raise RecordError(f"{pointer}: found {found!r}, allowed: {words}, which is what is computed here")
    if synthetic is None or protocol.name is None or protocol.trials is None or not recipe.rotations:
        raise RecordError("the record leaves open what was run: trials or rotations are null")
    try:
        spec = SliceSpec(
            seq_len=workload.tokens,
            num_kv_heads=workload.kv_heads,
            head_dim=workload.head_dimension,
            output_dim=workload.output_dimension,
            seed=synthetic.seed,
            outlier_stride=synthetic.outlier_stride,
            outlier_factor=synthetic.outlier_factor,
        )
        return spec, dataclasses.replace(
            PROTOCOLS[protocol.name],
            calibration_queries=len(protocol.calibration_queries or ()),
            evaluation_queries=protocol.trials,
            num_rotations=len(recipe.rotations) - 1,
            group_size=recipe.group_size,
        )
    except SpecError as error:
        raise RecordError(f"the record names a computation that is not allowed: {error}") from error
