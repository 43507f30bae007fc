"""Reports: pure functions of verdicts, which escape all text of a record."""

from __future__ import annotations

from kvint2eval.report.escape import safe
from kvint2eval.report.model import Report, Tally
from kvint2eval.report.source import Source

__all__ = ["Report", "Source", "Tally", "safe"]
