"""Statistics against the standard library and against distributions known in closed form."""

import math
import statistics

import numpy as np
import pytest

from producer.errors import SpecError
from producer.numerics.bootstrap import paired_bootstrap, summarize
from producer.numerics.nmse import nmse


def test_the_deviation_is_the_population_one():
    # The sample deviation of 1 … 5 would be 1.5811.
    found = summarize([1.0, 2, 3, 4, 5])
    assert (found.mean, found.stddev) == (3, math.sqrt(2))


def test_agrees_with_the_standard_library():
    values = np.random.default_rng(1).lognormal(size=64).tolist()
    found = summarize(values)
    assert found.mean == statistics.fmean(values)
    assert found.stddev == pytest.approx(statistics.pstdev(values), rel=1e-14)


def test_one_bit_trials_have_the_bernoulli_deviation():
    assert summarize([1.0] * 9 + [0.0]).stddev == pytest.approx(math.sqrt(0.9 * 0.1), rel=1e-15)


def test_nothing_to_summarize_is_refused():
    with pytest.raises(SpecError, match="no values to summarize"):
        summarize([])


def test_a_constant_difference_has_an_interval_of_no_width():
    found = paired_bootstrap([3.0, 5, 9], [1.0, 3, 7], resamples=50, seed=1)
    assert (found.mean, found.low, found.high) == (2, 2, 2)


def test_the_interval_is_that_of_the_resampled_mean():
    # The mean of n resampled 0/1 differences is binomial: for n = 100, p = 0.3 the 95 % range is
    # 0.3 ± 1.96·√(0.21/100) = 0.21 … 0.39.
    ones = [1.0] * 30 + [0.0] * 70
    found = paired_bootstrap(ones, [0.0] * 100, resamples=20_000, seed=12345)
    assert found.mean == pytest.approx(0.3)
    assert (found.low, found.high) == (pytest.approx(0.21, abs=0.011), pytest.approx(0.39, abs=0.011))


def test_pairs_are_kept_together():
    # Paired, the difference is always 1; resampled apart it would be anything between -98 and 100.
    baseline = [float(value) for value in range(1, 100)]
    candidate = [value - 1 for value in baseline]
    found = paired_bootstrap(baseline, candidate, resamples=100, seed=4)
    assert found.low == found.high == 1


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    values = np.random.default_rng(2).standard_normal(40).tolist()
    first, again = (paired_bootstrap(values, [0.0] * 40, resamples=200, seed=9) for _ in range(2))
    assert first == again
    assert paired_bootstrap(values, [0.0] * 40, resamples=200, seed=10).low != first.low


@pytest.mark.parametrize(
    ("baseline", "candidate", "resamples", "level"),
    [([1.0], [1.0, 2], 10, 0.95), ([], [], 10, 0.95), ([1.0], [1.0], 0, 0.95), ([1.0], [1.0], 10, 1.0)],
)
def test_what_cannot_be_resampled_is_refused(baseline, candidate, resamples, level):
    with pytest.raises(SpecError, match="at least"):
        paired_bootstrap(baseline, candidate, resamples=resamples, seed=1, level=level)


def test_nmse_of_zeros_is_one_and_of_twice_the_output_too():
    b = np.array([[3, 4], [1, 0]], dtype=np.float32)
    assert nmse(np.zeros_like(b), b).tolist() == [1, 1]
    assert nmse(2 * b, b).tolist() == [1, 1]
    assert nmse(np.array([3, 5], dtype=np.float32), b[0]) == pytest.approx(1 / 25)


def test_nmse_of_a_zero_reference_is_finite():
    zero = np.zeros(2, dtype=np.float32)
    assert nmse(zero, zero) == 0
    assert nmse(np.array([1, 0], dtype=np.float32), zero) == pytest.approx(1e30)
