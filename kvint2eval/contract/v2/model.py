"""Contract `kvint2eval/v2`: the public models of a record.

These pydantic models are the one declaration of the record's layout. From them are generated, and compared by
the tests, the published JSON Schema (`v2.schema.json`) and the decoder (`_decoder.py`).

Every member must be present. A member whose type includes null may be unknown: in `environment` always, in
`recipe`, `workload` and `protocol` only in a record without measurements (a skeleton), which is delegated.

Trials stand in columns, one list a quantity, because a record has hundreds of them. What the values must be is
judged by `kvint2eval.contract.v2.rules`; docs/reference/contract-v2.md describes each member.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CONTRACT_VERSION",
    "Arm",
    "Artifact",
    "Calibration",
    "Claim",
    "Dialect",
    "Environment",
    "Measurements",
    "NullCheck",
    "Number",
    "Protocol",
    "Recipe",
    "Record",
    "Rotation",
    "Storage",
    "Summary",
    "Synthetic",
    "Trace",
    "Trials",
    "UInt",
    "Workload",
]

CONTRACT_VERSION = "kvint2eval/v2"

UInt = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""An integer that every JSON reader holds exactly: beyond 2**53 two integers would be signed alike."""

Number = Annotated[float, Field(allow_inf_nan=False)]
"""A binary64 number, finite."""


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _take_arrays(cls, members: Any) -> Any:
        """Members with each list, which is what `json.loads` makes of an array, as the tuple that stays as it is."""
        if not isinstance(members, dict):
            return members
        return {name: _as_tuples(value) for name, value in members.items()}


class Dialect(_Closed):
    """The exact numerics of the quantizer: one name is used in public for several computations."""

    id: str
    """Name of the dialect in the registry, `kvint2eval.contract.v2.registry`."""
    clip_kind: str
    """`range-multiplier`, `order-statistic`, `binary-search`, `midpoint-shrink` or `none`."""
    clip_scope: str
    """`group`, `row` or `none`: over which values a clip is taken."""
    zero_point: str
    """`none`, `float`, `integer`, `minimum` or `mean`: what is stored beside the scale."""
    rounding: str
    """`half-even`, `half-up` or `thresholds`."""
    range_floor: Number
    """What keeps the scale of a constant group above zero; 0 where nothing does, or nothing has to."""
    metadata_dtype: str
    """Type of a stored scalar: `float32`, `float16` or `bfloat16`."""
    metadata_scalars: UInt
    """Stored scalars a group: 1 for a scale alone, 2 with a zero point, minimum or mean."""
    dequantization_dtype: str
    """Type of the dequantization's arithmetic."""
    packing: str
    """Order of the codes in memory: `consecutive`, `quartered` or `int32`."""
    fingerprint_sha256: str
    """Digest of the dialect's codes, scales and outputs on the golden inputs that the project ships."""


class Rotation(_Closed):
    """One rotation. Two digests: of the rotation of keys and of that of values."""

    id: str
    """Name inside the record."""
    construction: str
    """How it was made: `identity`, `hadamard`, `signed-hadamard`, `quarot`, `oscar`, `optr`, `balanced` or `file`."""
    seed: UInt | None
    """Seed of its random part; null where it has none."""
    key_sha256: str
    """SHA-256 of the float32 bytes of the key rotation, up to sign, of all heads where each has its own."""
    value_sha256: str
    """The same of the value rotation."""


class Recipe(_Closed):
    """What was computed."""

    method: str
    """The method that is put forward, by its name in the registry."""
    bits: UInt
    """Bits of a code: 2."""
    group_size: UInt
    """Values that share a scale; divides the head dimension."""
    key_granularity: str
    """`per-token-group`, or `per-channel-group` where the dialect groups keys along tokens."""
    value_granularity: str
    """`per-token-group`."""
    dialect: Dialect | None
    """The quantizer's numerics."""
    key_centring: str | None
    """`none`, or `channel-mean`: the mean key is subtracted before rotation."""
    sink_tokens: UInt | None
    """First tokens that are kept unquantized."""
    recent_tokens: UInt | None
    """Last tokens that are kept unquantized."""
    window_dtype: str | None
    """Type in which they are kept: `float32`, `float16` or `bfloat16`."""
    clip_grid: tuple[Number, ...] | None
    """Clip ratios of the search, falling, each in (0, 1]; 1 alone where the dialect has no clip."""
    clip_grid_size: UInt | None
    """Number of clip ratios that were meant to be searched."""
    objective: str
    """`post-wo-attention-output-nmse`."""
    baseline: str | None
    """Id of the rotation that is the baseline arm."""
    rotations: tuple[Rotation, ...] | None
    """All rotations that were searched, the baseline's among them."""
    rotation_count: UInt | None
    """Number of rotations that were meant to be searched."""


class Synthetic(_Closed):
    """A generated attention slice."""

    generator: str
    """Name of the generator."""
    seed: UInt
    """Seed of its random stream."""
    outlier_stride: UInt
    """Every so-manieth value is an outlier; 0 for none."""
    outlier_factor: Number
    """What an outlier is multiplied by."""


class Trace(_Closed):
    """A captured trace."""

    manifest_sha256: str
    """SHA-256 of the trace's manifest."""
    model_id: str
    """Model that the trace was captured from."""
    revision: str
    """Revision of the model."""
    weights_sha256: str
    """SHA-256 of the model's weights."""
    layer: UInt
    """Layer, from 0."""
    head: UInt
    """First KV head, from 0."""
    captured_by: str
    """How it was captured."""


class Workload(_Closed):
    """What the cache held. Exactly one of `synthetic` and `trace`."""

    synthetic: Synthetic | None
    """A generated slice."""
    trace: Trace | None
    """A captured trace."""
    tokens: UInt
    """Tokens in the cache."""
    kv_heads: UInt
    """Key and value heads."""
    query_heads: UInt | None
    """Query heads; a multiple of `kv_heads`."""
    head_dimension: UInt
    """Channels of one head."""
    output_dimension: UInt
    """Columns of the output projection W_O."""


class Protocol(_Closed):
    """How the arms were searched, selected, evaluated and timed."""

    name: str | None
    """Name of the protocol."""
    calibration_queries: tuple[str, ...] | None
    """Ids of the queries, or sequences, that the search read."""
    evaluation_queries: tuple[str, ...] | None
    """Ids of the queries, or sequences, of the trials, one a trial."""
    arms_share_queries: bool | None
    """Whether all arms saw the same queries."""
    selection_reads: str | None
    """What the selection of the rotation read: `calibration`."""
    trials: UInt | None
    """Number of trials of each arm."""
    clock: str | None
    """`cuda-event` or `host`."""
    warmup: UInt | None
    """Untimed executions before the first timed one."""
    repeats: UInt | None
    """Executions a trial that are timed together; the recorded time is their mean."""
    synchronised: bool | None
    """Whether the clock waited for the device."""


class Environment(_Closed):
    """Where it ran. What could not be read is null, never a guess."""

    runtime: str
    """`cuda` or `numpy`."""
    os: str | None
    """Operating system, with its version."""
    python: str | None
    """Version of Python."""
    numpy: str | None
    """Version of NumPy."""
    cupy: str | None
    """Version of CuPy."""
    cuda: str | None
    """Version of the CUDA runtime."""
    driver: str | None
    """Version of the driver."""
    gpu: str | None
    """Name of the GPU as the driver gives it."""
    gpu_memory_bytes: UInt | None
    """Memory of the GPU, bytes."""
    compute_capability: str | None
    """Compute capability of the GPU, for example `8.9`."""


class Artifact(_Closed):
    """A file that the record rests on. Exactly one of `path` and `unbindable`."""

    role: str
    """`producer`, `paper`, `kernel-source`, `kernel`, `weights` or `file`."""
    id: str
    """Name of the artifact."""
    version: str | None
    """Version of the artifact."""
    path: str | None
    """Path below the repository's root, with `/`: the digest can be bound."""
    text: bool
    """Whether the file is hashed in LF form."""
    sha256: str
    """SHA-256 of the artifact."""
    unbindable: str | None
    """Why the digest cannot be bound, for an artifact that is not in the repository."""


class NullCheck(_Closed):
    """The error of a rotation alone, without quantization."""

    rotation: str
    """Id of the rotation."""
    nmse: Number
    """Largest output NMSE of a calibration query against the unrotated attention."""


class Calibration(_Closed):
    """The clip search of one arm, by clip ratio in the order of the grid."""

    clip_ratio: tuple[Number, ...]
    """Clip ratios, the grid again."""
    objective: tuple[Number, ...]
    """Mean of `query_nmse` over the calibration queries."""
    query_nmse: tuple[tuple[Number, ...], ...]
    """Output NMSE by clip ratio and calibration query."""


class Summary(_Closed):
    """What the trials of an arm give."""

    nmse_mean: Number
    """Mean output NMSE."""
    nmse_stddev: Number
    """Population standard deviation of the output NMSE."""
    decode_us_median: Number
    """Median decode time, µs."""


class Trials(_Closed):
    """The trials of one arm, in columns of equal length."""

    query: tuple[str, ...]
    """Id of the query, or, of a trace, of the sequence whose last queries are one trial."""
    nmse: tuple[Number, ...]
    """numerator / (denominator + 1e-30)."""
    numerator: tuple[Number, ...]
    """Squared error of the projected output, summed."""
    denominator: tuple[Number, ...]
    """Sum of squares of the unquantized output: the same for all arms."""
    key_part: tuple[Number, ...]
    """Squared norm of the error that quantized keys cause (OptR, equation 8, first term)."""
    value_part: tuple[Number, ...]
    """Squared norm of the error that quantized values cause (OptR, equation 8, second term)."""
    cross_part: tuple[Number, ...]
    """Twice the inner product of the two errors."""
    decode_us: tuple[Number, ...]
    """Time of one decode step, µs."""


class Arm(_Closed):
    """One candidate: a rotation with the clip ratio that its search chose."""

    rotation: str
    """Id of the rotation."""
    clip_ratio: Number
    """Chosen clip ratio."""
    calibration: Calibration
    """The search."""
    summary: Summary
    """Summaries of the trials."""
    trials: Trials
    """The trials."""


class Storage(_Closed):
    """The cache as stored, measured from the arrays of one arm; every arm stores the same."""

    codes_bytes: UInt
    """Packed codes of keys and values, bytes."""
    metadata_bytes: UInt
    """Scales and zero points of keys and values, bytes."""
    window_bytes: UInt
    """Unquantized tokens, bytes."""
    bits_per_element: Number
    """All of it over the elements of keys and values."""


class Measurements(_Closed):
    """What was measured."""

    selected: str
    """Id of the rotation that was selected."""
    null_check_bound: Number
    """Bound of the null checks: 1e-9."""
    null_checks: tuple[NullCheck, ...]
    """One a rotation."""
    arms: tuple[Arm, ...]
    """One a rotation, the baseline among them."""
    storage: Storage
    """The cache as stored."""


class Claim(_Closed):
    """What the record asserts: that the selected arm is better than the baseline in one metric."""

    metric: str
    """`output_nmse` or `decode_us`: less is better."""
    candidate: str
    """Rotation of the arm that is said to be better: the selected one."""
    baseline: str
    """Rotation of the arm that it is compared with."""
    statistic: str
    """`mean-difference`: mean over the trials of baseline minus candidate."""
    value: Number
    """The statistic."""
    low: Number
    """Lower end of its interval."""
    high: Number
    """Upper end of its interval."""
    method: str
    """`paired-percentile-bootstrap`."""
    level: Number
    """Level of the interval: 0.9, 0.95 or 0.99."""
    resamples: UInt
    """Resamples of the trials: 2000."""
    seed: UInt
    """Seed of the index stream, as the figures give it."""


class Record(_Closed):
    """One evaluation record of contract `kvint2eval/v2`."""

    contract_version: str
    """`kvint2eval/v2`."""
    recipe: Recipe
    """What was computed."""
    workload: Workload
    """What the cache held."""
    protocol: Protocol
    """How the arms were searched, selected, evaluated and timed."""
    environment: Environment
    """Where it ran."""
    artifacts: tuple[Artifact, ...]
    """The files that the record rests on."""
    evidence: str
    """`observed` or `modeled`."""
    measurements: Measurements | None
    """What was measured; null when nothing is known of it."""
    claims: tuple[Claim, ...]
    """What the record asserts."""
    witness_sha256: str
    """SHA-256 of the RFC 8785 form of the record without this member."""
