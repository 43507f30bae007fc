"""Annotations for GitHub Actions, and the step summary in Markdown.

An annotation is a line that the runner obeys, so everything in it is escaped: first as `safe` does, then `%`,
CR and LF in the message, and `:` and `,` in the properties too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvint2eval.files.inputs import STDIN
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe
from kvint2eval.report.issue import of_verdict
from kvint2eval.report.model import ASIDE, CiReport
from kvint2eval.report.place import PathRoot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["SUMMARY_MARK", "Github", "summary"]

SUMMARY_MARK = ASIDE
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
    root
        What the paths are told from.
    """

    def __init__(self, *, with_summary: bool = False, root: PathRoot | None = None) -> None:
        self._with_summary = with_summary
        self._root = PathRoot() if root is None else root

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The annotation of a record; of a supported one that makes claims, a notice with them."""
        issue = of_verdict(source, verdict)
        if issue is not None:
            return self.checked("", (issue,))
        claims = claims_of(verdict)
        if not claims:
            return b""
        place = self._properties(source.path, source.line, None)
        properties = ",".join([*place, "title=claims of a supported record"])
        return f"::notice {properties}::{_data(chr(10).join(one.sentence for one in claims))}\n".encode()

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:  # noqa: ARG002
        """The annotations of one binding of the docs gate, nothing when it holds."""
        lines = []
        for issue in issues:
            lines.append(self._annotation(issue))
            if self._with_summary:
                lines.append(SUMMARY_MARK.decode() + _row(issue))
        return "".join(line + "\n" for line in lines).encode()

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """What the run has to say that decides nothing."""
        return "".join(f"::warning title=kvint2eval::{_data(safe(one))}\n" for one in self.remarks).encode()

    def _annotation(self, issue: Issue) -> str:
        properties = self._properties(issue.path, issue.line, issue.column)
        properties.append(f"title={_property(issue.title)}")
        command = "warning" if issue.is_open else "error"
        return f"::{command} {','.join(properties)}::{_data(chr(10).join(issue.lines))}"

    def _properties(self, path: str, line: int | None, column: int | None) -> list[str]:
        """File, line and column; standard input has none."""
        if path == STDIN:
            return []
        properties = [f"file={_property(safe(self._root.told(path)))}"]
        if line is not None:
            properties.append(f"line={line}")
            if column is not None:
                properties.append(f"col={column}")
        return properties

    def fault(self, message: str) -> bytes:
        """The annotation of an input that could not be judged."""
        return f"::error title=kvint2eval could not judge::{_data(safe(message))}\n".encode()


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
