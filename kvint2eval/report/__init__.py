"""Reports: pure functions of verdicts, which escape all text of a record."""

from kvint2eval.report.escape import safe
from kvint2eval.report.model import Report, Source, Tally

__all__ = ["Report", "Source", "Tally", "safe"]
