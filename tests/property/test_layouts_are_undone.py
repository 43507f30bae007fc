"""Unpacking gives back what was packed, in every order of codes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.quantize.packing import LAYOUTS
from tests.property.strategies import seeds


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@given(seed=seeds, units=st.integers(0, 9), tokens=st.integers(0, 4))
def test_unpack_undoes_pack(layout, seed, units, tokens):
    shape = (2, tokens, units * layout.codes_per_unit)
    codes = np.random.default_rng(seed).integers(0, 2**layout.bits, shape).astype(np.uint8)
    stored = layout.pack(codes)
    assert stored.nbytes * 8 == codes.size * layout.bits
    back = layout.unpack(stored)
    assert back.dtype == np.uint8
    assert back.shape == codes.shape
    assert (back == codes).all()
