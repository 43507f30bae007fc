"""Issues of a record or of the docs gate, in the one shape that the formats for CI systems write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.codes import Outcome
from kvint2eval.files.inputs import ENVELOPE_SUFFIX
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe

if TYPE_CHECKING:
    from kvint2eval.gate.check import GateFinding
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Finding, Verdict

__all__ = ["Issue", "name_of", "of_gate", "of_verdict", "place_of", "where"]


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
    """Name and text: where, found, allowed or expected, fix, and the claims."""
    identity: tuple[str, ...] = ()
    """What tells it from another finding of the same code in the same file."""

    is_of_record: bool = False
    """Whether it is of a record, which has one finding at most."""

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


_ENVELOPE = "envelope:"


def place_of(finding: Finding, source: Source) -> tuple[str, int | None, int | None]:
    """File, line and column of a finding: in the record, or in its envelope where the envelope is at fault."""
    if finding.pointer.startswith(_ENVELOPE) and finding.line is not None:
        return source.path + ENVELOPE_SUFFIX, finding.line, finding.column
    # A record of JSON Lines is one line of its file.
    return source.path, finding.line if source.line is None else source.line, finding.column


def where(finding: Finding, source: Source) -> str:
    """Place of a finding in words: member, line and column, as far as they are known."""
    path, line, column = place_of(finding, source)
    pointer = finding.pointer
    if pointer.startswith(_ENVELOPE):
        inner = pointer.removeprefix(_ENVELOPE)
        file = safe(path) if path != source.path else ""
        pointer = " ".join(part for part in ("envelope", file, inner) if part)
    places = [safe(pointer)] if pointer else []
    if line is not None:
        places.append(f"line {line}" + (f", column {column}" if column is not None else ""))
    return ", ".join(places) or "the whole input"


def of_verdict(source: Source, verdict: Verdict) -> Issue | None:
    """Issue of a verdict; None for a supported record."""
    finding = verdict.finding
    if finding is None:
        return None
    detail = f" ({verdict.detail})" if verdict.detail else ""
    rows = (
        ("where", where(finding, source)),
        ("found", safe(finding.found)),
        ("allowed", safe(finding.allowed)),
        ("fix", finding.mend),
        *(("claim", claim.sentence) for claim in claims_of(verdict)),
    )
    path, line, column = place_of(finding, source)
    return Issue(
        str(finding.code),
        verdict.outcome is Outcome.DELEGATE,
        path,
        line,
        column,
        f"{verdict.outcome} {verdict.reason}{detail}: {finding.code}",
        finding.meaning,
        rows,
        identity=(str(source.line or ""), finding.pointer),
        is_of_record=True,
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
    identity = (finding.where, finding.found)
    return Issue(
        finding.code, is_open, finding.path, finding.line, None, title, finding.meaning, rows, identity
    )
