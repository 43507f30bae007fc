"""Annotations for GitHub Actions, and the step summary in Markdown.

An annotation is a line that the runner obeys, so everything in it is escaped: first as `safe` does, then `%`,
CR and LF in the message, and `:` and `,` in the properties too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvint2eval.report.escape import safe
from kvint2eval.report.issue import of_verdict
from kvint2eval.report.model import CiReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["SUMMARY_MARK", "Github", "summary"]

SUMMARY_MARK = b"\0"
"""Begins a line of the report that belongs to the step summary; no annotation holds it."""

MAX_SUMMARY_BYTES = 900_000
"""GitHub refuses a step summary of more than 1 MiB."""

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


class Github(CiReport):
    """One annotation a finding: an error for an unsupported record, a warning for a delegated one.

    Parameters
    ----------
    with_summary
        Whether each annotation is followed by a line for the step summary, which begins with `SUMMARY_MARK`.
    """

    def __init__(self, *, with_summary: bool = False) -> None:
        self._with_summary = with_summary

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The annotation of a record, nothing for a supported one."""
        issue = of_verdict(source, verdict)
        return b"" if issue is None else self.checked("", (issue,))

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:  # noqa: ARG002
        """The annotations of one binding of the docs gate, nothing when it holds."""
        lines = []
        for issue in issues:
            lines.append(_annotation(issue))
            if self._with_summary:
                lines.append(SUMMARY_MARK.decode() + _row(issue))
        return "".join(line + "\n" for line in lines).encode()

    def fault(self, message: str) -> bytes:
        """The annotation of an input that could not be judged."""
        return f"::error title=kvint2eval could not judge::{_data(safe(message))}\n".encode()


def _annotation(issue: Issue) -> str:
    properties = []
    if issue.path != "-":
        properties.append(f"file={_property(safe(issue.path))}")
        if issue.line is not None:
            properties.append(f"line={issue.line}")
            if issue.column is not None:
                properties.append(f"col={issue.column}")
    properties.append(f"title={_property(issue.title)}")
    command = "warning" if issue.is_open else "error"
    return f"::{command} {','.join(properties)}::{_data(chr(10).join(issue.lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _row(issue: Issue) -> str:
    """Row of the summary's table."""
    place = safe(issue.path) + (f":{issue.line}" if issue.line is not None else "")
    found = dict(issue.rows)
    allowed = found.get("allowed") or found.get("expected", "")
    cells = (issue.title, place, found["where"], found["found"], allowed, found["fix"])
    return "| " + " | ".join(map(_markdown, cells)) + " |"


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is: every ASCII punctuation mark is escaped, markup by its entity."""
    escaped = _PUNCTUATION.sub(r"\\\1", text)
    return escaped.replace(r"\&", "&amp;").replace(r"\<", "&lt;").replace(r"\>", "&gt;")


def summary(title: str, sentence: str, rows: Iterable[bytes]) -> bytes:
    """Step summary: a heading, the tally, and a table of the findings as far as GitHub takes it.

    Parameters
    ----------
    title
        What ran.
    sentence
        The tally in words.
    rows
        Lines of the report that began with `SUMMARY_MARK`, without it; no more of them is held than is shown.
    """
    parts = [f"## {_markdown(title)}\n\n{_markdown(sentence)}\n".encode()]
    size = left_out = 0
    for number, row in enumerate(rows):
        if not number:
            parts.append(
                b"\n| finding | place | where | found | allowed | fix |\n|---|---|---|---|---|---|\n"
            )
        size += len(row)
        if size > MAX_SUMMARY_BYTES:
            left_out += 1
        else:
            parts.append(row)
    if left_out:
        parts.append(f"\n{left_out} more findings are in the log.\n".encode())
    return b"".join(parts)
