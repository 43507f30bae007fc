"""Claims of v2 records in words: what is claimed of which arm, against which, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kvint2eval.report.escape import safe

if TYPE_CHECKING:
    from kvint2eval.verdict import ClaimVerdict, Verdict

__all__ = ["ClaimShown", "claims_of"]

_UNITS = {"output_nmse": "", "decode_us": "µs"}
"""Unit by metric; the NMSE is a ratio and has none."""


class _Claim(msgspec.Struct):
    metric: str
    candidate: str
    baseline: str
    value: float
    low: float
    high: float
    level: float


class _Storage(msgspec.Struct):
    bits_per_element: float


class _Measurements(msgspec.Struct):
    storage: _Storage


class _Recipe(msgspec.Struct):
    bits: int


class _Record(msgspec.Struct):
    claims: list[_Claim]
    recipe: _Recipe
    measurements: _Measurements | None


class ClaimShown(NamedTuple):
    """One claim as reports show it."""

    verdict: ClaimVerdict
    claim: _Claim
    bits: int
    bits_per_element: float

    @property
    def members(self) -> dict[str, Any]:
        """The claim as JSON members."""
        claim, finding = self.claim, self.verdict.finding
        return {
            "pointer": self.verdict.pointer,
            "metric": claim.metric,
            "stands": finding is None,
            "finding": None if finding is None else str(finding.code),
            "candidate": claim.candidate,
            "baseline": claim.baseline,
            "value": claim.value,
            "low": claim.low,
            "high": claim.high,
            "level": claim.level,
            "unit": _UNITS.get(claim.metric, ""),
            "bits": self.bits,
            "bits_per_element": self.bits_per_element,
        }

    @property
    def sentence(self) -> str:
        """The claim and what became of it, one line."""
        claim, finding = self.claim, self.verdict.finding
        unit = _UNITS.get(claim.metric, "")
        unit = f" {unit}" if unit else " (a ratio, no unit)"
        fate = "stands" if finding is None else f"refused, {finding.code}: {finding.meaning}"
        return (
            f"{safe(self.verdict.pointer)} {safe(claim.metric)} of {safe(claim.candidate)} is below that of "
            f"{safe(claim.baseline)} by {claim.value:.6g}{unit}, {100 * claim.level:g} % interval {claim.low:.6g} to "
            f"{claim.high:.6g}; {self.bits} bits, {self.bits_per_element:.6g} bits per element stored: {fate}"
        )


def claims_of(verdict: Verdict) -> list[ClaimShown]:
    """Claims of a verdict; none where the steps ended before them."""
    if not verdict.claims:
        return []
    record = msgspec.json.decode(verdict.canonical, type=_Record)
    stored = 0.0 if record.measurements is None else record.measurements.storage.bits_per_element
    return [
        ClaimShown(one, claim, record.recipe.bits, stored)
        for one, claim in zip(verdict.claims, record.claims, strict=True)
    ]
