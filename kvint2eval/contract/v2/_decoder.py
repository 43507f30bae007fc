"""Decoder of contract v2. Generated from `model.py` by `make regen`; do not edit.

`SHAPE` is the same layout as a table for the strict reader: per object the member, its kind, its class or the
class of its rows, and whether it may be null.
"""

from typing import Annotated

from msgspec import Meta, Struct

UInt = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class Dialect(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Dialect`."""

    id: str
    clip_kind: str
    clip_scope: str
    zero_point: str
    rounding: str
    range_floor: float
    metadata_dtype: str
    metadata_scalars: UInt
    dequantization_dtype: str
    packing: str
    fingerprint_sha256: str


class Rotation(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Rotation`."""

    id: str
    construction: str
    seed: UInt | None
    key_sha256: str
    value_sha256: str


class Recipe(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Recipe`."""

    method: str
    bits: UInt
    group_size: UInt
    key_granularity: str
    value_granularity: str
    dialect: Dialect | None
    key_centring: str | None
    sink_tokens: UInt | None
    recent_tokens: UInt | None
    window_dtype: str | None
    clip_grid: list[float] | None
    clip_grid_size: UInt | None
    objective: str
    baseline: str | None
    rotations: list[Rotation] | None
    rotation_count: UInt | None


class Synthetic(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Synthetic`."""

    generator: str
    seed: UInt
    outlier_stride: UInt
    outlier_factor: float


class Trace(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Trace`."""

    manifest_sha256: str
    model_id: str
    revision: str
    weights_sha256: str
    layer: UInt
    head: UInt
    captured_by: str


class Workload(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Workload`."""

    synthetic: Synthetic | None
    trace: Trace | None
    tokens: UInt
    kv_heads: UInt
    query_heads: UInt | None
    head_dimension: UInt
    output_dimension: UInt


class Protocol(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Protocol`."""

    name: str | None
    calibration_queries: list[str] | None
    evaluation_queries: list[str] | None
    arms_share_queries: bool | None
    selection_reads: str | None
    trials: UInt | None
    clock: str | None
    warmup: UInt | None
    repeats: UInt | None
    synchronised: bool | None


class Environment(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Environment`."""

    runtime: str
    os: str | None
    python: str | None
    numpy: str | None
    cupy: str | None
    cuda: str | None
    driver: str | None
    gpu: str | None
    gpu_memory_bytes: UInt | None
    compute_capability: str | None


class Artifact(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Artifact`."""

    role: str
    id: str
    version: str | None
    path: str | None
    text: bool
    sha256: str
    unbindable: str | None


class NullCheck(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.NullCheck`."""

    rotation: str
    nmse: float


class Calibration(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Calibration`."""

    clip_ratio: list[float]
    objective: list[float]
    query_nmse: list[list[float]]


class Summary(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Summary`."""

    nmse_mean: float
    nmse_stddev: float
    decode_us_median: float


class Trials(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Trials`."""

    query: list[str]
    nmse: list[float]
    numerator: list[float]
    denominator: list[float]
    key_part: list[float]
    value_part: list[float]
    cross_part: list[float]
    decode_us: list[float]


class Arm(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Arm`."""

    rotation: str
    clip_ratio: float
    calibration: Calibration
    summary: Summary
    trials: Trials


class Storage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Storage`."""

    codes_bytes: UInt
    metadata_bytes: UInt
    window_bytes: UInt
    bits_per_element: float


class Measurements(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Measurements`."""

    selected: str
    null_check_bound: float
    null_checks: list[NullCheck]
    arms: list[Arm]
    storage: Storage


class Claim(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Claim`."""

    metric: str
    candidate: str
    baseline: str
    statistic: str
    value: float
    low: float
    high: float
    method: str
    level: float
    resamples: UInt
    seed: UInt


class Record(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Layout of `kvint2eval.contract.v2.model.Record`."""

    contract_version: str
    recipe: Recipe
    workload: Workload
    protocol: Protocol
    environment: Environment
    artifacts: list[Artifact]
    evidence: str
    measurements: Measurements | None
    claims: list[Claim]
    witness_sha256: str


SHAPE: dict[type[Struct], dict[str, tuple[str, type[Struct] | None, bool]]] = {
    Dialect: {
        "id": ("string", None, False),
        "clip_kind": ("string", None, False),
        "clip_scope": ("string", None, False),
        "zero_point": ("string", None, False),
        "rounding": ("string", None, False),
        "range_floor": ("number", None, False),
        "metadata_dtype": ("string", None, False),
        "metadata_scalars": ("uint", None, False),
        "dequantization_dtype": ("string", None, False),
        "packing": ("string", None, False),
        "fingerprint_sha256": ("string", None, False),
    },
    Rotation: {
        "id": ("string", None, False),
        "construction": ("string", None, False),
        "seed": ("uint", None, True),
        "key_sha256": ("string", None, False),
        "value_sha256": ("string", None, False),
    },
    Recipe: {
        "method": ("string", None, False),
        "bits": ("uint", None, False),
        "group_size": ("uint", None, False),
        "key_granularity": ("string", None, False),
        "value_granularity": ("string", None, False),
        "dialect": ("object", Dialect, True),
        "key_centring": ("string", None, True),
        "sink_tokens": ("uint", None, True),
        "recent_tokens": ("uint", None, True),
        "window_dtype": ("string", None, True),
        "clip_grid": ("numbers", None, True),
        "clip_grid_size": ("uint", None, True),
        "objective": ("string", None, False),
        "baseline": ("string", None, True),
        "rotations": ("rows", Rotation, True),
        "rotation_count": ("uint", None, True),
    },
    Synthetic: {
        "generator": ("string", None, False),
        "seed": ("uint", None, False),
        "outlier_stride": ("uint", None, False),
        "outlier_factor": ("number", None, False),
    },
    Trace: {
        "manifest_sha256": ("string", None, False),
        "model_id": ("string", None, False),
        "revision": ("string", None, False),
        "weights_sha256": ("string", None, False),
        "layer": ("uint", None, False),
        "head": ("uint", None, False),
        "captured_by": ("string", None, False),
    },
    Workload: {
        "synthetic": ("object", Synthetic, True),
        "trace": ("object", Trace, True),
        "tokens": ("uint", None, False),
        "kv_heads": ("uint", None, False),
        "query_heads": ("uint", None, True),
        "head_dimension": ("uint", None, False),
        "output_dimension": ("uint", None, False),
    },
    Protocol: {
        "name": ("string", None, True),
        "calibration_queries": ("strings", None, True),
        "evaluation_queries": ("strings", None, True),
        "arms_share_queries": ("boolean", None, True),
        "selection_reads": ("string", None, True),
        "trials": ("uint", None, True),
        "clock": ("string", None, True),
        "warmup": ("uint", None, True),
        "repeats": ("uint", None, True),
        "synchronised": ("boolean", None, True),
    },
    Environment: {
        "runtime": ("string", None, False),
        "os": ("string", None, True),
        "python": ("string", None, True),
        "numpy": ("string", None, True),
        "cupy": ("string", None, True),
        "cuda": ("string", None, True),
        "driver": ("string", None, True),
        "gpu": ("string", None, True),
        "gpu_memory_bytes": ("uint", None, True),
        "compute_capability": ("string", None, True),
    },
    Artifact: {
        "role": ("string", None, False),
        "id": ("string", None, False),
        "version": ("string", None, True),
        "path": ("string", None, True),
        "text": ("boolean", None, False),
        "sha256": ("string", None, False),
        "unbindable": ("string", None, True),
    },
    NullCheck: {
        "rotation": ("string", None, False),
        "nmse": ("number", None, False),
    },
    Calibration: {
        "clip_ratio": ("numbers", None, False),
        "objective": ("numbers", None, False),
        "query_nmse": ("table", None, False),
    },
    Summary: {
        "nmse_mean": ("number", None, False),
        "nmse_stddev": ("number", None, False),
        "decode_us_median": ("number", None, False),
    },
    Trials: {
        "query": ("strings", None, False),
        "nmse": ("numbers", None, False),
        "numerator": ("numbers", None, False),
        "denominator": ("numbers", None, False),
        "key_part": ("numbers", None, False),
        "value_part": ("numbers", None, False),
        "cross_part": ("numbers", None, False),
        "decode_us": ("numbers", None, False),
    },
    Arm: {
        "rotation": ("string", None, False),
        "clip_ratio": ("number", None, False),
        "calibration": ("object", Calibration, False),
        "summary": ("object", Summary, False),
        "trials": ("object", Trials, False),
    },
    Storage: {
        "codes_bytes": ("uint", None, False),
        "metadata_bytes": ("uint", None, False),
        "window_bytes": ("uint", None, False),
        "bits_per_element": ("number", None, False),
    },
    Measurements: {
        "selected": ("string", None, False),
        "null_check_bound": ("number", None, False),
        "null_checks": ("rows", NullCheck, False),
        "arms": ("rows", Arm, False),
        "storage": ("object", Storage, False),
    },
    Claim: {
        "metric": ("string", None, False),
        "candidate": ("string", None, False),
        "baseline": ("string", None, False),
        "statistic": ("string", None, False),
        "value": ("number", None, False),
        "low": ("number", None, False),
        "high": ("number", None, False),
        "method": ("string", None, False),
        "level": ("number", None, False),
        "resamples": ("uint", None, False),
        "seed": ("uint", None, False),
    },
    Record: {
        "contract_version": ("string", None, False),
        "recipe": ("object", Recipe, False),
        "workload": ("object", Workload, False),
        "protocol": ("object", Protocol, False),
        "environment": ("object", Environment, False),
        "artifacts": ("rows", Artifact, False),
        "evidence": ("string", None, False),
        "measurements": ("object", Measurements, True),
        "claims": ("rows", Claim, False),
        "witness_sha256": ("string", None, False),
    },
}
