"""Steps 11 and 12: the figures of a trial fit one another, and the summaries are what the trials give.

Each rule asks whole columns first and looks for the place at fault only when a column fails.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.recompute import (
    DENOMINATOR_FLOOR,
    TOLERANCE,
    is_close,
    mean,
    median,
    population_deviation,
)
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["LARGEST_FIGURE", "RULES"]

LARGEST_FIGURE = 1e60
"""No figure is larger: a sum of squares of them stays finite."""


def _columns(arm: layout.Arm) -> Iterator[tuple[str, list[float], float, str]]:
    """Columns of an arm that must be in a range: pointer below the arm, values, least, and the range in words."""
    trials, calibration = arm.trials, arm.calibration
    for name in ("nmse", "numerator", "key_part", "value_part"):
        yield f"trials/{name}", getattr(trials, name), 0.0, "from 0"
    yield "trials/cross_part", trials.cross_part, -LARGEST_FIGURE, f"from {-LARGEST_FIGURE}"
    for name in ("denominator", "decode_us"):
        yield f"trials/{name}", getattr(trials, name), 5e-324, "above 0"
    yield "calibration/objective", calibration.objective, 0.0, "from 0"
    for index, row in enumerate(calibration.query_nmse):
        yield f"calibration/query_nmse/{index}", row, 0.0, "from 0"


FIGURE_OUT_OF_RANGE = Code(
    "figure-out-of-range",
    Reason.INVALID_MEASUREMENT,
    "A figure is negative, zero where it cannot be, or larger than 1e60.",
    "Write the figure that was measured.",
    "a decode time of 0",
    v2=11,
)


def check_figures(subject: SubjectV2) -> Finding | None:
    """Step 11: no figure is negative or absurdly large, and denominators and times are positive."""
    for index, arm in enumerate(subject.measurements.arms):
        for name, values, least, words in _columns(arm):
            if values and (min(values) < least or max(values) > LARGEST_FIGURE):
                at = next(at for at, one in enumerate(values) if not least <= one <= LARGEST_FIGURE)
                pointer = f"/measurements/arms/{index}/{name}/{at}"
                return finding(FIGURE_OUT_OF_RANGE, pointer, values[at], f"{words} to {LARGEST_FIGURE}")
    return None


TRIAL_NMSE = Code(
    "trial-nmse",
    Reason.SUMMARY_NOT_REPRODUCED,
    "An NMSE is not numerator / (denominator + 1e-30).",
    "Compute it in binary64 from the two that are recorded.",
    "an NMSE rounded to nine digits",
    v2=11,
)


def check_nmse(subject: SubjectV2) -> Finding | None:
    """Step 11: an NMSE is its numerator over its denominator, to the last bit."""
    for index, arm in enumerate(subject.measurements.arms):
        trials = arm.trials
        computed = [
            numerator / (denominator + DENOMINATOR_FLOOR)
            for numerator, denominator in zip(trials.numerator, trials.denominator, strict=True)
        ]
        if computed != trials.nmse:
            at = next(at for at, one in enumerate(computed) if one != trials.nmse[at])
            pointer = f"/measurements/arms/{index}/trials/nmse/{at}"
            return finding(TRIAL_NMSE, pointer, trials.nmse[at], f"{computed[at]!r}")
    return None


TRIAL_SPLIT = Code(
    "trial-split",
    Reason.SUMMARY_NOT_REPRODUCED,
    "Key part, value part and cross part do not add up to the numerator.",
    "Split the error as OptR, equation 8 does; the cross part is twice the inner product.",
    "a key part that was left out",
    v2=11,
)


def check_split(subject: SubjectV2) -> Finding | None:
    """Step 11: key part, value part and cross part add up to the numerator (OptR, equations 8 and 10)."""
    for index, arm in enumerate(subject.measurements.arms):
        trials = arm.trials
        rows = zip(trials.numerator, trials.key_part, trials.value_part, trials.cross_part, strict=True)
        for at, (numerator, key, value, cross) in enumerate(rows):
            # |cross| <= key + value by Cauchy and Schwarz, so the two parts bound every sum.
            if abs(key + value + cross - numerator) > TOLERANCE * (key + value):
                pointer = f"/measurements/arms/{index}/trials/numerator/{at}"
                allowed = f"{key + value + cross!r}, the sum of its three parts"
                return finding(TRIAL_SPLIT, pointer, numerator, allowed)
    return None


TRIAL_CROSS = Code(
    "trial-cross",
    Reason.SUMMARY_NOT_REPRODUCED,
    "A cross part is larger than 2 sqrt(key part x value part), which no two errors can have.",
    "Record twice the inner product of the two errors; by Cauchy and Schwarz it cannot be larger.",
    "a cross part of 3 beside parts of 1 and 1",
    v2=11,
)


def check_cross(subject: SubjectV2) -> Finding | None:
    """Step 11: a cross part is at most 2 sqrt(key part x value part), by Cauchy and Schwarz."""
    for index, arm in enumerate(subject.measurements.arms):
        rows = zip(arm.trials.key_part, arm.trials.value_part, arm.trials.cross_part, strict=True)
        for at, (key, value, cross) in enumerate(rows):
            # Each part is rounded by itself; the slack is that of the sum in `check_split`.
            bound = 2 * math.sqrt(abs(key)) * math.sqrt(abs(value))
            if abs(cross) > bound + TOLERANCE * (key + value):
                pointer = f"/measurements/arms/{index}/trials/cross_part/{at}"
                return finding(TRIAL_CROSS, pointer, cross, f"at most {bound!r} in magnitude")
    return None


LEAST_DENOMINATOR = 0.01
"""Least sum of squares of a trial's reference, relative to the median trial's."""

DENOMINATOR_NEGLIGIBLE = Code(
    "denominator-negligible",
    Reason.INVALID_MEASUREMENT,
    "The reference of a trial is below a hundredth of the median trial's: its quotient would carry every mean.",
    "Evaluate on queries whose outputs are of one magnitude; a mean over quotients by almost 0 says nothing.",
    "a denominator of 1e-9 among denominators of 100",
    v2=11,
)


def check_denominators(subject: SubjectV2) -> Finding | None:
    """Step 11: no denominator is negligible beside the median one."""
    denominators = subject.measurements.arms[0].trials.denominator
    least = LEAST_DENOMINATOR * median(denominators)
    if min(denominators) < least:
        at = next(at for at, one in enumerate(denominators) if one < least)
        pointer = f"/measurements/arms/0/trials/denominator/{at}"
        return finding(DENOMINATOR_NEGLIGIBLE, pointer, denominators[at], f"at least {least!r}")
    return None


ARMS_EQUAL = Code(
    "arms-equal",
    Reason.ROTATIONS_COINCIDE,
    "Two arms have the same error in every trial: a symmetric quantizer cannot tell R from -R.",
    "Draw another rotation; check that the digests are those of the rotations that ran.",
    "R and -R as two candidates, with digests that differ",
    v2=11,
)


def check_arms_differ(subject: SubjectV2) -> Finding | None:
    """Step 11: no two arms have one error in every trial, as two rotations that are one up to sign would."""
    seen: dict[tuple[float, ...], str] = {}
    for index, arm in enumerate(subject.measurements.arms):
        errors = tuple(arm.trials.numerator)
        if errors in seen:
            pointer = f"/measurements/arms/{index}/trials/numerator"
            return finding(ARMS_EQUAL, pointer, arm.trials.numerator, f"other errors than {seen[errors]} has")
        seen[errors] = arm.rotation
    return None


CALIBRATION_TABLE = Code(
    "calibration-table",
    Reason.SUMMARY_NOT_REPRODUCED,
    "The calibration table is not one value a clip ratio and calibration query.",
    "Record every value that the search read.",
    "a row of 15 values for 16 queries",
    v2=12,
)
CALIBRATION_OBJECTIVE = Code(
    "calibration-objective",
    Reason.SUMMARY_NOT_REPRODUCED,
    "A calibration objective is not the mean over the calibration queries.",
    "Record the objective that the search read.",
    "an objective of another clip ratio",
    v2=12,
)


def check_calibration(subject: SubjectV2) -> Finding | None:
    """Step 12: a calibration objective is the mean over the calibration queries."""
    queries = len(subject.record.protocol.calibration_queries or ())
    for index, arm in enumerate(subject.measurements.arms):
        pointer = f"/measurements/arms/{index}/calibration"
        calibration = arm.calibration
        sizes = {len(calibration.clip_ratio), len(calibration.objective), len(calibration.query_nmse)}
        if len(sizes) != 1 or any(len(row) != queries for row in calibration.query_nmse):
            allowed = f"one row a clip ratio, of {queries} values, one a calibration query"
            return finding(CALIBRATION_TABLE, f"{pointer}/query_nmse", calibration.query_nmse, allowed)
        for at, (stated, row) in enumerate(zip(calibration.objective, calibration.query_nmse, strict=True)):
            computed = mean(row)
            if not is_close(stated, computed):
                return finding(CALIBRATION_OBJECTIVE, f"{pointer}/objective/{at}", stated, repr(computed))
    return None


SUMMARY_DIFFERS = Code(
    "summary-differs",
    Reason.SUMMARY_NOT_REPRODUCED,
    "A summary of an arm is not what its trials give.",
    "Population deviation, divided by n; median of the times.",
    "a mean over other trials",
    v2=12,
)


def check_summaries(subject: SubjectV2) -> Finding | None:
    """Step 12: mean, deviation and median are those of the trials."""
    for index, arm in enumerate(subject.measurements.arms):
        center = mean(arm.trials.nmse)
        stated = arm.summary
        for name, value, computed, magnitude in (
            ("nmse_mean", stated.nmse_mean, center, center),
            ("nmse_stddev", stated.nmse_stddev, population_deviation(arm.trials.nmse, center), center),
            ("decode_us_median", stated.decode_us_median, median(arm.trials.decode_us), None),
        ):
            if not is_close(value, computed, magnitude):
                pointer = f"/measurements/arms/{index}/summary/{name}"
                return finding(SUMMARY_DIFFERS, pointer, value, f"{computed!r}, as the trials give")
    return None


RULES: tuple[RuleV2, ...] = (
    check_figures,
    check_nmse,
    check_split,
    check_cross,
    check_denominators,
    check_arms_differ,
    check_calibration,
    check_summaries,
)
