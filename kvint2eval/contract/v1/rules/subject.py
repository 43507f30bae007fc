"""The subject of a rule, and the helpers that make its finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import astuple

from kvint2eval.contract.v1.canonical import canonical_v1_of_layout
from kvint2eval.files.digest import sha256_hex
from kvint2eval.strict_json.describe import describe
from kvint2eval.verdict import Binding, Finding

if TYPE_CHECKING:
    from kvint2eval.codes import Code
    from kvint2eval.contract.v1 import _decoder as layout
    from kvint2eval.pins.pins import Pins

__all__ = ["Columns", "Rule", "Subject", "described", "finding"]

Columns = tuple[tuple[Any, ...], ...]
"""The candidate rows by column, in declared order."""


class Subject:
    """A record under judgement.

    Parameters
    ----------
    record
        The record's layout.
    missing
        JSON pointers of the absent members.
    pins
        The pins that were given, or None.
    is_plain
        Whether the fast decoder read the record, which takes no negative number.
    """

    __slots__ = ("_canonical", "_columns", "_witness", "bindings", "is_plain", "missing", "pins", "record")

    def __init__(
        self, record: layout.Record, missing: frozenset[str], pins: Pins | None, *, is_plain: bool = True
    ) -> None:
        self.is_plain = is_plain
        self.record = record
        self.missing = missing
        self.pins = pins
        self.bindings: tuple[Binding, ...] | None = None
        self._columns: Columns | None = None
        self._canonical = b""
        self._witness = ""

    @property
    def columns(self) -> Columns:
        """The candidate rows by column, each a tuple in the order of the rows."""
        columns = self._columns
        if columns is None:
            rows = self.record.metrics.candidates
            columns = self._columns = tuple(zip(*map(astuple, rows or ()), strict=True))
        return columns

    @property
    def canonical(self) -> bytes:
        """Canonical bytes with an empty witness."""
        if not self._canonical:
            self._canonical = canonical_v1_of_layout(self.record)
        return self._canonical

    @property
    def sealed(self) -> bytes:
        """Canonical bytes with the witness that the record states, which is the form that needs no strict reading.

        A text equal to it has each member once and each number in one spelling.
        """
        stated = self.record.witness_sha256.encode()
        return self.canonical[: -len(b'"}')] + stated + b'"}'

    @property
    def witness(self) -> str:
        """Witness digest as computed."""
        if not self._witness:
            self._witness = sha256_hex(self.canonical)
        return self._witness

    @property
    def computed_witness(self) -> str:
        """Witness digest if it was computed, else empty."""
        return self._witness

    @property
    def producers(self) -> list[tuple[str, str]]:
        """Pointer and digest of the record's producer, which a policy has to allow."""
        return [("/artifact/sha256", self.record.artifact.sha256)]

    def is_missing(self, pointer: str) -> bool:
        """Whether a member, or an object that would hold it, is absent."""
        if not self.missing:
            return False
        while pointer:
            if pointer in self.missing:
                return True
            pointer = pointer.rpartition("/")[0]
        return False


Rule = Callable[[Subject], Finding | None]


def described(subject: Subject, pointer: str, value: Any) -> str:
    """What stands at a pointer, for the `found` of a finding."""
    if value is UNSET or subject.is_missing(pointer):
        return "nothing: the member is missing"
    return describe(value)


def finding(subject: Subject, code: Code, pointer: str, value: Any, allowed: str) -> Finding:
    """Finding about one member."""
    return Finding(code=code, pointer=pointer, found=described(subject, pointer, value), allowed=allowed)
