"""Orders of codes in memory, byte by byte."""

import math

import numpy as np
import pytest

from producer.errors import SpecError
from producer.quantize import DIALECTS
from producer.quantize.packing import LAYOUTS, get_layout

EIGHT = np.array([0, 1, 2, 3, 3, 2, 1, 0], dtype=np.uint8)


def test_orders_differ():
    assert LAYOUTS["quartered"].pack(EIGHT).tobytes() == bytes.fromhex("782D")
    assert LAYOUTS["consecutive"].pack(EIGHT).tobytes() == bytes.fromhex("E41B")
    words = LAYOUTS["int32"].pack(np.tile(np.arange(4, dtype=np.uint8), 4))
    assert words.tolist() == [-454761244]
    assert words.tobytes() == bytes.fromhex("E4E4E4E4")


def test_read_in_the_wrong_order_only_the_elements_tell():
    codes = np.random.default_rng(0).integers(0, 4, (5, 128)).astype(np.uint8)
    wrong = LAYOUTS["consecutive"].unpack(LAYOUTS["quartered"].pack(codes))
    assert (np.sort(wrong, axis=1) == np.sort(codes, axis=1)).all()
    assert (wrong != codes).mean() > 0.5


def test_wider_codes_keep_their_bits():
    codes = np.arange(8, dtype=np.uint8)
    three = LAYOUTS["three-bit"]
    assert three.pack(codes).tobytes() == bytes.fromhex("88C6FA")
    assert three.unpack(three.pack(codes)).tolist() == list(range(8))
    nibbles = LAYOUTS["nibbles"]
    assert nibbles.pack(codes).tobytes() == bytes.fromhex("10325476")
    assert nibbles.unpack(nibbles.pack(codes)).tolist() == list(range(8))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_one_code_touches_its_own_bits_only(layout):
    count = math.lcm(16, layout.codes_per_unit)
    base = np.zeros(count, dtype=np.uint8)
    seen = 0
    for place in range(count):
        codes = base.copy()
        codes[place] = 2**layout.bits - 1
        number = int.from_bytes(layout.pack(codes).tobytes(), "little")
        assert number.bit_count() == layout.bits
        assert number & seen == 0
        seen |= number
    assert seen == 2 ** (layout.bits * count) - 1


@pytest.mark.parametrize(
    "layout", [one for one in LAYOUTS.values() if one.bits < 8], ids=lambda one: one.name
)
def test_what_does_not_fit_is_refused(layout):
    with pytest.raises(SpecError, match=f"1 codes do not fill units of layout {layout.name}: a multiple of"):
        layout.pack(np.zeros(1, dtype=np.uint8))
    codes = np.zeros(layout.codes_per_unit, dtype=np.uint8)
    codes[-1] = 2**layout.bits
    with pytest.raises(
        SpecError, match=f"code {2**layout.bits} is not allowed in layout {layout.name}: 0 … "
    ):
        layout.pack(codes)


def test_every_dialect_names_a_layout_of_its_bits():
    for dialect in DIALECTS.values():
        assert get_layout(dialect.numerics.packing).bits == dialect.numerics.bits
    with pytest.raises(SpecError, match="layout 'words' is not allowed: one of consecutive, quartered"):
        get_layout("words")
