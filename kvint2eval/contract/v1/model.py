"""Contract `kvint2eval/v1`: the public models of a record.

These pydantic models are the one declaration of the record's layout. From them are generated, and compared by
the tests, the published JSON Schema (`v1.schema.json`) and the decoder of the hot path (`_decoder.py`).

The models check the layout alone: the type of each member, its integer range, and that no member is
unknown. A member that is absent is not malformed; it takes the value that the witness digest gives it (an
empty string, 0, no candidates), and `model_fields_set` tells that it was absent. What the values must be is
judged by `kvint2eval.contract.v1.rules`.

The members stand in *declared order*, and the witness digest depends on that order.

Limits: a model does not see the bytes. Duplicate members, negative zeros and the other refusals of section 4
of the contract belong to `kvint2eval.strict_json.parse`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CONTRACT_VERSION",
    "Candidate",
    "Hardware",
    "Int64",
    "Metrics",
    "Number",
    "Pin",
    "Recipe",
    "Record",
    "Runtime",
    "UInt64",
]

CONTRACT_VERSION = "kvint2eval/v1"

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""A signed 64-bit integer."""

UInt64 = Annotated[int, Field(ge=0, le=2**64 - 1)]
"""An unsigned 64-bit integer."""

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


class Pin(_Closed):
    """What an artifact is, by name, version and digest."""

    id: str = ""
    """Name of the artifact, for example `arxiv:2608.02691`."""
    version: str = ""
    """Version of the artifact."""
    sha256: str = ""
    """SHA-256 of the artifact, 64 lower-case hexadecimal characters."""


class Runtime(_Closed):
    """What executed the evaluation."""

    name: str = ""
    """`cuda` for an observation that can be supported."""
    version: str = ""
    """Version of the runtime."""
    driver: str = ""
    """Version of the driver."""
    kernel: str = ""
    """Name of the compiled program."""
    sha256: str = ""
    """SHA-256 of the compiled program, 64 lower-case hexadecimal characters."""


class Hardware(_Closed):
    """The machine, and the envelope of the evaluated model."""

    os: str = ""
    """Operating system, with its version."""
    gpu: str = ""
    """Name of the GPU as the driver gives it."""
    gpu_memory_bytes: UInt64 = 0
    """Memory of the GPU, bytes."""
    context_tokens: Int64 = 0
    """Tokens in the cache."""
    kv_heads: Int64 = 0
    """Key and value heads."""
    head_dimension: Int64 = 0
    """Channels of one head."""
    output_dimension: Int64 = 0
    """Columns of the output projection W_O."""
    seed: UInt64 = 0
    """Seed of the random stream; 0 counts as none."""


class Recipe(_Closed):
    """What was computed."""

    method: str = ""
    """`optr-output-aware-int2`."""
    baseline: str = ""
    """`identity-rotation-int2`."""
    bits: Int64 = 0
    """Bits of a code: 2."""
    group_size: Int64 = 0
    """Values that share a scale: 128."""
    key_granularity: str = ""
    """`per-token-group`."""
    value_granularity: str = ""
    """`per-token-group`."""
    objective: str = ""
    """`post-wo-attention-output-nmse`."""


class Candidate(_Closed):
    """One rotation with the clip ratio that its search chose. Standard deviations divide by n."""

    rotation: Int64 = 0
    """Number of the rotation; 0 is the identity, the baseline."""
    clip_ratio: Number = 0.0
    """Chosen clip ratio, in (0, 1]."""
    calibration_milliseconds: Number = 0.0
    """Time of rotation, clip search and quantization, ms."""
    output_nmse_mean: Number = 0.0
    """Mean over the decode trials of the normalised squared error of the projected output."""
    output_nmse_stddev: Number = 0.0
    """Population standard deviation of the same."""
    task_accuracy_mean: Number = 0.0
    """Share of the decode trials that passed the one-bit task."""
    task_accuracy_stddev: Number = 0.0
    """Population standard deviation of the same."""
    decode_microseconds_mean: Number = 0.0
    """Mean time of one decode step, µs."""
    decode_microseconds_stddev: Number = 0.0
    """Population standard deviation of the same, µs."""


class Metrics(_Closed):
    """What was measured."""

    candidate_count: Int64 = 0
    """Number of candidate rows."""
    decode_trials: Int64 = 0
    """Trials that each mean and deviation is taken over."""
    selected_rotation: Int64 = 0
    """Rotation of the selected row."""
    candidates: tuple[Candidate, ...] | None = None
    """The rows, one a rotation; null counts as absent."""
    transform_milliseconds: Number = 0.0
    """`calibration_milliseconds` of the selected row, ms."""
    cache_bytes: Int64 = 0
    """Packed K and V codes, bytes."""
    baseline_output_nmse: Number = 0.0
    """`output_nmse_mean` of rotation 0."""
    candidate_output_nmse: Number = 0.0
    """`output_nmse_mean` of the selected row."""
    baseline_task_accuracy: Number = 0.0
    """`task_accuracy_mean` of rotation 0."""
    candidate_task_accuracy: Number = 0.0
    """`task_accuracy_mean` of the selected row."""
    baseline_decode_microseconds: Number = 0.0
    """`decode_microseconds_mean` of rotation 0, µs."""
    candidate_decode_microseconds: Number = 0.0
    """`decode_microseconds_mean` of the selected row, µs."""


class Record(_Closed):
    """One evaluation record of contract `kvint2eval/v1`."""

    contract_version: str = ""
    """`kvint2eval/v1`."""
    artifact: Pin = Pin()
    """The producer of the record."""
    recipe_artifact: Pin = Pin()
    """The publication of the recipe."""
    model: Pin = Pin()
    """The evaluated model."""
    runtime: Runtime = Runtime()
    """What executed the evaluation."""
    hardware: Hardware = Hardware()
    """The machine, and the envelope of the evaluated model."""
    recipe: Recipe = Recipe()
    """What was computed."""
    evidence: str = ""
    """`observed` or `modeled`."""
    metrics: Metrics = Metrics()
    """What was measured."""
    witness_sha256: str = ""
    """SHA-256 of the record's canonical bytes with this member empty."""
