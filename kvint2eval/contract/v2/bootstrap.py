"""The seeded paired bootstrap of a claim, the same on every machine.

Index stream (docs/reference/contract-v2.md, "Interval of a claim"): the bytes of SHAKE-128 over the ASCII text
`kvint2eval/v2/bootstrap/SEED/TRIALS`; bytes of floor(256/n)*n or more are skipped, so that byte mod n draws each of
the n trials alike. Draw k of resample b is draw k*B + b of the stream, for B resamples.

Differences are rounded to multiples of their span over 2**40; from there on all sums are exact integers. One
integer holds all resamples side by side, so that n additions give B sums.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_TRIALS", "RESAMPLES", "claim_seed", "index_bytes", "paired_interval"]

MAX_TRIALS = 256
RESAMPLES = 2000
"""Resamples of an interval."""

_VALUE_BYTES = 5  # bytes of one difference
_STEPS = (1 << 8 * _VALUE_BYTES) - 1
_LANE = 6  # bytes of one resample's sum: 256 differences fit


def claim_seed(baseline: Sequence[float], candidate: Sequence[float]) -> int:
    """Seed of a claim's interval, derived from its figures.

    The first six bytes, as a big-endian number, of the SHA-256 of the baseline's column and then the candidate's, each
    figure a little-endian binary64.

    Parameters
    ----------
    baseline, candidate
        The figures of the two arms that the claim compares, one a trial.
    """
    values = (*baseline, *candidate)
    digest = hashlib.sha256(struct.pack(f"<{len(values)}d", *values)).digest()
    return int.from_bytes(digest[:6], "big")


@lru_cache(maxsize=8)
def index_bytes(seed: int, trials: int, draws: int) -> bytes:
    """Bytes of the index stream that are not skipped; the trial that is drawn is byte mod `trials`.

    Parameters
    ----------
    seed
        Seed of the claim.
    trials
        Number of trials, 1 to `MAX_TRIALS`.
    draws
        How many are needed.
    """
    stream = hashlib.shake_128(f"kvint2eval/v2/bootstrap/{seed}/{trials}".encode())
    skipped = bytes(range(256 - 256 % trials, 256))
    length = draws
    while True:
        kept = stream.digest(length).translate(None, skipped)
        if len(kept) >= draws:
            return kept[:draws]
        # At most half of all bytes are skipped; the digest of a greater length begins with the shorter one.
        length += max(64, 2 * (draws - len(kept)))


def paired_interval(
    differences: Sequence[float], *, level: float, resamples: int, seed: int
) -> tuple[float, float]:
    """Percentile interval of the resampled means of paired differences.

    Parameters
    ----------
    differences
        One a trial, 1 to `MAX_TRIALS` of them; finite.
    level
        Nominal coverage, above 0 and below 1.
    resamples
        Number of resamples B, at least 1.
    seed
        Seed of the index stream.

    Returns
    -------
    tuple of float
        Lower and upper end: the quantiles (1-level)/2 and (1+level)/2 of the B means, linear between the two
        nearest of them at (B-1)*q.
    """
    trials = len(differences)
    least = min(differences)
    span = max(differences) - least
    steps = [round((value - least) / span * _STEPS) if span else 0 for value in differences]
    ordered = sorted(_sums(steps, index_bytes(seed, trials, trials * resamples), resamples))
    whole = _STEPS * trials

    def quantile(share: float) -> float:
        place = (resamples - 1) * share
        below = int(place)
        above = min(below + 1, resamples - 1)
        steps_there = ordered[below] + (place - below) * (ordered[above] - ordered[below])
        # The share of the span first: span over steps would leave the normal numbers for tiny differences.
        return least + span * (steps_there / whole)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def _sums(steps: list[int], draws: bytes, resamples: int) -> list[int]:
    """Sum of every resample, in the order of the resamples."""
    trials = len(steps)
    drawn = [steps[byte % trials] for byte in range(256)]
    lanes = bytearray(len(draws) * _LANE)
    for place in range(_VALUE_BYTES):
        lanes[place::_LANE] = draws.translate(bytes(step >> 8 * place & 255 for step in drawn))
    row = resamples * _LANE
    total = sum(int.from_bytes(lanes[start : start + row], "little") for start in range(0, len(lanes), row))
    packed, wide = total.to_bytes(row, "little"), bytearray(8 * resamples)
    for place in range(_LANE):
        wide[place::8] = packed[place::_LANE]
    return list(struct.unpack(f"<{resamples}Q", wide))
