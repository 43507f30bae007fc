"""JUnit XML: one test case a record, or a binding of the docs gate.

An unsupported record is a failure, a delegated one skipped with its reason, an input that could not be judged
an error. The layout follows the schema of the Ant tasks, which most CI systems read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvint2eval.report.escape import safe
from kvint2eval.report.issue import name_of, of_verdict
from kvint2eval.report.model import CiReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["Junit"]


class Junit(CiReport):
    """One suite.

    Parameters
    ----------
    suite
        Its name.
    seconds
        Time of the run, Unix time.
    """

    needs_tally = True  # the suite's element carries the counts

    def __init__(self, suite: str, seconds: int) -> None:
        self._suite = suite
        self._seconds = seconds

    def head(self, tally: Tally) -> bytes:
        """The suite's element with the counts."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._seconds))
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n'
            f'<testsuite name={quoteattr(self._suite)} package="kvint2eval" id="0" timestamp="{when}" '
            f'hostname="localhost" tests="{tally.records + tally.errors}" failures="{tally.unsupported}" '
            f'errors="{tally.errors}" skipped="{tally.delegate}" time="0">\n<properties/>\n'
        ).encode()

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The test case of a record."""
        issue = of_verdict(source, verdict)
        return self.checked(name_of(source), () if issue is None else (issue,))

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:
        """The test case of a binding of the docs gate."""
        if not issues:
            return _case(name, "")
        first = issues[0]
        if first.is_open:
            return _case(name, f"<skipped message={_attribute(f'{first.title}: {first.meaning}')}/>")
        text = "\n\n".join("\n".join([_place(issue), *issue.lines]) for issue in issues)
        message = _attribute(f"{first.title}: {first.meaning}")
        return _case(
            name, f"<failure type={_attribute(first.code)} message={message}>{escape(text)}</failure>"
        )

    def fault(self, message: str) -> bytes:
        """The test case of an input that could not be judged."""
        text = _attribute(safe(message))
        return _case(safe(message), f'<error type="could-not-judge" message={text}/>')

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """The foot."""
        return b"<system-out/>\n<system-err/>\n</testsuite>\n</testsuites>\n"


def _case(name: str, body: str) -> bytes:
    head = f'<testcase name={_attribute(name)} classname="kvint2eval" time="0"'
    return (f"{head}>{body}</testcase>\n" if body else f"{head}/>\n").encode()


def _attribute(text: str) -> str:
    return quoteattr(text)


def _place(issue: Issue) -> str:
    return safe(issue.path) + (f":{issue.line}" if issue.line is not None else "")
