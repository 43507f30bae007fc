"""JUnit XML: one test case a record, or a binding of the docs gate.

An unsupported record is a failure, a delegated one skipped with its reason, an input that could not be judged
an error. The layout follows the schema of the Ant tasks, which most CI systems read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe
from kvint2eval.report.issue import name_of, of_verdict
from kvint2eval.report.model import ASIDE, CiReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["Junit"]

_MAX_OUTPUT = 1_000_000


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
        self._output: list[bytes] = []
        self._size = 0
        self._left_out = 0

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
        case = self.checked(name_of(source), () if issue is None else (issue,))
        # The schema has no place for text beside a test case that passed: the claims stand in the suite's output.
        words = (
            [f"{name_of(source)}: {claim.sentence}" for claim in claims_of(verdict)] if issue is None else []
        )
        return case + b"".join(ASIDE + escape(one).encode() + b"\n" for one in words)

    def sift(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The test cases; claims are kept for the suite's output, the first megabyte of them."""
        for line in lines:
            if not line.startswith(ASIDE):
                yield line
            elif self._size > _MAX_OUTPUT:
                self._left_out += 1
            else:
                self._output.append(line.removeprefix(ASIDE))
                self._size += len(line)

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:
        """The test case of a binding of the docs gate."""
        if not issues:
            return _case(name, "")
        first = issues[0]
        if first.is_open:
            words = "\n".join([_place(first), *first.lines])
            return _case(
                name,
                f"<skipped message={_attribute(f'{first.title}: {first.meaning}')}>{escape(words)}</skipped>",
            )
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
        """The foot, with the claims of supported records and what the run has to say."""
        more = [f"the claims of {self._left_out} more are left out\n".encode()] if self._left_out else []
        out, err = b"".join([*self._output, *more]), escape("\n".join(map(safe, self.remarks))).encode()
        return b"%b\n%b\n</testsuite>\n</testsuites>\n" % (
            _element(b"system-out", out),
            _element(b"system-err", err),
        )


def _element(name: bytes, text: bytes) -> bytes:
    return b"<%b>%b</%b>" % (name, text, name) if text else b"<%b/>" % name


def _case(name: str, body: str) -> bytes:
    head = f'<testcase name={_attribute(name)} classname="kvint2eval" time="0"'
    return (f"{head}>{body}</testcase>\n" if body else f"{head}/>\n").encode()


def _attribute(text: str) -> str:
    return quoteattr(text)


def _place(issue: Issue) -> str:
    return safe(issue.path) + (f":{issue.line}" if issue.line is not None else "")
