"""Packing: the bit order against bytes worked out by hand."""

import numpy as np
import pytest

from producer.errors import SpecError
from producer.quantize.packing import pack, unpack


def test_the_first_code_is_in_the_lowest_bits():
    # 0 1 2 3 | 3 2 1 0 is E4 1B; another order would give 1B E4 or 78 2D.
    codes = np.array([0, 1, 2, 3, 3, 2, 1, 0], dtype=np.uint8)
    assert pack(codes).tobytes() == b"\xe4\x1b"


def test_every_byte_unpacks_to_its_base_four_digits():
    codes = unpack(np.arange(256, dtype=np.uint8)[:, None])
    assert (codes == [[value >> shift & 3 for shift in (0, 2, 4, 6)] for value in range(256)]).all()


def test_a_middle_axis():
    codes = np.random.default_rng(5).integers(0, 4, (2, 8, 3)).astype(np.uint8)
    packed = pack(codes, axis=1)
    assert packed.shape == (2, 2, 3)
    assert (packed == np.moveaxis(pack(np.moveaxis(codes, 1, -1)), -1, 1)).all()


def test_codes_that_do_not_fill_a_byte_are_refused():
    with pytest.raises(SpecError, match="6 codes along axis -1 do not fill bytes: a multiple of 4"):
        pack(np.zeros(6, dtype=np.uint8))


def test_a_code_of_more_than_two_bits_is_refused():
    with pytest.raises(SpecError, match="code 4 is not allowed: a 2-bit code is 0 … 3"):
        pack(np.array([0, 4, 0, 0], dtype=np.uint8))
