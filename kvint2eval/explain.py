"""Explanations of codes: the text of `kvint2eval explain` and of the code index."""

from __future__ import annotations

from kvint2eval.codes import FINDINGS, REASONS, Code, Reason
from kvint2eval.gate.codes import GATE_FINDINGS

__all__ = ["explain", "index"]


def explain(code: str) -> str | None:
    """Explanation of a reason or a finding, several lines; None for an unknown code.

    Parameters
    ----------
    code
        A reason in any case, or a finding of a record or of the docs gate.
    """
    finding = FINDINGS.get(code)
    if finding is not None:
        return (
            f"{code}\n"
            f"  {finding.meaning}\n\n"
            f"  decides  {_steps(finding)}: {REASONS[finding.reason].outcome} / {finding.reason}\n"
            f"  example  {finding.example}\n"
            f"  fix      {finding.mend}\n"
        )
    gate = GATE_FINDINGS.get(code)
    if gate is not None:
        return f"{code}\n  {gate.meaning}\n\n  decides  the docs gate: no success\n  fix      {gate.mend}\n"
    if code.upper() not in set(Reason):
        return None
    reason = Reason(code.upper())
    meaning = REASONS[reason]
    findings = [name for name, one in FINDINGS.items() if one.reason is reason]
    lines = [reason, f"  {meaning.meaning}", "", f"  outcome  {meaning.outcome}"]
    if findings:
        lines.append(f"  example  {findings[0]}: {FINDINGS[findings[0]].example}")
    lines.append(f"  fix      {meaning.mend}")
    if findings:
        lines += ["", "  findings that give it:"]
        lines += [f"    {name:32} {FINDINGS[name].meaning}" for name in findings]
    return "\n".join(lines) + "\n"


def _steps(code: Code) -> str:
    """Where a finding is given: `step 9 of v1, step 16 of v2`."""
    return ", ".join(f"step {step} of {contract}" for contract, step in code.steps.items()) or "a policy"


def index() -> str:
    """All codes, one a line: the reasons, and below each its findings."""
    lines = []
    for reason, meaning in REASONS.items():
        lines.append(f"{reason}  ({meaning.outcome})")
        lines += [f"    {name}" for name, one in FINDINGS.items() if one.reason is reason]
    lines += ["docs gate", *(f"    {name}" for name in GATE_FINDINGS)]
    return "\n".join(lines) + "\n"
