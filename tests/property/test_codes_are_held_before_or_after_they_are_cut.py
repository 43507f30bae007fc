"""Holding a number to 0 … 3 and cutting its fraction may be done in either order."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from producer.quantize.steps import as_codes, half_up, half_up_codes

_NUMBERS = st.floats(allow_nan=False, width=32)


@given(st.lists(_NUMBERS, min_size=1, max_size=40))
def test_codes_are_held_before_or_after_they_are_cut(numbers):
    x = np.array(numbers, dtype=np.float32)
    with np.errstate(over="ignore"):
        expected = as_codes(half_up(x.copy()), 3)
        assert half_up_codes(x.copy(), 3).tolist() == expected.tolist()
