"""The closed list of codes: outcomes, reasons and findings.

A verdict has one outcome and one *reason* (`KVINT2_…`, the contract's own code). Below the reason stands at
most one *finding*, which says which check decided, with found, allowed and where. A published code never
changes its spelling or its meaning and is never removed.
"""

from kvint2eval.codes.kinds import FindingCode, Outcome, Reason, ReasonCode
from kvint2eval.codes.v1 import EXAMPLES_V1, FINDINGS_V1, REASONS_V1
from kvint2eval.codes.v2 import EXAMPLES_V2, FINDINGS_V2, REASONS_V2

__all__ = ["EXAMPLES", "FINDINGS", "REASONS", "FindingCode", "Outcome", "Reason", "ReasonCode"]

REASONS: dict[Reason, ReasonCode] = REASONS_V1 | REASONS_V2
FINDINGS: dict[str, FindingCode] = FINDINGS_V1 | FINDINGS_V2
EXAMPLES: dict[str, str] = EXAMPLES_V1 | EXAMPLES_V2
"""What gives each finding, in a few words."""
