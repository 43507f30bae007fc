"""Decoder of contract v1 for the hot path. Generated from `model.py` by `make regen`; do not edit.

A record that decodes here has every member but the four that a modeled record may leave out, each of the
declared type; anything else is read again by the strict reader, which can say what is wrong and where.
`SHAPE` is the same layout as a table for that reader: per object the member, its kind, and its class or row
class.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# msgspec's bounds end at int64: the upper bound 2**64 - 1 is checked by hand.
UInt64 = Annotated[int, Meta(ge=0)]
# An integer literal stays an integer where binary64 holds it exactly: the canonical form writes 1, not 1.0.
# A negative number is left to the strict reader: no record that holds one is supported.
Number = Annotated[int, Meta(ge=0, le=2**53)] | Annotated[float, Meta(ge=0)]


class Pin(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Pin`."""

    id: str
    version: str
    sha256: str


class Runtime(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Runtime`."""

    name: str
    version: str
    driver: str
    kernel: str
    sha256: str


class Hardware(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Hardware`."""

    os: str
    gpu: str
    gpu_memory_bytes: UInt64
    context_tokens: Int64
    kv_heads: Int64
    head_dimension: Int64
    output_dimension: Int64
    seed: UInt64


class Recipe(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Recipe`."""

    method: str
    baseline: str
    bits: Int64
    group_size: Int64
    key_granularity: str
    value_granularity: str
    objective: str


class Candidate(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Candidate`."""

    rotation: Int64
    clip_ratio: Number
    calibration_milliseconds: Number
    output_nmse_mean: Number
    output_nmse_stddev: Number
    task_accuracy_mean: Number
    task_accuracy_stddev: Number
    decode_microseconds_mean: Number
    decode_microseconds_stddev: Number


class Metrics(Struct, frozen=True, forbid_unknown_fields=True, gc=False, kw_only=True):
    """Layout of `kvint2eval.contract.v1.model.Metrics`."""

    candidate_count: Int64 | UnsetType = UNSET
    decode_trials: Int64 | UnsetType = UNSET
    selected_rotation: Int64 | UnsetType = UNSET
    candidates: tuple[Candidate, ...] | UnsetType | None = UNSET
    transform_milliseconds: Number
    cache_bytes: Int64
    baseline_output_nmse: Number
    candidate_output_nmse: Number
    baseline_task_accuracy: Number
    candidate_task_accuracy: Number
    baseline_decode_microseconds: Number
    candidate_decode_microseconds: Number


class Record(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v1.model.Record`."""

    contract_version: str
    artifact: Pin
    recipe_artifact: Pin
    model: Pin
    runtime: Runtime
    hardware: Hardware
    recipe: Recipe
    evidence: str
    metrics: Metrics
    witness_sha256: str


SHAPE: dict[type[Struct], dict[str, tuple[str, type[Struct] | None]]] = {
    Pin: {
        "id": ("string", None),
        "version": ("string", None),
        "sha256": ("string", None),
    },
    Runtime: {
        "name": ("string", None),
        "version": ("string", None),
        "driver": ("string", None),
        "kernel": ("string", None),
        "sha256": ("string", None),
    },
    Hardware: {
        "os": ("string", None),
        "gpu": ("string", None),
        "gpu_memory_bytes": ("uint64", None),
        "context_tokens": ("int64", None),
        "kv_heads": ("int64", None),
        "head_dimension": ("int64", None),
        "output_dimension": ("int64", None),
        "seed": ("uint64", None),
    },
    Recipe: {
        "method": ("string", None),
        "baseline": ("string", None),
        "bits": ("int64", None),
        "group_size": ("int64", None),
        "key_granularity": ("string", None),
        "value_granularity": ("string", None),
        "objective": ("string", None),
    },
    Candidate: {
        "rotation": ("int64", None),
        "clip_ratio": ("number", None),
        "calibration_milliseconds": ("number", None),
        "output_nmse_mean": ("number", None),
        "output_nmse_stddev": ("number", None),
        "task_accuracy_mean": ("number", None),
        "task_accuracy_stddev": ("number", None),
        "decode_microseconds_mean": ("number", None),
        "decode_microseconds_stddev": ("number", None),
    },
    Metrics: {
        "candidate_count": ("int64", None),
        "decode_trials": ("int64", None),
        "selected_rotation": ("int64", None),
        "candidates": ("rows", Candidate),
        "transform_milliseconds": ("number", None),
        "cache_bytes": ("int64", None),
        "baseline_output_nmse": ("number", None),
        "candidate_output_nmse": ("number", None),
        "baseline_task_accuracy": ("number", None),
        "candidate_task_accuracy": ("number", None),
        "baseline_decode_microseconds": ("number", None),
        "candidate_decode_microseconds": ("number", None),
    },
    Record: {
        "contract_version": ("string", None),
        "artifact": ("object", Pin),
        "recipe_artifact": ("object", Pin),
        "model": ("object", Pin),
        "runtime": ("object", Runtime),
        "hardware": ("object", Hardware),
        "recipe": ("object", Recipe),
        "evidence": ("string", None),
        "metrics": ("object", Metrics),
        "witness_sha256": ("string", None),
    },
}
