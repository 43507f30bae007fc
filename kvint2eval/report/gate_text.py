"""Findings of the docs gate as text, and its checks as JSON, one a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvint2eval.report.escape import safe
from kvint2eval.report.model import GateReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvint2eval.report.issue import Issue

__all__ = ["GATE_FORMAT", "GateLines", "GateText"]

GATE_FORMAT = "kvint2eval-gate/v1"


class GateText(GateReport):
    """Nothing for what holds; for each finding where, found, expected and how to fix it."""

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:  # noqa: ARG002
        """Lines of one binding."""
        lines = []
        for issue in issues:
            place = safe(issue.path) + (f":{issue.line}" if issue.line is not None else "")
            lines.append(f"{place}  {issue.code}: {issue.meaning}")
            lines += [f"    {key:8}  {text}" for key, text in issue.rows]
        return "".join(line + "\n" for line in lines).encode()


class GateLines(GateReport):
    """One binding a line: `format`, `binding`, `holds` and `findings`. The text is ASCII."""

    def checked(self, name: str, issues: Sequence[Issue]) -> bytes:
        """The line of one binding."""
        findings = [
            {"code": issue.code, "path": safe(issue.path), "line": issue.line, "meaning": issue.meaning}
            | dict(issue.rows)
            for issue in issues
        ]
        line = {"format": GATE_FORMAT, "binding": name, "holds": not issues, "findings": findings}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"
