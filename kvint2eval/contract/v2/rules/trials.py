"""Steps 11 and 12: the figures of a trial fit one another, and the summaries are what the trials give.

Each rule asks whole columns first and looks for the place at fault only when a column fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def check_figures(subject: SubjectV2) -> Finding | None:
    """Step 11: no figure is negative or absurdly large, and denominators and times are positive."""
    for index, arm in enumerate(subject.measurements.arms):
        for name, values, least, words in _columns(arm):
            if values and (min(values) < least or max(values) > LARGEST_FIGURE):
                at = next(at for at, one in enumerate(values) if not least <= one <= LARGEST_FIGURE)
                pointer = f"/measurements/arms/{index}/{name}/{at}"
                return finding("figure-out-of-range", pointer, values[at], f"{words} to {LARGEST_FIGURE}")
    return None


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
            return finding("trial-nmse", pointer, trials.nmse[at], f"{computed[at]!r}")
    return None


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
                return finding("trial-split", pointer, numerator, allowed)
    return None


def check_arms_differ(subject: SubjectV2) -> Finding | None:
    """Step 11: no two arms have one error in every trial, as two rotations that are one up to sign would."""
    seen: dict[tuple[float, ...], str] = {}
    for index, arm in enumerate(subject.measurements.arms):
        errors = tuple(arm.trials.numerator)
        if errors in seen:
            pointer = f"/measurements/arms/{index}/trials/numerator"
            return finding(
                "arms-equal", pointer, arm.trials.numerator, f"other errors than {seen[errors]} has"
            )
        seen[errors] = arm.rotation
    return None


def check_calibration(subject: SubjectV2) -> Finding | None:
    """Step 12: a calibration objective is the mean over the calibration queries."""
    queries = len(subject.record.protocol.calibration_queries or ())
    for index, arm in enumerate(subject.measurements.arms):
        pointer = f"/measurements/arms/{index}/calibration"
        calibration = arm.calibration
        sizes = {len(calibration.clip_ratio), len(calibration.objective), len(calibration.query_nmse)}
        if len(sizes) != 1 or any(len(row) != queries for row in calibration.query_nmse):
            allowed = f"one row a clip ratio, of {queries} values, one a calibration query"
            return finding("calibration-table", f"{pointer}/query_nmse", calibration.query_nmse, allowed)
        for at, (stated, row) in enumerate(zip(calibration.objective, calibration.query_nmse, strict=True)):
            computed = mean(row)
            if not is_close(stated, computed):
                return finding("calibration-objective", f"{pointer}/objective/{at}", stated, repr(computed))
    return None


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
                return finding("summary-differs", pointer, value, f"{computed!r}, as the trials give")
    return None


RULES: tuple[RuleV2, ...] = (
    check_figures,
    check_nmse,
    check_split,
    check_arms_differ,
    check_calibration,
    check_summaries,
)
