"""Verdicts as text: one line a record, and below it the finding, unless the record is supported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes import Outcome
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe
from kvint2eval.report.issue import where
from kvint2eval.report.model import Report

if TYPE_CHECKING:
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Binding, Finding, Verdict

__all__ = ["Text"]

_COLOURS = {Outcome.SUPPORTED: "32", Outcome.UNSUPPORTED: "31", Outcome.DELEGATE: "33"}
_WIDTH = max(map(len, Outcome))


class Text(Report):
    """Text for a terminal or a log.

    Parameters
    ----------
    colour
        Whether the outcome is coloured.
    """

    def __init__(self, *, colour: bool = False) -> None:
        self._colour = colour

    def start(self) -> bytes:
        """Nothing."""
        return b""

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The verdict's lines."""
        outcome = verdict.outcome
        word = f"{outcome:{_WIDTH}}"
        if self._colour:
            word = f"\x1b[{_COLOURS[outcome]}m{word}\x1b[0m"
        place = safe(source.path) if source.line is None else f"{safe(source.path)}:{source.line}"
        detail = f" ({verdict.detail})" if verdict.detail else ""
        lines = [f"{word}  {place}  {verdict.reason}{detail}{_rests_on(verdict)}"]
        if verdict.finding is not None:
            lines += _finding_lines(verdict.finding, source)
        lines += _claim_lines(verdict)
        if verdict.basis is not None:
            lines.append(f"    {'rests on':8} recomputed here: {', '.join(verdict.basis.recomputed)}")
            lines.append(f"    {'':8} only reported: {', '.join(verdict.basis.reported)}")
        return ("\n".join(lines) + "\n").encode()

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """Nothing; the tally goes to the log."""
        return b""


def _rests_on(verdict: Verdict) -> str:
    """How far the digests of a supported record are bound."""
    if verdict.outcome is not Outcome.SUPPORTED:
        return ""
    signed = "" if verdict.signers is None else f"signed by {len(verdict.signers)} trusted; "
    if verdict.bindings is None:
        return f"  {signed}witness recomputed; pins not given, digests only declared"
    return f"  {signed}witness recomputed; " + ", ".join(map(_binding, verdict.bindings))


def _binding(binding: Binding) -> str:
    return f"{binding.role} {binding.level}"


def _claim_lines(verdict: Verdict) -> list[str]:
    """Claims that stand and claims that are refused."""
    return [f"    {'claim':8} {claim.sentence}" for claim in claims_of(verdict)]


def _finding_lines(finding: Finding, source: Source) -> list[str]:
    rows = [
        ("finding", f"{finding.code}: {finding.meaning}"),
        ("where", where(finding, source)),
        ("found", safe(finding.found)),
        ("allowed", safe(finding.allowed)),
        ("fix", finding.mend),
    ]
    return [f"    {name:8} {text}" for name, text in rows]
