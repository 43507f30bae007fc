"""Step 8: no measurement is missing, impossible, or contradicts another one.

Each rule first asks whole columns of the candidate table, which costs a microsecond, and looks for the row at
fault only when a column fails. No value here is NaN or infinite: the readers refuse both.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import repeat
from operator import le
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v1 import _decoder as layout
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
from kvint2eval.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RULES", "TOLERANCE"]

TOLERANCE = 1e-9
"""How far a printed accuracy or its deviation may lie from the exact one: half a unit of the ninth digit, doubled."""

_RELATIVE = 1e-8
"""How far a printed deviation may lie above its bound, relative: mean and deviation are each rounded to nine digits."""

_SCALARS = (
    "transform_milliseconds",
    "cache_bytes",
    "baseline_output_nmse",
    "candidate_output_nmse",
    "baseline_task_accuracy",
    "candidate_task_accuracy",
    "baseline_decode_microseconds",
    "candidate_decode_microseconds",
)
_COUNTERS = ("candidate_count", "decode_trials", "selected_rotation")

# Places of the columns in `Subject.columns`, which follow the declared order of a row.
_ROTATION, _CLIP, _CALIBRATION, _NMSE, _NMSE_SD, _ACCURACY, _ACCURACY_SD, _DECODE, _DECODE_SD = range(9)
_COLUMN_NAMES = layout.Candidate.__struct_fields__


def _row_finding(
    subject: Subject, code: Code, column: int, allowed: str, is_wrong: Callable[[Any], bool]
) -> Finding:
    """Finding for the first row whose value in a column is wrong."""
    values = subject.columns[column]
    index = next(index for index, value in enumerate(values) if is_wrong(value))
    pointer = f"/metrics/candidates/{index}/{_COLUMN_NAMES[column]}"
    return finding(subject, code, pointer, values[index], allowed)


MEASUREMENT_MISSING = Code(
    "measurement-missing",
    Reason.INVALID_MEASUREMENT,
    "A measurement or a member of a candidate row is missing.",
    "Record every figure of the run.",
    "metrics without decode_trials",
    v1=8,
)


def check_present(subject: Subject) -> Finding | None:
    """Step 8: every measurement and every member of every row is there."""
    metrics = subject.record.metrics
    counters = (metrics.candidate_count, metrics.decode_trials, metrics.selected_rotation)
    rows = metrics.candidates
    if not subject.missing and isinstance(rows, tuple) and UNSET not in counters:
        return None
    code, allowed = MEASUREMENT_MISSING, "a measurement"
    for name in (*_COUNTERS, "candidates", *_SCALARS):
        pointer = f"/metrics/{name}"
        # A null in `candidates` counts as absent; no other member can be None.
        if subject.is_missing(pointer) or getattr(metrics, name) in (UNSET, None):
            return finding(subject, code, pointer, UNSET, allowed)
    for index in range(len(rows)):  # type: ignore[arg-type]  # the loop above found it present
        for name in _COLUMN_NAMES:
            pointer = f"/metrics/candidates/{index}/{name}"
            if subject.is_missing(pointer):
                return finding(subject, code, pointer, UNSET, allowed)
    return None


TOO_FEW_TRIALS = Code(
    "too-few-trials",
    Reason.INVALID_MEASUREMENT,
    "decode_trials is below 2.",
    "A deviation needs at least two trials.",
    '"decode_trials": 1',
    v1=8,
)
TOO_FEW_CANDIDATES = Code(
    "too-few-candidates",
    Reason.INVALID_MEASUREMENT,
    "Fewer than two candidate rows.",
    "A comparison needs the baseline and a candidate.",
    "one candidate row",
    v1=8,
)
CANDIDATE_COUNT = Code(
    "candidate-count",
    Reason.INVALID_MEASUREMENT,
    "candidate_count is not the number of rows.",
    "Keep every row that was searched.",
    '"candidate_count": 8 with nine rows',
    v1=8,
)


def check_search_size(subject: Subject) -> Finding | None:
    """Step 8: at least two trials, at least two rows, and as many rows as were counted."""
    metrics = subject.record.metrics
    trials: int = metrics.decode_trials  # type: ignore[assignment]  # check_present came before
    if trials < 2:
        return finding(subject, TOO_FEW_TRIALS, "/metrics/decode_trials", trials, "at least 2")
    rows = len(metrics.candidates)  # type: ignore[arg-type]
    if rows < 2:
        return Finding(TOO_FEW_CANDIDATES, "/metrics/candidates", f"{rows} rows", "at least 2 rows")
    count = metrics.candidate_count
    if count != rows:
        return finding(
            subject, CANDIDATE_COUNT, "/metrics/candidate_count", count, f"{rows}, the number of rows"
        )
    return None


MEASUREMENT_NEGATIVE = Code(
    "measurement-negative",
    Reason.INVALID_MEASUREMENT,
    "A measurement is negative.",
    "No figure of a record can be below 0.",
    '"output_nmse_mean": -1.5',
    v1=8,
)


def check_not_negative(subject: Subject) -> Finding | None:
    """Step 8: no measurement is negative."""
    if subject.is_plain:
        return None
    metrics = subject.record.metrics
    code, allowed = MEASUREMENT_NEGATIVE, "0 or more"
    # The integers among them, `cache_bytes` and `rotation`, each have a rule that names the exact value.
    for name in _SCALARS:
        if name != "cache_bytes" and getattr(metrics, name) < 0:
            return finding(subject, code, f"/metrics/{name}", getattr(metrics, name), allowed)
    for column, values in enumerate(subject.columns):
        if column != _ROTATION and min(values) < 0:
            return _row_finding(subject, code, column, allowed, lambda value: value < 0)
    return None


CACHE_BYTES = Code(
    "cache-bytes",
    Reason.INVALID_MEASUREMENT,
    "cache_bytes is not tokens x heads x head dimension x 2 (K and V) x 2 bits / 8.",
    "Write the packed payload's size; metadata is not part of it in v1.",
    "1048577 for a cache of 1048576 bytes",
    v1=8,
)


def check_cache_bytes(subject: Subject) -> Finding | None:
    """Step 8: `cache_bytes` = tokens x heads x head dimension x 2 (K and V) x 2 bits / 8, exactly."""
    hardware = subject.record.hardware
    values = hardware.context_tokens * hardware.kv_heads * hardware.head_dimension * 2
    stated = subject.record.metrics.cache_bytes
    if stated * 8 == values * 2:
        return None
    # An odd count of values would need a fraction of a byte, which no cache has.
    exact = str(values // 4) if values % 4 == 0 else f"{values} values, which are no whole number of bytes"
    return finding(subject, CACHE_BYTES, "/metrics/cache_bytes", stated, exact)


LATENCY_NOT_POSITIVE = Code(
    "latency-not-positive",
    Reason.INVALID_MEASUREMENT,
    "A decode time is not positive.",
    "Check the clock and its synchronisation.",
    '"decode_microseconds_mean": 0',
    v1=8,
)
CALIBRATION_NOT_POSITIVE = Code(
    "calibration-not-positive",
    Reason.INVALID_MEASUREMENT,
    "A calibration time is not positive.",
    "Check the clock and its synchronisation.",
    '"calibration_milliseconds": 0',
    v1=8,
)


def check_latencies(subject: Subject) -> Finding | None:
    """Step 8: decode times and calibration times are positive."""
    metrics = subject.record.metrics
    code, allowed = LATENCY_NOT_POSITIVE, "more than 0"
    for name in ("baseline_decode_microseconds", "candidate_decode_microseconds"):
        if not getattr(metrics, name):
            return finding(subject, code, f"/metrics/{name}", getattr(metrics, name), allowed)
    columns = subject.columns
    if not min(columns[_DECODE]):
        return _row_finding(subject, code, _DECODE, allowed, lambda value: not value)
    if not min(columns[_CALIBRATION]):
        return _row_finding(subject, CALIBRATION_NOT_POSITIVE, _CALIBRATION, allowed, lambda value: not value)
    return None


ACCURACY_OUT_OF_RANGE = Code(
    "accuracy-out-of-range",
    Reason.INVALID_MEASUREMENT,
    "A task accuracy is above 1.",
    "An accuracy is a share of the trials, in [0, 1].",
    '"task_accuracy_mean": 1.1',
    v1=8,
)
CLIP_RATIO_OUT_OF_RANGE = Code(
    "clip-ratio-out-of-range",
    Reason.INVALID_MEASUREMENT,
    "A clip ratio is not in (0, 1].",
    "A clip ratio is a share of the group's largest magnitude.",
    '"clip_ratio": 1.2',
    v1=8,
)


def check_ranges(subject: Subject) -> Finding | None:
    """Step 8: accuracies are in [0, 1] and clip ratios in (0, 1]."""
    metrics = subject.record.metrics
    code, allowed = ACCURACY_OUT_OF_RANGE, "a number in [0, 1]"
    for name in ("baseline_task_accuracy", "candidate_task_accuracy"):
        if getattr(metrics, name) > 1:
            return finding(subject, code, f"/metrics/{name}", getattr(metrics, name), allowed)
    columns = subject.columns
    if max(columns[_ACCURACY]) > 1:
        return _row_finding(subject, code, _ACCURACY, allowed, lambda value: value > 1)
    clips = columns[_CLIP]
    if max(clips) > 1 or not min(clips):
        return _row_finding(
            subject, CLIP_RATIO_OUT_OF_RANGE, _CLIP, "a number in (0, 1]", lambda value: not 0 < value <= 1
        )
    return None


ROTATION_SET = Code(
    "rotation-set",
    Reason.INVALID_MEASUREMENT,
    "The rotations of the rows are not 0 to n-1, each once.",
    "Rotation 0 is the baseline; number the rest without gaps.",
    "two rows of rotation 3 and none of rotation 4",
    v1=8,
)
SELECTED_ROTATION = Code(
    "selected-rotation",
    Reason.INVALID_MEASUREMENT,
    "selected_rotation is no row, or is the baseline.",
    "Name the row that was selected.",
    '"selected_rotation": 0',
    v1=8,
)


def check_rotations(subject: Subject) -> Finding | None:
    """Step 8: rotations 0 to n-1 stand once each, and the selected one is a row other than the baseline."""
    rotations = subject.columns[_ROTATION]
    count = len(rotations)
    if rotations != tuple(range(count)) and sorted(rotations) != list(range(count)):
        seen: set[int] = set()

        def is_wrong(rotation: int) -> bool:
            wrong = rotation in seen or not 0 <= rotation < count
            seen.add(rotation)
            return wrong

        return _row_finding(subject, ROTATION_SET, _ROTATION, f"each of 0 to {count - 1} once", is_wrong)
    selected: int = subject.record.metrics.selected_rotation  # type: ignore[assignment]  # check_present came before
    if not 1 <= selected < count:
        return finding(
            subject, SELECTED_ROTATION, "/metrics/selected_rotation", selected, f"one of 1 to {count - 1}"
        )
    return None


BASELINE_SUMMARY = Code(
    "baseline-summary",
    Reason.INVALID_MEASUREMENT,
    "A baseline figure is not that of rotation 0.",
    "Copy the figure from the row of rotation 0.",
    "baseline_output_nmse 52.4 where row 0 has 52.3537316",
    v1=8,
)
CANDIDATE_SUMMARY = Code(
    "candidate-summary",
    Reason.INVALID_MEASUREMENT,
    "A candidate figure is not that of the selected row.",
    "Copy the figure from the selected row.",
    "candidate_output_nmse of a row that was not selected",
    v1=8,
)
TRANSFORM_SUMMARY = Code(
    "transform-summary",
    Reason.INVALID_MEASUREMENT,
    "transform_milliseconds is not calibration_milliseconds of the selected row.",
    "Copy the figure from the selected row.",
    "transform_milliseconds of a row that was not selected",
    v1=8,
)


def check_summaries(subject: Subject) -> Finding | None:
    """Step 8: the summary repeats the rows of the baseline and of the selected rotation."""
    metrics = subject.record.metrics
    columns = subject.columns
    rotations = columns[_ROTATION]
    baseline = rotations.index(0)
    chosen = rotations.index(metrics.selected_rotation)
    for code, name, stated, column, row in (
        (BASELINE_SUMMARY, "baseline_output_nmse", metrics.baseline_output_nmse, _NMSE, baseline),
        (CANDIDATE_SUMMARY, "candidate_output_nmse", metrics.candidate_output_nmse, _NMSE, chosen),
        (BASELINE_SUMMARY, "baseline_task_accuracy", metrics.baseline_task_accuracy, _ACCURACY, baseline),
        (CANDIDATE_SUMMARY, "candidate_task_accuracy", metrics.candidate_task_accuracy, _ACCURACY, chosen),
        (
            BASELINE_SUMMARY,
            "baseline_decode_microseconds",
            metrics.baseline_decode_microseconds,
            _DECODE,
            baseline,
        ),
        (
            CANDIDATE_SUMMARY,
            "candidate_decode_microseconds",
            metrics.candidate_decode_microseconds,
            _DECODE,
            chosen,
        ),
        (TRANSFORM_SUMMARY, "transform_milliseconds", metrics.transform_milliseconds, _CALIBRATION, chosen),
    ):
        value = columns[column][row]
        if stated != value:
            allowed = f"{value!r}, as /metrics/candidates/{row}/{_COLUMN_NAMES[column]}"
            return finding(subject, code, f"/metrics/{name}", stated, allowed)
    return None


def _one_bit(mean: float, trials: int) -> tuple[float, float]:
    """The possible mean of one-bit trials that is nearest to a stated one, and the deviation that it forces."""
    share = round(mean * trials) / trials
    return share, math.sqrt(share * (1 - share))


@lru_cache(maxsize=4096)  # few trials allow few accuracies, so records repeat them
def _is_one_bit(mean: float, deviation: float, trials: int) -> bool:
    share, forced = _one_bit(mean, trials)
    return abs(mean - share) <= TOLERANCE and abs(deviation - forced) <= TOLERANCE


ACCURACY_IMPOSSIBLE = Code(
    "accuracy-impossible",
    Reason.INVALID_MEASUREMENT,
    "A task accuracy is no k/n for n = decode_trials.",
    "The task is one bit a trial, so its mean is a whole number of trials over n.",
    "an accuracy of 0.15 from 10 trials",
    v1=8,
)
ACCURACY_DEVIATION_IMPOSSIBLE = Code(
    "accuracy-deviation-impossible",
    Reason.INVALID_MEASUREMENT,
    "The deviation of a task accuracy p is not sqrt(p(1-p)).",
    "The task is one bit a trial, so the mean decides the population deviation.",
    "0.316 (divided by n-1) where 0.3 belongs",
    v1=8,
)


def check_accuracies(subject: Subject) -> Finding | None:
    """Step 8: an accuracy is k/n for n trials of one bit, and its deviation is sqrt(p(1-p))."""
    means, deviations = subject.columns[_ACCURACY], subject.columns[_ACCURACY_SD]
    trials: int = subject.record.metrics.decode_trials  # type: ignore[assignment]  # check_present came before
    if all(map(_is_one_bit, means, deviations, repeat(trials))):
        return None
    row = next(
        row for row, pair in enumerate(zip(means, deviations, strict=True)) if not _is_one_bit(*pair, trials)
    )
    share, forced = _one_bit(means[row], trials)
    pointer = f"/metrics/candidates/{row}"
    if abs(means[row] - share) > TOLERANCE:
        allowed = f"k/{trials} for a whole k"
        return finding(subject, ACCURACY_IMPOSSIBLE, f"{pointer}/task_accuracy_mean", means[row], allowed)
    code = ACCURACY_DEVIATION_IMPOSSIBLE
    return finding(subject, code, f"{pointer}/task_accuracy_stddev", deviations[row], f"{forced:.9g}")


DEVIATION_IMPOSSIBLE = Code(
    "deviation-impossible",
    Reason.INVALID_MEASUREMENT,
    "A deviation is larger than mean x sqrt(n-1), the most that n values of this mean can have.",
    "Divide by n, not by n-1, and check that no value is negative.",
    "mean 1, deviation 4 over 10 trials",
    v1=8,
)


def check_deviations(subject: Subject) -> Finding | None:
    """Step 8: a population deviation of n non-negative values is at most mean x sqrt(n-1)."""
    columns = subject.columns
    trials: int = subject.record.metrics.decode_trials  # type: ignore[assignment]  # check_present came before
    bound = math.sqrt(trials - 1) * (1 + _RELATIVE)
    for mean, deviation in ((_NMSE, _NMSE_SD), (_DECODE, _DECODE_SD)):
        if not all(map(le, columns[deviation], map(bound.__mul__, columns[mean]))):
            limits = [value * bound for value in columns[mean]]
            index = next(index for index, limit in enumerate(limits) if columns[deviation][index] > limit)
            pointer = f"/metrics/candidates/{index}/{_COLUMN_NAMES[deviation]}"
            allowed = f"at most {limits[index]:.9g}, the mean times sqrt({trials} - 1)"
            return finding(subject, DEVIATION_IMPOSSIBLE, pointer, columns[deviation][index], allowed)
    return None


RULES: tuple[Rule, ...] = (
    check_present,
    check_search_size,
    check_not_negative,
    check_cache_bytes,
    check_latencies,
    check_ranges,
    check_rotations,
    check_summaries,
    check_accuracies,
    check_deviations,
)
