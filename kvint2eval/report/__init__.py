"""Reports: pure functions of verdicts. All escaping of what a record holds is done here."""

from kvint2eval.report.escape import safe
from kvint2eval.report.model import Report, Tally
from kvint2eval.report.source import Source

__all__ = ["Report", "Source", "Tally", "safe"]
