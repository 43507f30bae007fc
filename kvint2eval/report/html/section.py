"""One record on the page: verdict, basis, candidate table, plots, and the fields it states."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.codes import REASONS, Outcome
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe
from kvint2eval.report.html.figures import figures_of
from kvint2eval.report.html.plots import draw
from kvint2eval.report.issue import name_of, of_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvint2eval.report.html.figures import Figures
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["AuditFinding", "audit_list", "badge", "rests_on", "section", "text"]

_SYMBOLS = {Outcome.SUPPORTED: "✓", Outcome.UNSUPPORTED: "✗", Outcome.DELEGATE: "→"}


class AuditFinding(NamedTuple):
    """A finding of `kvint2eval-producer audit --format json`."""

    code: str
    message: str


def text(value: str) -> str:
    """A text as HTML, printable and without markup of its own."""
    return html.escape(safe(value))


def badge(outcome: Outcome) -> str:
    """Outcome as a word with a sign, so that it does not depend on its colour."""
    return (
        f'<span class="badge {outcome}"><span aria-hidden="true">{_SYMBOLS[outcome]}</span> {outcome}</span>'
    )


def section(source: Source, verdict: Verdict, number: int, audit: Sequence[AuditFinding] | None) -> bytes:
    """Section of one record.

    Parameters
    ----------
    source, verdict
        The record.
    number
        Its number on the page, from 1.
    audit
        The audit's findings about it; None when no audit was given.
    """
    figures = figures_of(verdict)
    parts = [
        f'<section id="r{number}" aria-labelledby="h{number}"><h3 id="h{number}">{text(name_of(source))}</h3>'
    ]
    parts.append(
        f"<p>{badge(verdict.outcome)} <code>{verdict.reason}</code> {text(REASONS[verdict.reason].meaning)}</p>"
    )
    parts += _finding(source, verdict)
    parts += _basis(verdict)
    parts += _claims(verdict)
    if audit is not None:
        parts += ["<h4>Audit</h4>", audit_list(audit)]
    if figures is not None and figures.arms:
        parts += _candidates(figures, number, is_judged=verdict.outcome is Outcome.SUPPORTED)
    if figures is not None:
        parts += _stated(figures)
    parts.append('<p class="up"><a href="#verdicts">Back to the verdicts</a></p></section>\n')
    return "".join(parts).encode()


def _finding(source: Source, verdict: Verdict) -> Iterator[str]:
    issue = of_verdict(source, verdict)
    if issue is None:
        return
    yield f"<h4>Finding <code>{text(issue.code)}</code></h4><p>{text(issue.meaning)}</p><dl>"
    for name, value in issue.rows:
        if name == "claim":
            continue
        yield f"<dt>{name}</dt><dd>{html.escape(value)}</dd>"
    yield "</dl>"


_BASIS_V1 = (
    ("summary figures, cache bytes", "recomputed", "from the candidate rows and the envelope"),
    (
        "means and deviations of the rows",
        "only reported",
        "possible for their number of trials, no more: v1 holds no trials",
    ),
    ("times, hardware, driver", "only reported", "nothing in a record can show them"),
)


def rests_on(verdict: Verdict) -> list[tuple[str, str, str]]:
    """What a supported verdict rests on: what, how far, and why."""
    rows = [("witness digest", "recomputed", verdict.witness_sha256)]
    if verdict.signers is not None:
        rows.append(("signatures", "verified", f"keys {', '.join(verdict.signers)}"))
    if verdict.bindings is None:
        rows.append(("digests of artifacts", "declared", "no pins were given to compare them with"))
    for one in verdict.bindings or ():
        why = one.why or (f"rehashed {one.path}" if one.path is not None else "")
        rows.append((f"digest of {one.role}", one.level, f"{one.sha256} {why}".strip()))
    if verdict.basis is None:
        return [*rows, *_BASIS_V1]
    rows += [(what, "recomputed", "from what the record holds") for what in verdict.basis.recomputed]
    return rows + [(what, "only reported", "") for what in verdict.basis.reported]


def _claims(verdict: Verdict) -> Iterator[str]:
    """Claims of a v2 record: those that stand, and why the others are refused."""
    claims = claims_of(verdict)
    if claims:
        yield "<h4>Claims</h4><ul>"
        yield from (f"<li>{html.escape(claim.sentence)}</li>" for claim in claims)
        yield "</ul>"


def _basis(verdict: Verdict) -> Iterator[str]:
    if verdict.outcome is not Outcome.SUPPORTED:
        return
    yield (
        "<h4>What this rests on</h4>"
        '<div class="wide" tabindex="0" role="region" aria-label="What this rests on"><table><thead><tr>'
        '<th scope="col">what</th><th scope="col">how far</th><th scope="col">why</th></tr></thead><tbody>'
    )
    for what, level, why in rests_on(verdict):
        yield (
            f'<tr><th scope="row">{text(what)}</th><td class="{level.replace(" ", "-")}">{text(level)}</td>'
            f'<td class="why">{text(why)}</td></tr>'
        )
    yield "</tbody></table></div>"


def _candidates(figures: Figures, number: int, *, is_judged: bool) -> Iterator[str]:
    note = "" if is_judged else " as stated; the record is not supported, so do not use them"
    yield (
        f"<h4>Candidates{note}</h4>"
        f'<div class="wide" tabindex="0" role="region" aria-label="Candidates"><table class="numbers"><thead><tr>'
    )
    yield "".join(f'<th scope="col">{text(column)}</th>' for column in figures.columns)
    yield "</tr></thead><tbody>"
    for arm in figures.arms:
        roles = [
            name for name, holds in (("baseline", arm.is_baseline), ("selected", arm.is_selected)) if holds
        ]
        marked = f' <span class="role">{", ".join(roles)}</span>' if roles else ""
        cells = "".join(f"<td>{cell}</td>" for cell in arm.cells)
        row = ' class="selected"' if arm.is_selected else ""
        yield f'<tr{row}><th scope="row">{text(arm.name)}{marked}</th>{cells}</tr>'
    yield "</tbody></table></div>"
    yield '<div class="plots">'
    for index, plot in enumerate(figures.plots):
        yield draw(plot, f"p{number}-{index}")
    yield "</div>"


def _stated(figures: Figures) -> Iterator[str]:
    yield "<details><summary>What the record states</summary><dl>"
    for path, value in figures.stated:
        yield f"<dt><code>{text(path)}</code></dt><dd>{text(value) or '<i>empty</i>'}</dd>"
    yield "</dl></details>"


def audit_list(findings: Sequence[AuditFinding]) -> str:
    """Findings of an audit as a list."""
    if not findings:
        return "<p>The audit found nothing.</p>"
    return (
        "<ul>"
        + "".join(f"<li><code>{text(one.code)}</code> {text(one.message)}</li>" for one in findings)
        + "</ul>"
    )
