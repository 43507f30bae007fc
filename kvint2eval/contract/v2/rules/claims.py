"""Step 15: each claim is one that the contract can judge, and is what the trials give.

A claim whose figures are wrong makes the record unsupported. A claim whose figures are right but which too few
trials carry is refused by itself: the other claims stand. A record all of whose claims are refused is unsupported.
"""

from __future__ import annotations

import math
from operator import sub
from typing import TYPE_CHECKING, Any

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.bootstrap import RESAMPLES, claim_seed, paired_interval
from kvint2eval.contract.v2.recompute import TOLERANCE, mean, median
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

LEAST_TRIALS = {0.9: 5, 0.95: 6, 0.99: 8}
"""Least number n of paired trials, by level: n differences of one sign have a two-sided sign test of 2**(1-n)."""

_KINDS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("metric", tuple(METRICS)),
    ("statistic", (STATISTIC,)),
    ("method", (METHOD,)),
    ("level", tuple(LEAST_TRIALS)),
    ("resamples", (RESAMPLES,)),
)

ZERO_OUTPUT_NMSE = 1.0
"""NMSE of an output of zeros."""


TOO_MANY_CLAIMS = Code(
    "too-many-claims",
    Reason.CLAIM_NOT_REPRODUCED,
    "More than 16 claims.",
    "Claim what matters.",
    "17 claims",
    v2=15,
)
CLAIM_ARM = Code(
    "claim-arm",
    Reason.CLAIM_NOT_REPRODUCED,
    "A claim is about another arm than the selected one, or compares it with another than the baseline.",
    "Claim what was selected by calibration, against the baseline.",
    "a claim for the arm that did best in the evaluation",
    v2=15,
)
CLAIM_KIND = Code(
    "claim-kind",
    Reason.CLAIM_NOT_REPRODUCED,
    "Metric, statistic, method, level or resamples of a claim cannot be recomputed.",
    "Use what docs/reference/contract-v2.md lists.",
    '"level": 0.8',
    v2=15,
)


def check_claim_form(subject: SubjectV2) -> Finding | None:
    """Step 15: a claim compares the selected arm with the baseline, in a way that can be recomputed."""
    claims = subject.record.claims
    if len(claims) > MAX_CLAIMS:
        return finding(
            TOO_MANY_CLAIMS, "/claims", claims, f"at most {MAX_CLAIMS} claims; found {len(claims)}"
        )
    for index, claim in enumerate(claims):
        for name, allowed in (
            ("candidate", subject.measurements.selected),
            ("baseline", subject.record.recipe.baseline),
        ):
            value = getattr(claim, name)
            if value != allowed:
                words = f'"{allowed}": a claim is about the selected arm and the baseline'
                return finding(CLAIM_ARM, f"/claims/{index}/{name}", value, words)
        for name, choices in _KINDS:
            value = getattr(claim, name)
            if value not in choices:
                words = f"one of {', '.join(map(str, choices))}" if len(choices) > 1 else str(choices[0])
                return finding(CLAIM_KIND, f"/claims/{index}/{name}", value, words)
    return None


def _columns(subject: SubjectV2, claim: layout.Claim) -> tuple[list[float], list[float]]:
    """Figures of baseline and candidate, one a trial."""
    column = METRICS[claim.metric]
    baseline, candidate = subject.arms[claim.baseline][1], subject.arms[claim.candidate][1]
    return getattr(baseline.trials, column), getattr(candidate.trials, column)


def _differences(subject: SubjectV2, claim: layout.Claim) -> list[float]:
    return list(map(sub, *_columns(subject, claim)))


CLAIM_SEED = Code(
    "claim-seed",
    Reason.CLAIM_NOT_REPRODUCED,
    "The seed of an interval is not the one that the claim's figures give: a seed that is chosen can be tried.",
    "Let the producer write the claim; docs/reference/contract-v2.md says how the seed follows from the figures.",
    "the seed of a run",
    v2=15,
)


def check_claim_seed(subject: SubjectV2) -> Finding | None:
    """Step 15: the seed of an interval follows from the figures of the claim."""
    for index, claim in enumerate(subject.record.claims):
        seed = claim_seed(*_columns(subject, claim))
        if claim.seed != seed:
            return finding(CLAIM_SEED, f"/claims/{index}/seed", claim.seed, f"{seed}, as the figures give")
    return None


CLAIM_VALUE = Code(
    "claim-value",
    Reason.CLAIM_NOT_REPRODUCED,
    "The value of a claim is not what the trials give.",
    "Mean of baseline minus candidate, trial by trial.",
    "a rounded value",
    v2=15,
)
CLAIM_INTERVAL = Code(
    "claim-interval",
    Reason.CLAIM_NOT_REPRODUCED,
    "The interval of a claim is not what the trials and its seed give.",
    "Compute it with the index stream of the contract.",
    "an interval of another seed",
    v2=15,
)


def _interval(subject: SubjectV2, index: int) -> tuple[float, float]:
    """Interval of a claim as the trials give it, computed once."""
    if index not in subject.intervals:
        claim = subject.record.claims[index]
        subject.intervals[index] = paired_interval(
            _differences(subject, claim), level=claim.level, resamples=claim.resamples, seed=claim.seed
        )
    return subject.intervals[index]


def check_claim_figures(subject: SubjectV2) -> Finding | None:
    """Step 15: value and interval of every claim are what the trials and the seed give."""
    for index, claim in enumerate(subject.record.claims):
        differences = _differences(subject, claim)
        slack = TOLERANCE * max(map(abs, differences))
        value = mean(differences)
        if abs(claim.value - value) > slack:
            return finding(
                CLAIM_VALUE, f"/claims/{index}/value", claim.value, f"{value!r}, as the trials give"
            )
        low, high = _interval(subject, index)
        for name, stated, computed in (("low", claim.low, low), ("high", claim.high, high)):
            if abs(stated - computed) > slack:
                words = f"{computed!r}, as the trials give with seed {claim.seed}"
                return finding(CLAIM_INTERVAL, f"/claims/{index}/{name}", stated, words)
    return None


WINNER_LOSES_TO_ZERO = Code(
    "winner-loses-to-zero",
    Reason.NO_BETTER_THAN_ZERO,
    "The arm that is said to be better has a mean NMSE of 1 or more.",
    "There is no improvement to claim.",
    "an arm at 1.96 against a baseline at 52",
    v2=15,
)


def check_winner(subject: SubjectV2) -> Finding | None:
    """Step 15: the arm that is said to be better is better than an output of zeros."""
    for index, claim in enumerate(subject.record.claims):
        center = mean(subject.arms[claim.candidate][1].trials.nmse)
        if center >= ZERO_OUTPUT_NMSE:
            words = f"an arm whose mean NMSE is below {ZERO_OUTPUT_NMSE}; this one has {center!r}"
            return finding(WINNER_LOSES_TO_ZERO, f"/claims/{index}/candidate", claim.candidate, words)
    return None


def check_claims_shown(subject: SubjectV2) -> Finding | None:
    """Step 15: at least one claim is shown by its trials; those that are not are refused one by one."""
    verdicts = [_shown(index, claim, subject) for index, claim in enumerate(subject.record.claims)]
    subject.claims = tuple(verdicts)
    if verdicts and all(verdict.finding is not None for verdict in verdicts):
        return verdicts[0].finding
    return None


CLAIM_TOO_FEW_TRIALS = Code(
    "claim-too-few-trials",
    Reason.CLAIM_REFUSED,
    "Too few trials for an interval of this level to exclude no effect.",
    "At least 5, 6 or 8 trials for level 0.9, 0.95 or 0.99.",
    "five trials for level 0.95",
    v2=15,
)
CLAIM_NO_EFFECT = Code(
    "claim-no-effect",
    Reason.CLAIM_REFUSED,
    "The interval of a claim does not exclude no effect.",
    "Run more trials, or claim nothing.",
    "an interval from -0.1 to 0.4",
    v2=15,
)


def _shown(index: int, claim: layout.Claim, subject: SubjectV2) -> ClaimVerdict:
    trials = subject.record.protocol.trials or 0
    least = LEAST_TRIALS[claim.level]
    refusal = None
    if trials < least:
        words = f"at least {least} trials for level {claim.level}: fewer cannot exclude no effect"
        refusal = finding(
            CLAIM_TOO_FEW_TRIALS, f"/claims/{index}/level", claim.level, f"{words}; found {trials}"
        )
    elif _interval(subject, index)[0] <= 0:
        words = "above 0, as the trials give it: the interval must exclude no effect"
        refusal = finding(CLAIM_NO_EFFECT, f"/claims/{index}/low", claim.low, words)
    else:
        refusal = _doubted(index, claim, subject)
    return ClaimVerdict(f"/claims/{index}", claim.metric, refusal)


CLAIM_AGAINST_MEDIAN = Code(
    "claim-against-median",
    Reason.CLAIM_REFUSED,
    "The median trial contradicts the claim: a few trials carry its mean.",
    "Claim what most trials show.",
    "worse in 60 of 64 trials, and better in the mean",
    v2=15,
)
CLAIM_CLOCK = Code(
    "claim-clock",
    Reason.CLAIM_REFUSED,
    "A claim of speed rests on times that show none: no execution before the first timed one, or a host clock on CUDA.",
    "Warm up, and time a GPU with its own events.",
    '"warmup": 0 beside a claim of decode_us',
    v2=15,
)


def _doubted(index: int, claim: layout.Claim, subject: SubjectV2) -> Finding | None:
    """Why a claim whose interval excludes no effect is refused all the same."""
    pointer = f"/claims/{index}"
    protocol = subject.record.protocol
    middle = median(_differences(subject, claim))
    if middle <= 0:
        words = f"a claim that the median trial bears out; its difference is {middle!r}"
        return finding(CLAIM_AGAINST_MEDIAN, f"{pointer}/value", claim.value, words)
    if claim.metric != "decode_us":
        return None
    if not protocol.warmup:
        words = "no claim of speed where protocol.warmup is 0"
        return finding(CLAIM_CLOCK, f"{pointer}/metric", claim.metric, words)
    if subject.record.environment.runtime == "cuda" and protocol.clock != "cuda-event":
        words = f"no claim of speed on CUDA with the clock {protocol.clock}"
        return finding(CLAIM_CLOCK, f"{pointer}/metric", claim.metric, words)
    return None


CLAIM_REPEATED = Code(
    "claim-repeated",
    Reason.CLAIM_NOT_REPRODUCED,
    "Two claims are about one metric, one pair of arms and one statistic: several intervals are several chances.",
    "Claim it once, with one interval.",
    "one claim with two seeds",
    v2=15,
)


def check_claims_once(subject: SubjectV2) -> Finding | None:
    """Step 15: a metric, a pair of arms and a statistic are claimed once."""
    seen: dict[tuple[str, ...], int] = {}
    for index, claim in enumerate(subject.record.claims):
        what = (claim.metric, claim.candidate, claim.baseline, claim.statistic)
        if what in seen:
            words = f"a metric that claim {seen[what]} is not about"
            return finding(CLAIM_REPEATED, f"/claims/{index}/metric", claim.metric, words)
        seen[what] = index
    return None


BASELINE_LOSES_TO_ZERO = Code(
    "baseline-loses-to-zero",
    Reason.NO_BETTER_THAN_ZERO,
    "The errors of the baseline sum to as much as those of an output of zeros, or more: any arm is better.",
    "Compare with a baseline that works: tune it, or take another.",
    "a baseline at 40 against an arm at 0.2",
    v2=15,
)
BASELINE_PREFERRED = Code(
    "baseline-preferred",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "By the calibration objective the baseline is better than the selected arm, and yet it is claimed to be worse.",
    "Claim nothing that the calibration contradicts.",
    "an objective of 0.2 for the baseline and of 0.3 for the selected arm",
    v2=15,
)


def check_baseline(subject: SubjectV2) -> Finding | None:
    """Step 15: the baseline of a claim of error is better than zeros, and the calibration does not prefer it."""
    for index, claim in enumerate(subject.record.claims):
        if claim.metric != "output_nmse":
            continue
        baseline, candidate = subject.arms[claim.baseline][1], subject.arms[claim.candidate][1]
        share = math.fsum(baseline.trials.numerator) / math.fsum(baseline.trials.denominator)
        if share >= ZERO_OUTPUT_NMSE:
            words = f"a baseline whose errors sum to less than its outputs; these sum to {share!r} of them"
            return finding(BASELINE_LOSES_TO_ZERO, f"/claims/{index}/baseline", claim.baseline, words)
        least, other = min(baseline.calibration.objective), min(candidate.calibration.objective)
        if least < other:
            words = f"a baseline with a larger calibration objective than {other!r}; it has {least!r}"
            return finding(BASELINE_PREFERRED, f"/claims/{index}/baseline", claim.baseline, words)
    return None


RULES: tuple[RuleV2, ...] = (
    check_claim_form,
    check_claims_once,
    check_claim_seed,
    check_claim_figures,
    check_winner,
    check_baseline,
    check_claims_shown,
)
