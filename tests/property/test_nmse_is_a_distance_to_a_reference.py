"""NMSE(x, x) = 0, it does not see a common scale, and zeros have 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.numerics.nmse import nmse
from tests.property.strategies import normal, seeds


@given(seeds, st.integers(1, 200))
def test_nmse_of_the_reference_itself_is_zero(seed, size):
    x = normal(seed, 3, size)
    assert nmse(x, x).tolist() == [0, 0, 0]
    assert nmse(np.zeros_like(x), x) == pytest.approx(1, rel=1e-12)


@given(seeds, st.integers(-20, 20))
def test_a_common_scale_cancels(seed, exponent):
    a, b = normal(seed, 50), normal(seed + 1, 50)
    scale = np.float32(2.0**exponent)
    assert nmse(a * scale, b * scale) == pytest.approx(nmse(a, b), rel=1e-12)
