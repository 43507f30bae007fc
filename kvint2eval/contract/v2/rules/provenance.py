"""Step 4: workload, environment and artifacts say what was run, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding
from kvint2eval.files.digest import DIGEST_LENGTH, is_digest
from kvint2eval.files.paths import is_safe_path
from kvint2eval.pins.roles import ROLES_V2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


DIMENSION_NOT_POSITIVE = Code(
    "dimension-not-positive",
    Reason.INCOMPLETE_PROVENANCE,
    "A size of the workload is 0.",
    "Write the size that was run.",
    '"tokens": 0',
    v2=4,
)
HEADS_NOT_GROUPED = Code(
    "heads-not-grouped",
    Reason.INCOMPLETE_PROVENANCE,
    "The query heads are no multiple of the KV heads.",
    "Write the head counts of the model.",
    "6 query heads over 4 KV heads",
    v2=4,
)
WORKLOAD_ORIGIN = Code(
    "workload-origin",
    Reason.INCOMPLETE_PROVENANCE,
    "The workload is neither or both of a synthetic slice and a trace.",
    "Describe the one that was run.",
    "synthetic and trace both null beside trials",
    v2=4,
)


def check_workload(subject: SubjectV2) -> Finding | None:
    """Step 4: the workload has a size and one origin."""
    workload = subject.record.workload
    for name in ("tokens", "kv_heads", "query_heads", "head_dimension", "output_dimension"):
        if getattr(workload, name) == 0:
            return finding(DIMENSION_NOT_POSITIVE, f"/workload/{name}", 0, "at least 1")
    if workload.query_heads is not None and workload.query_heads % workload.kv_heads:
        allowed = f"a multiple of the {workload.kv_heads} KV heads"
        return finding(HEADS_NOT_GROUPED, "/workload/query_heads", workload.query_heads, allowed)
    if workload.synthetic is not None and workload.trace is not None:
        return finding(WORKLOAD_ORIGIN, "/workload/trace", {}, "null beside a synthetic slice")
    if (workload.synthetic or workload.trace) is None and subject.record.measurements is not None:
        return finding(WORKLOAD_ORIGIN, "/workload/synthetic", None, "a synthetic slice or a trace")
    return None


def _texts(record: layout.Record) -> Iterator[tuple[str, str | None]]:
    """Texts that may be unknown but not empty."""
    workload, environment = record.workload, record.environment
    names = ("runtime", "os", "python", "numpy", "cupy", "cuda", "driver", "gpu", "compute_capability")
    for name in names:
        yield f"/environment/{name}", getattr(environment, name)
    if workload.synthetic is not None:
        yield "/workload/synthetic/generator", workload.synthetic.generator
    if workload.trace is not None:
        for name in ("model_id", "revision", "captured_by"):
            yield f"/workload/trace/{name}", getattr(workload.trace, name)
    yield "/protocol/name", record.protocol.name
    for index, artifact in enumerate(record.artifacts):
        for name in ("id", "version", "path", "unbindable"):
            yield f"/artifacts/{index}/{name}", getattr(artifact, name)


TEXT_EMPTY = Code(
    "text-empty",
    Reason.INCOMPLETE_PROVENANCE,
    "A text is empty.",
    "Write it; where the contract allows an unknown value, null.",
    '"driver": ""',
    v2=4,
)


def check_texts(subject: SubjectV2) -> Finding | None:
    """Step 4: no text is empty; what is unknown is null."""
    for pointer, text in _texts(subject.record):
        if text == "":
            return finding(TEXT_EMPTY, pointer, text, "a text, or null where the contract allows it")
    return None


def _digests(record: layout.Record) -> Iterator[tuple[str, str]]:
    for index, artifact in enumerate(record.artifacts):
        yield f"/artifacts/{index}/sha256", artifact.sha256
    for index, rotation in enumerate(record.recipe.rotations or ()):
        yield f"/recipe/rotations/{index}/key_sha256", rotation.key_sha256
        yield f"/recipe/rotations/{index}/value_sha256", rotation.value_sha256
    if record.workload.trace is not None:
        yield "/workload/trace/manifest_sha256", record.workload.trace.manifest_sha256
        yield "/workload/trace/weights_sha256", record.workload.trace.weights_sha256


DIGEST_MALFORMED = Code(
    "digest-malformed",
    Reason.INCOMPLETE_PROVENANCE,
    "A digest is not 64 lower-case hexadecimal characters.",
    "kvint2eval digest PATH prints a digest in this form.",
    "a digest in upper case",
    v2=4,
)


def check_digests(subject: SubjectV2) -> Finding | None:
    """Step 4: each digest is 64 lower-case hexadecimal characters."""
    for pointer, digest in _digests(subject.record):
        if not is_digest(digest):
            allowed = "64 lower-case hexadecimal characters"
            if is_digest(digest.lower()):
                allowed += "; this one is in upper case"
            elif len(digest) != DIGEST_LENGTH:
                allowed += f"; this one has {len(digest)}"
            return finding(DIGEST_MALFORMED, pointer, digest, allowed)
    return None


ARTIFACT_ROLE = Code(
    "artifact-role",
    Reason.INCOMPLETE_PROVENANCE,
    "An artifact's role is not one that the contract knows.",
    "Write one of the roles that are allowed.",
    '"role": "notes"',
    v2=4,
)
ARTIFACT_BINDING = Code(
    "artifact-binding",
    Reason.INCOMPLETE_PROVENANCE,
    "An artifact has neither or both of a path and a reason why it cannot be bound.",
    "Give the path of a file of the repository, else say why there is none.",
    "path and unbindable both null",
    v2=4,
)
ARTIFACT_PATH = Code(
    "artifact-path",
    Reason.INCOMPLETE_PROVENANCE,
    "An artifact's path could lead out of the repository.",
    "Write it relative to the repository's root, with /.",
    '"path": "../producer.cu"',
    v2=4,
)
ARTIFACT_MISSING = Code(
    "artifact-missing",
    Reason.INCOMPLETE_PROVENANCE,
    "No artifact has a role that the record needs.",
    "Name producer and paper, and the compiled kernels of a CUDA run.",
    "a CUDA record without kernel",
    v2=4,
)


KERNEL_AS_TEXT = Code(
    "kernel-as-text",
    Reason.INCOMPLETE_PROVENANCE,
    "A compiled kernel is declared as text: hashed in LF form, two different binaries can have one digest.",
    "Hash the bytes of a kernel as they are: text is false.",
    '"role": "kernel", "text": true',
    v2=4,
)
AS_BYTES = ("kernel", "weights")
"""Roles whose files are binary."""


def check_artifacts(subject: SubjectV2) -> Finding | None:
    """Step 4: producer, paper and, for CUDA, the kernels are named; an artifact can be bound or says why not."""
    artifacts = subject.record.artifacts
    for index, artifact in enumerate(artifacts):
        if artifact.role not in ROLES_V2:
            allowed = f"one of {', '.join(ROLES_V2)}"
            return finding(ARTIFACT_ROLE, f"/artifacts/{index}/role", artifact.role, allowed)
        if (artifact.path is None) == (artifact.unbindable is None):
            found = "neither" if artifact.path is None else "both"
            allowed = f"one of path and unbindable; this artifact has {found}"
            return finding(ARTIFACT_BINDING, f"/artifacts/{index}/path", artifact.path, allowed)
        if artifact.text and artifact.role in AS_BYTES:
            return finding(KERNEL_AS_TEXT, f"/artifacts/{index}/text", artifact.text, "false: a binary file")
        if artifact.path is not None and not is_safe_path(artifact.path):
            allowed = "a relative path with / below the repository's root"
            return finding(ARTIFACT_PATH, f"/artifacts/{index}/path", artifact.path, allowed)
    roles = {artifact.role for artifact in artifacts}
    needed = ["producer", "paper"] + ["kernel"] * (subject.record.environment.runtime == "cuda")
    for role in needed:
        if role not in roles:
            return finding(ARTIFACT_MISSING, "/artifacts", sorted(roles), f"an artifact of role {role}")
    return None


RULES: tuple[RuleV2, ...] = (check_workload, check_texts, check_digests, check_artifacts)
