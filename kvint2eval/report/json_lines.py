"""Verdicts as JSON, one a line: `jsonl`, and `json`, which is one document of such lines.

The layout has a version of its own, `kvint2eval-verdict/v1`; docs/reference/cli.md describes it. The text is ASCII.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from kvint2eval.codes import Outcome
from kvint2eval.contract.v1.canonical import EMPTY_WITNESS
from kvint2eval.report.claims import claims_of
from kvint2eval.report.escape import ascii_json
from kvint2eval.report.model import Report

if TYPE_CHECKING:
    from kvint2eval.report.model import Tally
    from kvint2eval.report.source import Source
    from kvint2eval.verdict import Finding, Verdict

__all__ = ["FORMAT", "JsonDocument", "JsonLines"]

FORMAT = "kvint2eval-verdict/v1"

_HEAD = b'{"format":"' + FORMAT.encode() + b'","input":'
_SUPPORTED = (
    b'"outcome":"supported","reason":"KVINT2_SUPPORTED","detail":"","finding":null,"witness_sha256":"'
)
_METRICS = b',"metrics":'


def verdict_line(source: Source, verdict: Verdict) -> bytes:
    """One verdict as one line of JSON, without its line end."""
    line = str(source.line) if source.line is not None else "null"
    if verdict.finding is None:
        body = _SUPPORTED
    else:
        body = b'"outcome":"%b","reason":"%b","detail":"%b","finding":%b,"witness_sha256":"' % (
            verdict.outcome.encode(),
            verdict.reason.encode(),
            verdict.detail.encode(),
            _finding(verdict.finding, source),
        )
    bindings = b"null" if verdict.bindings is None else msgspec.json.encode(verdict.bindings)
    parts = (
        _HEAD,
        _json_path(source.path),
        b',"line":',
        line.encode(),
        b",",
        body,
        verdict.witness_sha256.encode(),
        b'","bindings":',
        bindings,
        b',"record":',
        _record(verdict),
        _beyond_v1(verdict),
        b"}",
    )
    return ascii_json(b"".join(parts))


@lru_cache(maxsize=16)
def _json_path(path: str) -> bytes:
    """A path as JSON; a byte of it that is not UTF-8 is shown as an escape."""
    return json.dumps(path.encode("utf-8", "backslashreplace").decode()).encode()


def _finding(finding: Finding, source: Source) -> bytes:
    members = {
        "code": str(finding.code),
        "pointer": finding.pointer,
        "found": finding.found,
        "allowed": finding.allowed,
        # A record of JSON Lines is one line of its file.
        "line": finding.line if source.line is None else source.line,
        "column": finding.column,
        "meaning": finding.meaning,
        "mend": finding.mend,
    }
    return json.dumps(members, separators=(",", ":")).encode()


def _record(verdict: Verdict) -> bytes:
    """The record as echoed: its canonical text, without metrics unless it is supported."""
    canonical = verdict.canonical
    if not canonical:
        return b"null"
    if verdict.contract == "v2":
        return msgspec.json.encode(verdict.echo)
    if verdict.outcome is Outcome.SUPPORTED:
        return canonical[: -len(EMPTY_WITNESS)] + b"}"
    return canonical[: canonical.index(_METRICS)] + b"}"


def _beyond_v1(verdict: Verdict) -> bytes:
    """Members that only a v2 record or a policy gives a verdict."""
    parts = []
    if verdict.contract == "v2":
        parts.append(b',"claims":' + _claims(verdict))
        parts.append(b',"basis":' + msgspec.json.encode(verdict.basis))
    if verdict.signers is not None:
        parts.append(b',"signers":' + msgspec.json.encode(verdict.signers))
    return b"".join(parts)


def _claims(verdict: Verdict) -> bytes:
    if verdict.claims is None:
        return b"null"
    return msgspec.json.encode([claim.members for claim in claims_of(verdict)])


class JsonLines(Report):
    """One verdict a line."""

    def start(self) -> bytes:
        """Nothing."""
        return b""

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:  # noqa: ARG002
        """The verdict's line."""
        return verdict_line(source, verdict) + b"\n"

    def end(self, tally: Tally) -> bytes:  # noqa: ARG002
        """Nothing."""
        return b""


class JsonDocument(Report):
    """One document with all verdicts, one a line, and the tally."""

    def start(self) -> bytes:
        """The document's head."""
        return b'{"format":"kvint2eval-verdicts/v1","verdicts":['

    def one(self, source: Source, verdict: Verdict, *, is_first: bool) -> bytes:
        """The verdict's line, with the comma before it."""
        return (b"\n" if is_first else b",\n") + verdict_line(source, verdict)

    def end(self, tally: Tally) -> bytes:
        """The tally and the document's foot."""
        return b'\n],"tally":%b}\n' % json.dumps(tally._asdict(), separators=(",", ":")).encode()
