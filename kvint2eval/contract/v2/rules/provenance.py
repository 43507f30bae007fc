"""Step 4: workload, environment and artifacts say what was run, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding
from kvint2eval.files.digest import DIGEST_LENGTH, is_digest
from kvint2eval.files.paths import is_safe_path
from kvint2eval.pins.roles import ROLES_V2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_workload(subject: SubjectV2) -> Finding | None:
    """Step 4: the workload has a size and one origin."""
    workload = subject.record.workload
    for name in ("tokens", "kv_heads", "query_heads", "head_dimension", "output_dimension"):
        if getattr(workload, name) == 0:
            return finding("dimension-not-positive", f"/workload/{name}", 0, "at least 1")
    if workload.query_heads is not None and workload.query_heads % workload.kv_heads:
        allowed = f"a multiple of the {workload.kv_heads} KV heads"
        return finding("heads-not-grouped", "/workload/query_heads", workload.query_heads, allowed)
    if workload.synthetic is not None and workload.trace is not None:
        return finding("workload-origin", "/workload/trace", {}, "null beside a synthetic slice")
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


def check_texts(subject: SubjectV2) -> Finding | None:
    """Step 4: no text is empty; what is unknown is null."""
    for pointer, text in _texts(subject.record):
        if text == "":
            return finding("text-empty", pointer, text, "a text, or null where the contract allows it")
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


def check_digests(subject: SubjectV2) -> Finding | None:
    """Step 4: each digest is 64 lower-case hexadecimal characters."""
    for pointer, digest in _digests(subject.record):
        if not is_digest(digest):
            allowed = "64 lower-case hexadecimal characters"
            if is_digest(digest.lower()):
                allowed += "; this one is in upper case"
            elif len(digest) != DIGEST_LENGTH:
                allowed += f"; this one has {len(digest)}"
            return finding("digest-malformed", pointer, digest, allowed)
    return None


def check_artifacts(subject: SubjectV2) -> Finding | None:
    """Step 4: producer, paper and, for CUDA, the kernels are named; an artifact can be bound or says why not."""
    artifacts = subject.record.artifacts
    for index, artifact in enumerate(artifacts):
        if artifact.role not in ROLES_V2:
            allowed = f"one of {', '.join(ROLES_V2)}"
            return finding("artifact-role", f"/artifacts/{index}/role", artifact.role, allowed)
        if (artifact.path is None) == (artifact.unbindable is None):
            found = "neither" if artifact.path is None else "both"
            allowed = f"one of path and unbindable; this artifact has {found}"
            return finding("artifact-binding", f"/artifacts/{index}/path", artifact.path, allowed)
        if artifact.path is not None and not is_safe_path(artifact.path):
            allowed = "a relative path with / below the repository's root"
            return finding("artifact-path", f"/artifacts/{index}/path", artifact.path, allowed)
    roles = {artifact.role for artifact in artifacts}
    needed = ["producer", "paper"] + ["kernel"] * (subject.record.environment.runtime == "cuda")
    for role in needed:
        if role not in roles:
            return finding("artifact-missing", "/artifacts", sorted(roles), f"an artifact of role {role}")
    return None


RULES: tuple[RuleV2, ...] = (check_workload, check_texts, check_digests, check_artifacts)
