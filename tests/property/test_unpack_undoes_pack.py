"""unpack(pack(c)) = c, and pack(unpack(p)) = p."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from producer.quantize.packing import pack, unpack


@given(st.lists(st.integers(0, 3), max_size=64), st.integers(0, 2))
def test_unpack_undoes_pack(codes, axis):
    one = np.array(codes[: len(codes) // 4 * 4], dtype=np.uint8)
    shape = [2, 3, 2]
    shape[axis] = one.size
    three = np.broadcast_to(np.expand_dims(one, [place for place in range(3) if place != axis]), shape)
    assert (unpack(pack(three, axis), axis) == three).all()


@given(st.binary(max_size=64))
def test_pack_undoes_unpack(data):
    packed = np.frombuffer(data, dtype=np.uint8)
    assert (pack(unpack(packed)) == packed).all()
    assert unpack(packed).size == 4 * packed.size
