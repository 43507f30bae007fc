"""Bindings of the digests of a v2 record: against pins, and against the files below a root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.files.names import quoted
from kvint2eval.pins.pins import UNNAMED
from kvint2eval.verdict import Binding, Finding

if TYPE_CHECKING:
    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root

__all__ = ["bind_v2"]


def bind_v2(
    record: layout.Record, pins: Pins | None, root: Root | None
) -> tuple[tuple[Binding, ...], Finding | None]:
    """How far each artifact of a record is bound, and the first that is mismatched.

    Parameters
    ----------
    record
        The record's layout; its digests are well-formed and its paths safe.
    pins
        Digests that are known from elsewhere, or None.
    root
        Where the record's paths are looked up, or None.

    Returns
    -------
    tuple of Binding
        One an artifact, in the order of the record.
    Finding or None
        The first mismatch.
    """
    bindings = []
    first = None
    for index, artifact in enumerate(record.artifacts):
        binding, mismatch = _bind(artifact, f"/artifacts/{index}/sha256", pins, root)
        bindings.append(binding)
        first = first or mismatch
    return tuple(bindings), first


def _bind(
    artifact: layout.Artifact, pointer: str, pins: Pins | None, root: Root | None
) -> tuple[Binding, Finding | None]:
    pinned = None
    if pins is not None:
        pinned = pins.bind_digest(
            artifact.role, artifact.id, artifact.version or "", artifact.sha256, pointer
        )
        if pinned[1] is not None or pinned[0].level == "bound":
            return pinned
    if artifact.path is not None and root is not None:
        return _bind_file(artifact, artifact.path, pointer, root)
    if pinned is not None and not (pinned[0].why or "").startswith(UNNAMED):
        return pinned
    why = artifact.unbindable or f"no root was given to look for {artifact.path}"
    return Binding(artifact.role, artifact.sha256, "declared", why=why), None


ARTIFACT_FILE_DIFFERS = Code(
    "artifact-file-differs",
    Reason.ARTIFACT_MISMATCH,
    "A file below the root has another digest than the record states.",
    "Restore the file, or run again.",
    "the producer was edited after the run",
    v2=16,
)
ARTIFACT_FILE_MISSING = Code(
    "artifact-file-missing",
    Reason.ARTIFACT_MISMATCH,
    "A file that the record names is not below the root, or is not a regular file.",
    "Restore the file, or declare the digest unbindable with a reason.",
    "the producer was moved",
    v2=16,
)


def _bind_file(
    artifact: layout.Artifact, path: str, pointer: str, root: Root
) -> tuple[Binding, Finding | None]:
    """Binding of an artifact to its file below the root."""
    stated = artifact.sha256
    found = root.digest(path, is_text=artifact.text)
    hint = "" if found == stated else root.hint(path, stated, is_text=artifact.text)
    if found == stated:
        return Binding(artifact.role, stated, "bound", path), None
    if found is None:
        why = "the file is missing"
        missing = f"no regular file {quoted(path)}{hint}"
        finding = Finding(ARTIFACT_FILE_MISSING, pointer, missing, "the file below the root")
    else:
        why = f"the file has {found}{hint}"
        allowed = f'"{found}", as {quoted(path)} has{hint}'
        finding = Finding(ARTIFACT_FILE_DIFFERS, pointer, f'"{stated}"', allowed)
    return Binding(artifact.role, stated, "mismatched", path, why), finding
