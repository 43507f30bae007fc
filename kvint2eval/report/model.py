"""Types that all reporters share: Source, Tally, Report."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from kvint2eval.codes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

ASIDE = b"\0"
"""Begins a line of a piece that the report shows elsewhere: in the step summary, or in its foot."""

__all__ = ["ASIDE", "CiReport", "Frame", "GateReport", "Report", "Tally"]


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


class Frame(Protocol):
    """What stands around the pieces of a report.

    Pieces are made by several processes and put together in order. What a format needs of the pieces before
    is therefore kept out of them: commas come from `separator`, counts go into `head`.
    """

    remarks: Sequence[str] = ()
    """What the run has to say that decides nothing, set before `end` is asked for."""

    separator: ClassVar[bytes] = b""
    """Stands between two pieces that are not empty."""

    needs_tally: ClassVar[bool] = False
    """Whether `head` gives anything; the pieces are then kept in a temporary file until all are there."""

    def head(self, tally: Tally) -> bytes:  # noqa: ARG002
        """What stands before everything and needs the tally."""
        return b""

    def sift(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The lines of all pieces that belong into the report; only asked for where `needs_tally`."""
        yield from lines

    def start(self) -> bytes:
        """What stands before the first piece."""
        return b""

    def fault(self, message: str) -> bytes:  # noqa: ARG002
        """An input that could not be judged. A format with a separator says it in `end`."""
        return b""

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """What stands after the last piece."""
        return b""


class Report(Frame, Protocol):
    """A format of verdicts: pure functions whose outputs follow one another."""

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:
        """One verdict."""
        ...


class GateReport(Frame, Protocol):
    """A format of what the docs gate checked."""

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:
        """One binding and what does not hold of it."""
        ...


class CiReport(Report, GateReport, Protocol):
    """A format of both."""
