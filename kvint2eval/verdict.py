"""What adjudication returns, and all that reporters see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvint2eval.codes import FINDINGS, Outcome, Reason

if TYPE_CHECKING:
    from kvint2eval.contract import v1

__all__ = ["Binding", "Finding", "Level", "Verdict"]

Level = Literal["bound", "declared", "mismatched"]


class Finding(msgspec.Struct, frozen=True):
    """The check that decided, with found, allowed and where."""

    code: str
    """One of `kvint2eval.codes.FINDINGS`."""
    pointer: str
    """JSON pointer of the member; empty for the whole record."""
    found: str
    """What stands there."""
    allowed: str
    """What may stand there."""
    line: int | None = None
    """Line in the input, from 1; None where the fault has no place."""
    column: int | None = None
    """Column, from 1, in code points."""

    @property
    def meaning(self) -> str:
        """What the finding means, one sentence."""
        return FINDINGS[self.code].meaning

    @property
    def mend(self) -> str:
        """How to mend the record, one sentence."""
        return FINDINGS[self.code].mend


class Binding(msgspec.Struct, frozen=True):
    """How much a digest of the record rests on."""

    role: str
    """`artifact`, `recipe_artifact`, `model` or `runtime`."""
    sha256: str
    """The digest that the record states."""
    level: Level
    """`bound`: a file was rehashed and is equal. `declared`: no file to hash. `mismatched`: not equal."""
    path: str | None = None
    """The file that was hashed, as the pins name it."""
    why: str | None = None
    """Why the digest is only declared, or what is not equal."""


class Verdict(msgspec.Struct, frozen=True):
    """One outcome with one reason.

    Limits: a verdict does not say that the figures are true. v1 holds summaries and a digest of itself.
    """

    outcome: Outcome
    """`supported`, `unsupported` or `delegate`."""
    reason: Reason
    """The contract's reason; it decides the outcome."""
    finding: Finding | None = None
    """The check that decided; None for a supported record."""
    detail: str = ""
    """For incomplete provenance the first part that is incomplete."""
    witness_sha256: str = ""
    """Witness digest as computed; empty when the steps ended before it was needed."""
    bindings: tuple[Binding, ...] | None = None
    """One per digest of the record; None when no pins were given, or the steps ended before them."""
    canonical: bytes = b""
    """Canonical bytes of the record with an empty witness; empty when it has no v1 layout."""

    @property
    def echo(self) -> dict[str, Any]:
        """Contract version, pins, runtime, hardware, recipe and evidence as read; metrics only when supported.

        Empty for a record without a v1 layout.
        """
        if not self.canonical:
            return {}
        members: dict[str, Any] = msgspec.json.decode(self.canonical)
        del members["witness_sha256"]
        if self.outcome is not Outcome.SUPPORTED:
            del members["metrics"]
        return members

    @property
    def record(self) -> v1.Record | None:
        """The record, for a supported one; None for any other, whose figures must not be used."""
        if self.outcome is not Outcome.SUPPORTED:
            return None
        from kvint2eval.contract import v1  # noqa: PLC0415  # pydantic takes longer to import than all the rest

        members = {**msgspec.json.decode(self.canonical), "witness_sha256": self.witness_sha256}
        return v1.Record.model_validate_json(msgspec.json.encode(members))
