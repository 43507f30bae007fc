"""A second implementation of the interval of a claim: plain loops over the index stream, sums with `math.fsum`."""

import hashlib
import math
import sys
from array import array
from itertools import count, islice


def indices(seed: int, trials: int):
    """Index stream of the contract, endless: block by block of SHAKE-128, bytes that would favour a trial left out."""
    stream = hashlib.shake_128(b"kvint2eval/v2/bootstrap/%d/%d" % (seed, trials))
    limit = 256 // trials * trials
    for length in count(4096, 4096):
        for byte in stream.digest(length)[-4096:]:
            if byte < limit:
                yield byte % trials


def seed_of(baseline: list[float], candidate: list[float]) -> int:
    """Seed of an interval: 48 bits of the digest of both columns."""
    columns = array("d", baseline) + array("d", candidate)
    if sys.byteorder == "big":
        columns.byteswap()
    return int(hashlib.sha256(columns.tobytes()).hexdigest()[:12], 16)


def percentile(differences: list[float], level: float, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile interval of the resampled means."""
    trials = len(differences)
    draws = list(islice(indices(seed, trials), trials * resamples))
    means = sorted(
        math.fsum(differences[index] for index in draws[number::resamples]) / trials
        for number in range(resamples)
    )
    return tuple(_quantile(means, share) for share in ((1 - level) / 2, (1 + level) / 2))


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
