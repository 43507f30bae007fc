"""SARIF 2.1.0: unsupported and delegated records, and findings of the docs gate, as results.

A delegated record is of kind `open`, which SARIF gives the level `none`. Rule ids are the codes, and stay.
Section numbers are those of the OASIS standard.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kvint2eval._version import __version__
from kvint2eval.codes import FINDINGS, REASONS, Outcome
from kvint2eval.report.issue import of_verdict
from kvint2eval.report.model import CiReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["Sarif"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Sarif(CiReport):
    """One run with one result a finding."""

    separator = b",\n"

    def start(self) -> bytes:
        """The head, with all rules."""
        driver = {"name": "kvint2eval", "version": __version__, "rules": _rules()}
        return (
            b'{"$schema":%b,"version":"2.1.0","runs":[{"tool":{"driver":%b},"columnKind":%b,"results":[\n'
            % (
                _json(SCHEMA),
                _json(driver),
                _json("unicodeCodePoints"),
            )
        )

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The result of a record, nothing for a supported one."""
        issue = of_verdict(source, verdict)
        return b"" if issue is None else _json(_result(issue))

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:  # noqa: ARG002
        """The results of one binding of the docs gate, nothing when it holds."""
        return self.separator.join(_json(_result(issue)) for issue in issues)

    def end(self, tally: Tally) -> bytes:
        """Whether the run itself succeeded, and the foot."""
        invocation: dict[str, Any] = {"executionSuccessful": not tally.errors}
        if tally.errors:
            text = f"{tally.errors} inputs could not be judged; standard error says why."
            invocation["toolExecutionNotifications"] = [{"level": "error", "message": {"text": text}}]
        return b'\n],"invocations":[%b]}]}\n' % _json(invocation)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _rules() -> list[dict[str, Any]]:
    """All rules, §3.49: the findings of records and of the docs gate."""
    from kvint2eval.gate.codes import GATE_FINDINGS  # noqa: PLC0415

    rules = [
        _rule(code, one.meaning, one.mend, is_open=REASONS[one.reason].outcome is Outcome.DELEGATE)
        for code, one in FINDINGS.items()
    ]
    return rules + [_rule(code, one.meaning, one.mend, is_open=False) for code, one in GATE_FINDINGS.items()]


def _rule(code: str, meaning: str, mend: str, *, is_open: bool) -> dict[str, Any]:
    return {
        "id": code,
        "shortDescription": {"text": _text(meaning)},
        "help": {"text": _text(mend)},
        "defaultConfiguration": {"level": "none" if is_open else "error"},
    }


def _result(issue: Issue) -> dict[str, Any]:
    """One result, §3.27."""
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(issue.path)}}
    if issue.line is not None:
        place["region"] = {"startLine": issue.line}
        if issue.column is not None:
            place["region"]["startColumn"] = issue.column
    identity = sha256("\0".join((issue.code, issue.path, *issue.rows[0])).encode("utf-8", "surrogateescape"))
    return {
        "ruleId": issue.code,
        "kind": "open" if issue.is_open else "fail",
        "level": "none" if issue.is_open else "error",
        "message": {"text": _text(f"{issue.title}. {issue.sentence}")},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"kvint2evalFinding/v1": identity.hexdigest()},
    }


def _text(text: str) -> str:
    """Plain text, §3.11: no link (§3.11.6) and no placeholder (§3.11.5) can arise from what a record holds.

    The link is broken by a space. A backslash before the bracket, as for literal brackets inside a link, would
    depend on the backslashes that stand there already.
    """
    if "{" not in text and "}" not in text and "](" not in text:
        return text
    return text.replace("](", "] (").replace("{", "{{").replace("}", "}}")


def _uri(path: str) -> str:
    """Path as a URI reference, relative unless the path is absolute."""
    quoted = quote(path.encode("utf-8", "surrogateescape"), safe="/")
    return f"file://{quoted}" if path.startswith("/") else quoted
