"""The interval of a claim: two implementations, one stream, and figures that are known beforehand."""

import hashlib
import math
import random
from itertools import islice

import pytest

from kvint2eval.contract.v2.bootstrap import MAX_TRIALS, index_bytes, paired_interval
from tests.tools.regen import interval


@pytest.mark.parametrize("trials", [1, 2, 3, 7, 10, 64, 100, 128, 129, 200, 255, 256])
def test_index_stream_is_one_in_both_implementations(trials):
    mine = [byte % trials for byte in index_bytes(5, trials, 9000)]
    assert mine == list(islice(interval.indices(5, trials), 9000))


def test_index_stream_is_the_documented_one():
    stream = hashlib.shake_128(b"kvint2eval/v2/bootstrap/7/10").digest(64)
    kept = [byte % 10 for byte in stream if byte < 250]
    assert [byte % 10 for byte in index_bytes(7, 10, len(kept))] == kept


@pytest.mark.parametrize("trials", [10, 48, 200])
def test_every_trial_is_drawn_alike(trials):
    draws = 200_000
    counts = [0] * trials
    for byte in index_bytes(1, trials, draws):
        counts[byte % trials] += 1
    # Chi-squared has mean trials-1 and variance 2(trials-1); five deviations.
    expected = draws / trials
    chi = sum((count - expected) ** 2 / expected for count in counts)
    assert abs(chi - (trials - 1)) < 5 * math.sqrt(2 * (trials - 1))


@pytest.mark.parametrize("trials", [2, 5, 9, 64, MAX_TRIALS])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_agrees_with_plain_loops(trials, level):
    generator = random.Random(trials)
    values = [generator.gauss(1, 3) * 10 ** generator.randint(-3, 3) for _ in range(trials)]
    mine = paired_interval(values, level=level, resamples=300, seed=trials)
    other = interval.percentile(values, level, 300, trials)
    slack = 2e-12 * max(map(abs, values))
    assert mine == pytest.approx(other, rel=0, abs=slack)


def test_equal_differences_have_an_interval_of_no_width():
    assert paired_interval([0.25] * 8, level=0.95, resamples=200, seed=1) == (0.25, 0.25)


def test_two_trials_have_the_quantiles_of_a_fair_coin():
    # Means of two draws from {0, 1}: 0, 1/2, 1 with weights 1/4, 1/2, 1/4.
    assert paired_interval([0.0, 1.0], level=0.95, resamples=4000, seed=3) == (0.0, 1.0)
    low, high = paired_interval([0.0, 1.0], level=0.4, resamples=4000, seed=3)
    assert low == pytest.approx(0.5, abs=1e-12)
    assert high == pytest.approx(0.5, abs=1e-12)


def test_covers_the_mean_of_a_normal_sample_about_as_often_as_it_says():
    generator = random.Random(1)
    hits = 0
    for seed in range(300):
        values = [generator.gauss(0, 1) for _ in range(64)]
        low, high = paired_interval(values, level=0.95, resamples=400, seed=seed)
        hits += low <= 0 <= high
    # The percentile interval of 64 values covers about 94 %; binomial deviation 1.4 %.
    assert 0.90 <= hits / 300 <= 0.98
