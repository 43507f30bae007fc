"""Statistics of trials: mean, population deviation, and the paired bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.numerics.mt19937 import WordStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from producer.numerics.arrays import Float64Array

__all__ = ["BOOTSTRAP_STREAM_KEY", "Interval", "Summary", "paired_bootstrap", "ratio_bootstrap", "summarize"]

#: XORed to a run's seed, so that the resamples come from a stream of their own.
BOOTSTRAP_STREAM_KEY = 0x85EBCA6B


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and population standard deviation (divide by n) of trials, in the unit of the trials."""

    mean: float
    stddev: float


def summarize(values: Sequence[float]) -> Summary:
    """Return mean and population deviation (E11).

    Parameters
    ----------
    values : sequence of float
        At least one.

    Raises
    ------
    SpecError
        If there are no values.

    Notes
    -----
    Sums are exact and rounded once (`math.fsum`), so the order of the values does not matter.
    """
    if not values:
        raise SpecError("no values to summarize: at least one is needed")
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return Summary(mean, math.sqrt(variance))


@dataclass(frozen=True, slots=True)
class Interval:
    """A bootstrap interval of a mean.

    Attributes
    ----------
    mean : float
        Mean of the observed differences (not of the resamples).
    low, high : float
        Percentile interval of the resampled means.
    level : float
        Nominal coverage.
    resamples, seed : int
        Needed to recompute the interval.
    """

    mean: float
    low: float
    high: float
    level: float
    resamples: int
    seed: int


def paired_bootstrap(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Interval:
    """Return the percentile interval of the mean of baseline - candidate, trial by trial (E12).

    Parameters
    ----------
    baseline, candidate : sequence of float
        Trial i of both saw the same query.
    resamples : int
        At least 1.
    seed : int
        Seed word of the MT19937 stream that draws the trials: index = word·n / 2³², rounded down.
    level : float
        Nominal coverage, above 0 and below 1.

    Raises
    ------
    SpecError
        If the two differ in length, are empty, or an argument is outside its range.

    Notes
    -----
    Whole trials are resampled, so that the pairing is kept. The ends are the means of rank
    ⌊(1-level)/2·(m-1)⌋ and ⌈(1+level)/2·(m-1)⌉ of m sorted resampled means.
    """
    picks = _resampled(baseline, candidate, resamples, seed, level)
    differences: Float64Array = np.asarray(baseline, dtype=np.float64) - np.asarray(
        candidate, dtype=np.float64
    )
    means = differences[picks].mean(axis=1)
    return _interval(math.fsum(differences.tolist()) / differences.size, means, level, seed)


def ratio_bootstrap(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Interval | None:
    """Return the percentile interval of the ratio of means, candidate / baseline, over the resamples of E12.

    Parameters
    ----------
    baseline, candidate, resamples, seed, level
        As `paired_bootstrap`; the same seed draws the same trials.

    Returns
    -------
    Interval or None
        `mean` is the ratio of the samples' own means. None where a resampled mean of the baseline is not above 0.

    Raises
    ------
    SpecError
        As `paired_bootstrap`.
    """
    picks = _resampled(baseline, candidate, resamples, seed, level)
    below: Float64Array = np.asarray(baseline, dtype=np.float64)[picks].mean(axis=1)
    if not below.min() > 0 or not math.fsum(baseline) > 0:
        return None
    ratios = np.asarray(candidate, dtype=np.float64)[picks].mean(axis=1) / below
    return _interval(math.fsum(candidate) / math.fsum(baseline), ratios, level, seed)


def _resampled(
    baseline: Sequence[float], candidate: Sequence[float], resamples: int, seed: int, level: float
) -> npt.NDArray[np.int64]:
    """Return the places of the trials that each resample draws, shape (resamples, trials)."""
    if len(baseline) != len(candidate) or not baseline:
        raise SpecError(
            f"{len(baseline)} and {len(candidate)} trials are no pairs: as many of both, at least one"
        )
    if resamples < 1 or not 0 < level < 1:
        raise SpecError(
            f"resamples {resamples} and level {level} are not allowed: at least 1; between 0 and 1"
        )
    n = len(baseline)
    words = WordStream(seed).words(resamples * n).astype(np.uint64)
    places: npt.NDArray[np.int64] = ((words * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
    return places.reshape(resamples, n)


def _interval(mean: float, resampled: Float64Array, level: float, seed: int) -> Interval:
    """Return the percentile interval of resampled values."""
    count = resampled.size
    ranked = np.sort(resampled)
    return Interval(
        mean=mean,
        low=float(ranked[math.floor((1 - level) / 2 * (count - 1))]),
        high=float(ranked[math.ceil((1 + level) / 2 * (count - 1))]),
        level=level,
        resamples=count,
        seed=seed,
    )
