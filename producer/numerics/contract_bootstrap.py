"""The interval of a claim of contract v2, in NumPy: the paired bootstrap with the contract's own index stream."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_TRIALS", "claim_seed", "index_stream", "paired_interval"]

#: A draw is one byte.
MAX_TRIALS = 256


def claim_seed(baseline: Sequence[float], candidate: Sequence[float]) -> int:
    """Return the seed that the figures of a claim give, below 2⁴⁸.

    Parameters
    ----------
    baseline, candidate : sequence of float
        Figures of the two arms, one a trial.

    Notes
    -----
    The first six bytes of the SHA-256 of both columns as little-endian binary64, read as a big-endian number.
    """
    columns = np.concatenate([np.asarray(baseline, "<f8"), np.asarray(candidate, "<f8")])
    return int.from_bytes(hashlib.sha256(columns.tobytes()).digest()[:6], "big")


def index_stream(seed: int, trials: int, draws: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the first draws of the index stream, each 0 … trials - 1, uint8.

    Parameters
    ----------
    seed : int
    trials : int
        1 … 256.
    draws : int

    Raises
    ------
    SpecError
        If there are no trials, or more than 256.

    Notes
    -----
    Bytes of SHAKE-128 over ``kvint2eval/v2/bootstrap/SEED/TRIALS``; bytes of ⌊256/trials⌋·trials and above are
    skipped, so that byte mod trials draws each trial alike.
    """
    if not 1 <= trials <= MAX_TRIALS:
        raise SpecError(f"{trials} trials are not allowed: 1 … {MAX_TRIALS}")
    stream = hashlib.shake_128(f"kvint2eval/v2/bootstrap/{seed}/{trials}".encode())
    limit = 256 // trials * trials
    length = draws
    while True:
        drawn = np.frombuffer(stream.digest(length), dtype=np.uint8)
        kept = drawn[drawn < limit] % np.uint16(trials)
        if kept.size >= draws:
            return kept[:draws].astype(np.uint8)
        length = 2 * length + 64


def paired_interval(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    level: float,
    resamples: int,
    seed: int,
) -> tuple[float, float]:
    """Return the percentile interval of the mean of baseline - candidate, trial by trial (E21).

    Parameters
    ----------
    baseline, candidate : sequence of float
        Trial i of both saw the same query; 1 … 256 of each.
    level : float
        Nominal coverage, above 0 and below 1.
    resamples : int
        At least 1.
    seed : int
        Seed of the index stream.

    Raises
    ------
    SpecError
        If the two differ in length or are not 1 … 256.

    Notes
    -----
    Draw k of resample b is draw k·B + b of the stream. The ends are the quantiles (1-level)/2 and (1+level)/2 of
    the B means, linear between neighbours. Float64 sums in NumPy's order; the contract's tolerance covers it.
    """
    if len(baseline) != len(candidate):
        raise SpecError(f"{len(baseline)} and {len(candidate)} trials are no pairs: as many of both")
    differences = np.asarray(baseline, dtype=np.float64) - np.asarray(candidate, dtype=np.float64)
    n = differences.size
    picked = differences[index_stream(seed, n, n * resamples)].reshape(n, resamples)
    means = np.sort(picked.mean(axis=0))

    def quantile(share: float) -> float:
        place = (resamples - 1) * share
        below = math.floor(place)
        above = min(below + 1, resamples - 1)
        return float(means[below] + (place - below) * (means[above] - means[below]))

    return quantile((1 - level) / 2), quantile((1 + level) / 2)
