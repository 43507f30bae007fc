"""What every report is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvint2eval.codes import Outcome

if TYPE_CHECKING:
    from kvint2eval.verdict import Verdict

__all__ = ["Report", "Source", "Tally"]


class Source(NamedTuple):
    """Where a record came from."""

    path: str
    """The file, or `-` for standard input."""
    line: int | None = None
    """Line of the file for a record of JSON Lines, from 1."""


class Tally(NamedTuple):
    """How many records had which outcome, and how many inputs could not be judged."""

    supported: int = 0
    unsupported: int = 0
    delegate: int = 0
    errors: int = 0

    @property
    def records(self) -> int:
        """Number of records that got a verdict."""
        return self.supported + self.unsupported + self.delegate

    def plus(self, other: Tally) -> Tally:
        """Sum of two tallies."""
        return Tally(*(mine + its for mine, its in zip(self, other, strict=True)))

    def exit_code(self, *, accept_delegate: bool = False) -> int:
        """Exit code: 2 could not judge, 1 an unsupported record, 3 a delegated one, 0 all supported."""
        if self.errors or not self.records:
            return 2
        if self.unsupported:
            return 1
        return 3 if self.delegate and not accept_delegate else 0

    def sentence(self) -> str:
        """The tally in words."""
        outcomes = [(self.supported, Outcome.SUPPORTED), (self.unsupported, Outcome.UNSUPPORTED)]
        outcomes.append((self.delegate, Outcome.DELEGATE))
        counts = ", ".join(f"{count} {outcome}" for count, outcome in outcomes)
        failed = f"; {self.errors} not judged" if self.errors else ""
        return f"{self.records} record{'' if self.records == 1 else 's'}: {counts}{failed}"


class Report(Protocol):
    """A format: three pure functions whose outputs follow one another."""

    def start(self) -> bytes:
        """What stands before the first verdict."""

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:
        """One verdict."""

    def end(self, tally: Tally) -> bytes:
        """What stands after the last verdict."""
