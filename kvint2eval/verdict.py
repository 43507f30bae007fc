"""Verdict types: the result of adjudication, and the input of all reporters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kvint2eval.codes import Code, Outcome, Reason

if TYPE_CHECKING:
    from kvint2eval.contract.v1 import model as v1
    from kvint2eval.contract.v2 import model as v2

__all__ = ["Basis", "Binding", "ClaimVerdict", "Finding", "Level", "Verdict"]

Level = Literal["bound", "declared", "mismatched"]


class Finding(msgspec.Struct, frozen=True):
    """The check that decided, with found, allowed and where."""

    code: Code
    """One of `kvint2eval.codes.FINDINGS`; a text."""
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
        return self.code.meaning

    @property
    def mend(self) -> str:
        """How to fix the record, one sentence."""
        return self.code.mend


class Binding(msgspec.Struct, frozen=True):
    """How much a digest of the record rests on."""

    role: str
    """v1: `artifact`, `recipe_artifact`, `model` or `runtime`; v2: the artifact's role."""
    sha256: str
    """The digest that the record states."""
    level: Level
    """`bound`: a file was rehashed and is equal. `declared`: no file to hash. `mismatched`: not equal."""
    path: str | None = None
    """The file that was hashed, as the pins name it."""
    why: str | None = None
    """Why the digest is only declared, or what is not equal."""


class ClaimVerdict(msgspec.Struct, frozen=True):
    """What became of one claim of a v2 record whose figures all hold."""

    pointer: str
    """JSON pointer of the claim."""
    metric: str
    """The claim's metric."""
    finding: Finding | None = None
    """Why the claim is refused; None for one that stands."""


class Basis(msgspec.Struct, frozen=True):
    """What the figures of a v2 record rest on."""

    recomputed: tuple[str, ...]
    """Recomputed from the record itself by the adjudicator."""
    reported: tuple[str, ...]
    """Only reported. `kvint2eval-producer rederive` computes the deterministic ones again; times and hardware stay."""


class _Arm(msgspec.Struct, frozen=True):
    """What is echoed of an arm."""

    rotation: str
    clip_ratio: float
    summary: dict[str, float]


class _Measurements(msgspec.Struct, frozen=True):
    """What is echoed of the measurements."""

    selected: str
    arms: list[_Arm]
    storage: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """One outcome with one reason.

    Limits: a verdict does not say that the figures are true. v1 holds summaries and a digest of itself; v2 holds
    trials, from which the summaries follow, and which anyone can invent.
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
    """v1: canonical bytes of the record with an empty witness; v2: its RFC 8785 form without the witness. Empty when
    the bytes have no known layout."""
    contract: Literal["v1", "v2"] | None = None
    """The contract whose layout the record has; None where the bytes have no known one."""
    claims: tuple[ClaimVerdict, ...] | None = None
    """v2: one a claim; None when the steps ended before them."""
    basis: Basis | None = None
    """v2: what the figures of a supported or delegated observation rest on."""
    signers: tuple[str, ...] | None = None
    """Key ids of the policy whose signatures were verified; None without a policy."""

    @property
    def echo(self) -> dict[str, Any]:
        """The record as read, without its witness.

        v1: contract version, pins, runtime, hardware, recipe and evidence; metrics only when supported. v2: all but
        the measurements; the summaries, the storage and the claims that stand only when supported. Empty for bytes
        without a known layout.
        """
        if not self.canonical:
            return {}
        if self.contract == "v2":
            return self._echo_v2()
        members: dict[str, Any] = msgspec.json.decode(self.canonical)
        del members["witness_sha256"]
        if self.outcome is not Outcome.SUPPORTED:
            del members["metrics"]
        return members

    def _echo_v2(self) -> dict[str, Any]:
        parts = msgspec.json.decode(self.canonical, type=dict[str, msgspec.Raw])
        measurements, claims = parts.pop("measurements"), parts.pop("claims")
        members: dict[str, Any] = {name: msgspec.json.decode(part) for name, part in parts.items()}
        if self.outcome is Outcome.SUPPORTED:
            # The columns of the trials are most of a record: they are stepped over, not read.
            members["measurements"] = msgspec.to_builtins(
                msgspec.json.decode(measurements, type=_Measurements)
            )
            stands = [verdict.finding is None for verdict in self.claims or ()]
            stated = msgspec.json.decode(claims)
            members["claims"] = [claim for claim, one in zip(stated, stands, strict=True) if one]
        return members

    @property
    def record(self) -> v1.Record | v2.Record | None:
        """The record, for a supported one; None for any other, whose figures must not be used.

        Of a v2 record only the claims count that `claims` lets stand.
        """
        if self.outcome is not Outcome.SUPPORTED:
            return None
        members = {**msgspec.json.decode(self.canonical), "witness_sha256": self.witness_sha256}
        text = msgspec.json.encode(members)
        # pydantic takes longer to import than all the rest
        if self.contract == "v2":
            from kvint2eval.contract.v2 import model as v2  # noqa: PLC0415

            return v2.Record.model_validate_json(text)
        from kvint2eval.contract.v1 import model as v1  # noqa: PLC0415

        return v1.Record.model_validate_json(text)
