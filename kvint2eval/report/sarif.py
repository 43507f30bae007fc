"""SARIF 2.1.0: unsupported and delegated records, and findings of the docs gate, as results.

A delegated record is of kind `open`, which SARIF gives the level `none`. Rule ids are the codes, and stay.
Section numbers are those of the OASIS standard.
"""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kvint2eval._version import __version__
from kvint2eval.codes import FINDINGS, REASONS, Outcome
from kvint2eval.files.inputs import STDIN
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import safe
from kvint2eval.report.issue import of_verdict
from kvint2eval.report.model import ASIDE, CiReport
from kvint2eval.report.place import PathRoot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Verdict

__all__ = ["MAX_RESULTS", "Sarif"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


MAX_RESULTS = 25_000
"""Readers of SARIF refuse a run with more."""

_MAX_NOTES = 1_000


class Sarif(CiReport):
    """One run with one result a finding.

    Parameters
    ----------
    category
        What ran, for readers who keep the runs of several commands apart.
    root
        What the paths are told from.
    """

    separator = b",\n"
    needs_tally = True  # only the whole run shows whether there are too many results

    def __init__(self, category: str = "adjudicate", root: PathRoot | None = None) -> None:
        self._category = category
        self._root = PathRoot() if root is None else root
        self._seen: Counter[str] = Counter()
        self._notes: list[dict[str, Any]] = []
        self._left_out = 0
        self._left_out_notes = 0

    def start(self) -> bytes:
        """The head, with all rules."""
        driver = {"name": "kvint2eval", "version": __version__, "rules": _rules()}
        return (
            b'{"$schema":%b,"version":"2.1.0","runs":[{"tool":{"driver":%b},"automationDetails":%b,"columnKind":%b,"results":[\n'
            % (
                _json(SCHEMA),
                _json(driver),
                _json({"id": f"kvint2eval/{self._category}/"}),
                _json("unicodeCodePoints"),
            )
        )

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The result of a record; for a supported one a note with its claims, where it has any."""
        issue = of_verdict(source, verdict)
        if issue is not None:
            return _json(self._result(issue))
        claims = claims_of(verdict)
        if not claims:
            return b""
        words = "; ".join(claim.sentence for claim in claims)
        place = self._place(source.path, source.line, None)
        note = {
            "level": "note",
            "message": {"text": _text(f"supported. Claims: {words}")},
            "locations": [place],
        }
        return ASIDE + _json(note)

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:  # noqa: ARG002
        """The results of one binding of the docs gate, nothing when it holds."""
        return self.separator.join(_json(self._result(issue)) for issue in issues)

    def sift(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Results up to `MAX_RESULTS`; notes are kept for the foot, the first of them."""
        written = 0
        for line in lines:
            body = line.rstrip(b"\n").removesuffix(b",")
            if body.startswith(ASIDE):
                if len(self._notes) < _MAX_NOTES:
                    self._notes.append(json.loads(body.removeprefix(ASIDE)))
                else:
                    self._left_out_notes += 1
            elif written < MAX_RESULTS:
                yield (self.separator if written else b"") + body
                written += 1
            else:
                self._left_out += 1

    @property
    def cuts(self) -> list[str]:
        """What was left out, in words."""
        words = []
        if self._left_out:
            words.append(
                f"{self._left_out} results are left out: readers of SARIF take {MAX_RESULTS} a run; judge fewer "
                "records at a time, or use another format"
            )
        if self._left_out_notes:
            words.append(f"the claims of {self._left_out_notes} supported records are left out")
        return words

    def _result(self, issue: Issue) -> dict[str, Any]:
        """One result, §3.27."""
        told = self._root.told(issue.path) if issue.path != STDIN else issue.path
        identity = "\0".join((issue.code, told, *issue.identity))
        # Two findings that are alike in all but their line: the first, the second.
        self._seen[identity] += not issue.is_of_record
        identity += f"\0{self._seen[identity]}"
        return {
            "ruleId": issue.code,
            "kind": "open" if issue.is_open else "fail",
            "level": "none" if issue.is_open else "error",
            "message": {"text": _text(f"{issue.title}. {issue.sentence}")},
            "locations": [self._place(issue.path, issue.line, issue.column)],
            "partialFingerprints": {
                "kvint2evalFinding/v2": sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()
            },
        }

    def _place(self, path: str, line: int | None, column: int | None) -> dict[str, Any]:
        told = self._root.told(path) if path != STDIN else path
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(told)}}
        if line is not None:
            place["region"] = {"startLine": line} | ({} if column is None else {"startColumn": column})
        return {"physicalLocation": place}

    def end(self, tally: Tally) -> bytes:
        """Whether the run itself succeeded, and the foot."""
        invocation: dict[str, Any] = {"executionSuccessful": not tally.errors}
        said: list[tuple[str, str]] = []
        if tally.errors:
            said.append(("error", f"{tally.errors} inputs could not be judged; standard error says why."))
        said += [("warning", remark) for remark in self.cuts] + [
            ("warning", remark) for remark in self.remarks
        ]
        notes = [{"level": level, "message": {"text": _text(safe(text))}} for level, text in said]
        if notes or self._notes:
            invocation["toolExecutionNotifications"] = [*notes, *self._notes]
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
