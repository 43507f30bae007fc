"""Issues of a record or of the docs gate, in the one shape that the formats for CI systems write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.codes import Outcome
from kvint2eval.report.escape import safe

if TYPE_CHECKING:
    from kvint2eval.gate.check import GateFinding
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["Issue", "name_of", "of_gate", "of_verdict"]


class Issue(NamedTuple):
    """One finding, with all texts on one line and printable."""

    code: str
    is_open: bool
    """Whether it is a delegate: an open question, not a fault."""
    path: str
    """The file, not escaped; `-` is standard input."""
    line: int | None
    column: int | None
    title: str
    """Outcome and code."""
    meaning: str
    rows: tuple[tuple[str, str], ...]
    """Name and text: where, found, allowed or expected, fix."""

    @property
    def sentence(self) -> str:
        """Meaning and rows on one line."""
        return " ".join([self.meaning, *(f"{name.capitalize()}: {_ended(text)}" for name, text in self.rows)])

    @property
    def lines(self) -> list[str]:
        """Meaning and rows, one a line."""
        return [self.meaning, *(f"{name:8} {text}" for name, text in self.rows)]


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def name_of(source: Source) -> str:
    """File of a record, with its line in a file of JSON Lines."""
    return safe(source.path) if source.line is None else f"{safe(source.path)}:{source.line}"


def of_verdict(source: Source, verdict: Verdict) -> Issue | None:
    """Issue of a verdict; None for a supported record."""
    finding = verdict.finding
    if finding is None:
        return None
    detail = f" ({verdict.detail})" if verdict.detail else ""
    rows = (
        ("where", safe(finding.pointer) or "the whole input"),
        ("found", safe(finding.found)),
        ("allowed", safe(finding.allowed)),
        ("fix", finding.mend),
    )
    return Issue(
        finding.code,
        verdict.outcome is Outcome.DELEGATE,
        source.path,
        # A record of JSON Lines is one line of its file.
        finding.line if source.line is None else source.line,
        finding.column,
        f"{verdict.outcome} {verdict.reason}{detail}: {finding.code}",
        finding.meaning,
        rows,
    )


def of_gate(finding: GateFinding) -> Issue:
    """Issue of a finding of the docs gate."""
    rows = (
        ("where", safe(finding.where)),
        ("found", safe(finding.found)),
        ("expected", safe(finding.expected)),
        ("fix", finding.mend),
    )
    title = f"docs gate: {finding.code}"
    is_open = False
    return Issue(finding.code, is_open, finding.path, finding.line, None, title, finding.meaning, rows)
