"""The bridge to the adjudicator: builds v1 records, reads them, and says which computation a record names.

No other module of the producer imports `kvint2eval`.
"""

import dataclasses
import hashlib
import json
import os
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvint2eval import __version__, adjudicate, witness_v1
from kvint2eval.codes import REASONS, Reason
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
from kvint2eval.contract.v2.model import Record as RecordV2
from kvint2eval.errors import InputError
from kvint2eval.files.digest import open_regular, sha256_hex, sha256_text_file
from kvint2eval.files.inputs import read_record as read_record_bytes
from kvint2eval.files.inputs import stream_lines
from producer.environment import os_name
from producer.errors import RecordError, SpecError
from producer.spec import PROTOCOLS, PUBLISHED, ProtocolSpec, SliceSpec

if TYPE_CHECKING:
    from producer.backend.base import RuntimeInfo
    from producer.protocol import RunResult

__all__ = [
    "PRODUCER_ID",
    "RECIPE_ARTIFACT",
    "Delegation",
    "Record",
    "RecordV2",
    "build_record",
    "computation_of",
    "delegation",
    "package_version",
    "parse_record",
    "read_record_file",
    "read_record_lines",
    "record_text",
    "require_sound",
    "source_digest",
    "source_listing",
    "verdict_words",
    "witness_of",
]

PRODUCER_ID = "kvint2eval-producer"
_MODEL_ID = "synthetic-attention-slice"
_MODEL_VERSION = re.compile(
    r"(?P<protocol>[a-z]+)-v1 seed-(?P<seed>[0-9]+) calibration-(?P<calibration>[0-9]+)"
)
# The published record and the names by which it says what it is.
_PUBLISHED_ARTIFACT = ("kvint2eval-l4-output-aware-slice", "2")
_PUBLISHED_MODEL_ID = "synthetic-attention-head"
_PUBLISHED_MODEL_VERSION = re.compile(r"seed-(?P<seed>[0-9]+)-v2")
# The paper whose recipe is run, with the digest that the published record gives it.
RECIPE_ARTIFACT = Pin(
    id="arxiv:2608.02691",
    version="v2",
    sha256="6b4f915c212b0b3afaa4b5a8334805ff97e3c1c136c38d6f29d329ad024b9331",
)
# Verdicts on bytes that hold no v1 record.
_NO_RECORD = (Reason.MALFORMED_RECORD, Reason.UNKNOWN_CONTRACT)
# What the producer computes, whatever the protocol.
_RECIPE: dict[str, Any] = {
    "method": "optr-output-aware-int2",
    "baseline": "identity-rotation-int2",
    "bits": 2,
    "key_granularity": "per-token-group",
    "value_granularity": "per-token-group",
    "objective": "post-wo-attention-output-nmse",
}


def package_version() -> str:
    """Return the version of the distribution."""
    return __version__


@dataclasses.dataclass(frozen=True, slots=True)
class Delegation:
    """A typed result that hands the work on: the adjudicator's outcome and reason, and why."""

    outcome: str
    reason: str
    detail: str


def delegation(detail: str, *, modeled: bool = False) -> Delegation:
    """Return the delegate result for work that needs CUDA, or for figures that were modeled."""
    reason = Reason.MODELED_NOT_OBSERVED if modeled else Reason.RUNTIME_DELEGATION_REQUIRED
    return Delegation(REASONS[reason].outcome.value, reason.value, detail)


def source_listing() -> str:
    """Return the listing of the producer's source whose digest is `source_digest`."""
    root = Path(__file__).parent
    files = [path for path in root.rglob("*") if path.suffix in {".py", ".cu", ".cuh"}]
    names = {(Path("producer") / path.relative_to(root)).as_posix(): path for path in files}
    return "".join(f"{sha256_text_file(names[name])}  {name}\n" for name in sorted(names))


def source_digest() -> str:
    """Return the digest of the producer's source, reproducible from a checkout.

    Notes
    -----
    SHA-256 of a listing: for every ``.py``, ``.cu`` and ``.cuh`` file below ``producer/``, in byte order of its
    path, the SHA-256 of its text in LF form, two spaces, its path from the root of the project with ``/``, and a
    line end.
    In a checkout with LF line ends that is::

        find producer -name '*.py' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | xargs sha256sum | sha256sum
    """
    return sha256_hex(source_listing().encode())


def specification_digest(spec: SliceSpec, protocol: ProtocolSpec) -> str:
    """Return the digest of what a run computes: of the compact JSON of both specifications, names sorted."""
    both = {"slice": dataclasses.asdict(spec), "protocol": dataclasses.asdict(protocol)}
    return hashlib.sha256(json.dumps(both, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def build_record(result: "RunResult", runtime: "RuntimeInfo") -> Record:
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


def _metrics(result: "RunResult") -> Metrics:
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


def parse_record(data: bytes) -> "Record | RecordV2":
    """Return the record that bytes hold, of v1 or v2.

    Raises
    ------
    RecordError
        If they are no well-formed record of a known contract; the message says what was found, what is allowed,
        and where.
    """
    verdict = adjudicate(data)
    finding = verdict.finding
    if finding is not None and verdict.reason in _NO_RECORD:
        place = "" if finding.line is None else f", line {finding.line}, column {finding.column}"
        raise RecordError(
            f"{finding.code} at {finding.pointer or 'the record'}{place}: "
            f"found {finding.found}, allowed: {finding.allowed}"
        )
    return (RecordV2 if verdict.contract == "v2" else Record).model_validate_json(data)


def read_record_file(path: str) -> "Record | RecordV2":
    """Return the record in a file, of v1 or v2.

    Raises
    ------
    RecordError
        If the file cannot be read, or holds no well-formed record.
    """
    try:
        data = read_record_bytes(path)
    except InputError as error:
        raise RecordError(str(error)) from error
    return parse_record(data)


def read_record_lines(path: str) -> "list[Record | RecordV2]":
    """Return the records of a JSON Lines file, of v1 or v2; empty lines are passed over.

    Raises
    ------
    RecordError
        If the file cannot be read, holds no record, or a line holds no well-formed one.
    """
    records = []
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            for number, line in enumerate(chain.from_iterable(stream_lines(stream)), 1):
                if not line.strip():
                    continue
                try:
                    records.append(parse_record(line))
                except RecordError as error:
                    raise RecordError(f"{path}, line {number}: {error}") from error
    except InputError as error:
        raise RecordError(str(error)) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    if not records:
        raise RecordError(f"{path}: found no record, allowed: one a line")
    return records


def require_sound(path: str) -> None:
    """Raise `RecordError` unless the adjudicator refuses no record of a file, one record or JSON Lines."""
    with os.fdopen(open_regular(path), "rb") as stream:
        content = stream.read()
    lines = content.splitlines() if path.endswith(".jsonl") else [content]
    for number, line in enumerate(lines, 1):
        outcome, code = verdict_words(line) if line.strip() else ("", "")
        if outcome == "unsupported":
            where = f"{path}, line {number}" if path.endswith(".jsonl") else path
            raise RecordError(f"{where}: unsupported: {code}; allowed: a record that is not refused")


def verdict_words(data: bytes) -> tuple[str, str]:
    """Return what the adjudicator says of a record: its outcome, and the finding's code or an empty text."""
    verdict = adjudicate(data)
    return str(verdict.outcome), "" if verdict.finding is None else verdict.finding.code


def computation_of(record: Record) -> tuple[SliceSpec, ProtocolSpec]:
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


def _protocol_of(record: Record) -> ProtocolSpec:
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
