"""The page: head with all styles, tally, verdicts, and the sections of the first records.

It holds no script, and its policy forbids any, so whatever a record holds is text. A page has at most `details`
sections; a record beyond them still has its row, and the page says how many have no more.
"""

from __future__ import annotations

import html
from importlib import resources
from typing import TYPE_CHECKING

from kvint2eval._version import __version__
from kvint2eval.codes import Outcome
from kvint2eval.report.html.figures import errors_of
from kvint2eval.report.html.section import audit_list, badge, section, text
from kvint2eval.report.issue import name_of, of_verdict
from kvint2eval.report.model import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvint2eval.report.html.section import AuditFinding
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["HtmlPage"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_BLOCK_ROWS = 200

_LONG_PAGE_RECORDS = 200
"""From this many records on, a browser lays out blocks of rows and sections only when they come into view.

A shorter page is laid out whole, so that all of it is there at once for a screen reader.
"""


class HtmlPage(Report):
    """The report of one batch, judged by one process: sections are kept until all rows are written.

    Parameters
    ----------
    details
        The number of records that get a section.
    audits
        Findings by the path of the file that holds them.
    audit_of
        For a path of a record, the file in `audits` that is about it.
    """

    needs_tally = True

    def __init__(
        self, details: int, audits: Mapping[str, Sequence[AuditFinding]], audit_of: Mapping[str, str]
    ) -> None:
        self._details = details
        self._audits = audits
        self._audit_of = audit_of
        self._records = 0
        self._sections: list[bytes] = []

    def head(self, tally: Tally) -> bytes:
        """Everything above the verdicts."""
        counts = "".join(
            f"<li>{badge(outcome)} <b>{count:,}</b></li>"
            for outcome, count in zip(
                Outcome, (tally.supported, tally.unsupported, tally.delegate), strict=True
            )
        )
        if tally.errors:
            counts += f'<li><span class="badge error">could not be judged</span> <b>{tally.errors:,}</b></li>'
        filters = "".join(
            f'<label><input type="radio" name="f" id="f-{name}"{" checked" if name == "all" else ""}> {name}</label>'
            for name in ("all", *Outcome)
        )
        long = ' class="long"' if tally.records > _LONG_PAGE_RECORDS else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
            f"<title>Verdicts on {tally.records:,} records</title><style>{_style()}</style></head>\n"
            '<body><a class="skip" href="#verdicts">Skip to the verdicts</a><header>'
            f"<h1>Verdicts on evaluation records</h1><p>{html.escape(tally.sentence())}. "
            f'kvint2eval {html.escape(__version__)}.</p><ul class="tally">{counts}</ul>'
            f'{self._note(tally)}</header>\n<main{long}><h2 id="verdicts">Verdicts</h2>'
            f'<fieldset class="filter"><legend>Show</legend>{filters}</fieldset>'
        ).encode()

    def _note(self, tally: Tally) -> str:
        note = (
            "<p>A verdict says that a record is complete and consistent, not that its figures are true. "
            "<b>recomputed</b>: recomputed here from the record. "
            "<b>bound</b>: the file was there and rehashed equal. "
            "<b>declared</b>: stated, no file to compare it with. <b>only reported</b>: it cannot be checked here.</p>"
        )
        if tally.records > self._details:
            note += (
                f'<p class="note">The first {self._details:,} of {tally.records:,} records have a section below. The '
                f"other {tally.records - self._details:,} have their row here and no candidate table or plot, to keep "
                "the page small; <code>kvint2eval report FILE</code> shows them.</p>"
            )
        return note

    def start(self) -> bytes:
        """Head of the table of verdicts."""
        return (
            b'<div class="wide" tabindex="0" role="region" aria-label="Verdicts">'
            b'<div class="rows" role="table" aria-label="Verdicts"><div role="rowgroup">'
            b'<div role="row" class="row heads">'
            b'<span role="columnheader">outcome</span><span role="columnheader">record</span>'
            b'<span role="columnheader">why</span><span role="columnheader">output NMSE, baseline</span>'
            b'<span role="columnheader">selected</span></div></div><div role="rowgroup" class="block">\n'
        )

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """Row of one record; its section is kept for the end."""
        self._records += 1
        at = self._records
        name = text(name_of(source))
        if at <= self._details:
            audit = self._audits.get(self._audit_of.get(source.path, ""))
            self._sections.append(section(source, verdict, at, audit))
            name = f'<a href="#r{at}">{name}</a>'
        nmse = errors_of(verdict) if verdict.outcome is Outcome.SUPPORTED else (None, None)
        cells = "".join(
            f'<span role="cell" class="{kind}">{"" if value is None else f"{value:.6g}"}</span>'
            for kind, value in zip(("number baseline", "number"), nmse, strict=True)
        )
        return (
            f"{_new_block(at)}"
            f'<div role="row" class="row {verdict.outcome}"><span role="cell">{badge(verdict.outcome)}</span>'
            f'<span role="rowheader">{name}</span><span role="cell">{_why(source, verdict)}</span>{cells}</div>\n'
        ).encode()

    def fault(self, message: str) -> bytes:
        """Row of an input that could not be judged."""
        return (
            '<div role="row" class="row error"><span role="cell"><span class="badge error">not judged</span></span>'
            f'<span role="cell" class="rest">{text(message)}</span></div>\n'
        ).encode()

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """Foot of the table, the audits, the sections."""
        parts = [b"</div></div></div>"]
        parts += [f'<p class="note">{text(one)}</p>'.encode() for one in self.remarks]
        others = [path for path in self._audits if path not in self._audit_of.values()]
        if others:
            parts.append(b"<h2>Audits</h2>")
            parts += [f"<h3>{text(path)}</h3>{audit_list(self._audits[path])}".encode() for path in others]
        if self._sections:
            parts += [b"<h2>Records</h2>\n", *self._sections]
        parts.append(b"</main></body></html>\n")
        return b"".join(parts)


def _style() -> str:
    return resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def _new_block(at: int) -> str:
    """End of a block of rows and begin of the next."""
    return '</div><div role="rowgroup" class="block">\n' if at > 1 and at % _BLOCK_ROWS == 1 else ""


def _why(source: Source, verdict: Verdict) -> str:
    issue = of_verdict(source, verdict)
    if issue is not None:
        found = dict(issue.rows)
        return (
            f"<code>{text(issue.code)}</code> {text(issue.meaning)} <small>{html.escape(found['where'])}: found "
            f"{html.escape(found['found'])}, allowed {html.escape(found['allowed'])}</small>"
        )
    refused = sum(claim.finding is not None for claim in verdict.claims or ())
    claims = f"; claims: {len(verdict.claims) - refused} stand, {refused} refused" if verdict.claims else ""
    if verdict.bindings is None:
        return f"witness recomputed; digests only declared{claims}"
    levels = [one.level for one in verdict.bindings]
    return f"witness recomputed; digests: {levels.count('bound')} bound, {levels.count('declared')} declared{claims}"
