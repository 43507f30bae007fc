"""Step 15: each claim is one that the contract can judge, and is what the trials give.

A claim whose figures are wrong makes the record unsupported. A claim whose figures are right but which too few
trials carry is refused by itself: the other claims stand. A record all of whose claims are refused is unsupported.
"""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, Any

from kvint2eval.contract.v2.bootstrap import paired_interval
from kvint2eval.contract.v2.recompute import TOLERANCE, mean
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding
from kvint2eval.verdict import ClaimVerdict

if TYPE_CHECKING:
    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["LEAST_TRIALS", "MAX_CLAIMS", "RULES"]

METRICS = {"output_nmse": "nmse", "decode_us": "decode_us"}
STATISTIC = "mean-difference"
METHOD = "paired-percentile-bootstrap"
MAX_CLAIMS = 16
MIN_RESAMPLES, MAX_RESAMPLES = 200, 4000

LEAST_TRIALS = {0.9: 5, 0.95: 6, 0.99: 8}
"""Least number n of paired trials, by level: n differences of one sign have a two-sided sign test of 2**(1-n)."""

_KINDS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("metric", tuple(METRICS)),
    ("statistic", (STATISTIC,)),
    ("method", (METHOD,)),
    ("level", tuple(LEAST_TRIALS)),
)

ZERO_OUTPUT_NMSE = 1.0
"""NMSE of an output of zeros."""


def check_claim_form(subject: SubjectV2) -> Finding | None:
    """Step 15: a claim compares the selected arm with the baseline, in a way that can be recomputed."""
    claims = subject.record.claims
    if len(claims) > MAX_CLAIMS:
        return finding(
            "too-many-claims", "/claims", claims, f"at most {MAX_CLAIMS} claims; found {len(claims)}"
        )
    for index, claim in enumerate(claims):
        for name, allowed in (
            ("candidate", subject.measurements.selected),
            ("baseline", subject.record.recipe.baseline),
        ):
            value = getattr(claim, name)
            if value != allowed:
                words = f'"{allowed}": a claim is about the selected arm and the baseline'
                return finding("claim-arm", f"/claims/{index}/{name}", value, words)
        for name, choices in _KINDS:
            value = getattr(claim, name)
            if value not in choices:
                words = f"one of {', '.join(map(str, choices))}" if len(choices) > 1 else str(choices[0])
                return finding("claim-kind", f"/claims/{index}/{name}", value, words)
        if not MIN_RESAMPLES <= claim.resamples <= MAX_RESAMPLES:
            words = f"{MIN_RESAMPLES} to {MAX_RESAMPLES}"
            return finding("claim-kind", f"/claims/{index}/resamples", claim.resamples, words)
    return None


def _differences(subject: SubjectV2, claim: layout.Claim) -> list[float]:
    column = METRICS[claim.metric]
    baseline, candidate = subject.arms[claim.baseline][1], subject.arms[claim.candidate][1]
    return list(map(sub, getattr(baseline.trials, column), getattr(candidate.trials, column)))


def check_claim_figures(subject: SubjectV2) -> Finding | None:
    """Step 15: value and interval of every claim are what the trials and the seed give."""
    for index, claim in enumerate(subject.record.claims):
        differences = _differences(subject, claim)
        slack = TOLERANCE * max(map(abs, differences))
        value = mean(differences)
        if abs(claim.value - value) > slack:
            return finding(
                "claim-value", f"/claims/{index}/value", claim.value, f"{value!r}, as the trials give"
            )
        low, high = paired_interval(
            differences, level=claim.level, resamples=claim.resamples, seed=claim.seed
        )
        for name, stated, computed in (("low", claim.low, low), ("high", claim.high, high)):
            if abs(stated - computed) > slack:
                words = f"{computed!r}, as the trials give with seed {claim.seed}"
                return finding("claim-interval", f"/claims/{index}/{name}", stated, words)
    return None


def check_winner(subject: SubjectV2) -> Finding | None:
    """Step 15: the arm that is said to be better is better than an output of zeros."""
    for index, claim in enumerate(subject.record.claims):
        center = mean(subject.arms[claim.candidate][1].trials.nmse)
        if center >= ZERO_OUTPUT_NMSE:
            words = f"an arm whose mean NMSE is below {ZERO_OUTPUT_NMSE}; this one has {center!r}"
            return finding("winner-loses-to-zero", f"/claims/{index}/candidate", claim.candidate, words)
    return None


def check_claims_shown(subject: SubjectV2) -> Finding | None:
    """Step 15: at least one claim is shown by its trials; those that are not are refused one by one."""
    verdicts = [_shown(index, claim, subject) for index, claim in enumerate(subject.record.claims)]
    subject.claims = tuple(verdicts)
    if verdicts and all(verdict.finding is not None for verdict in verdicts):
        return verdicts[0].finding
    return None


def _shown(index: int, claim: layout.Claim, subject: SubjectV2) -> ClaimVerdict:
    trials = subject.record.protocol.trials or 0
    least = LEAST_TRIALS[claim.level]
    refusal = None
    if trials < least:
        words = f"at least {least} trials for level {claim.level}: fewer cannot exclude no effect"
        refusal = finding(
            "claim-too-few-trials", f"/claims/{index}/level", claim.level, f"{words}; found {trials}"
        )
    elif claim.low <= 0:
        words = "above 0: the interval must exclude no effect"
        refusal = finding("claim-no-effect", f"/claims/{index}/low", claim.low, words)
    return ClaimVerdict(f"/claims/{index}", claim.metric, refusal)


RULES: tuple[RuleV2, ...] = (check_claim_form, check_claim_figures, check_winner, check_claims_shown)
