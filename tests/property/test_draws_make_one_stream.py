"""normals(a) then normals(b) is normals(a + b), wherever the stream is cut, marked or skipped."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.numerics.mt19937 import NormalStream, uniforms
from tests.property.strategies import seeds


@settings(max_examples=30)
@given(seeds, st.lists(st.integers(0, 60_000), max_size=4))
def test_draws_make_one_stream(seed, counts):
    cut = NormalStream(seed)
    parts = []
    for number, count in enumerate(counts):
        if number % 2:
            cut = NormalStream.at(cut.mark())
        parts.append(cut.normals(count))
    whole = NormalStream(seed).normals(sum(counts))
    assert np.concatenate([np.empty(0, np.float32), *parts]).tobytes() == whole.tobytes()


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_uniforms_are_the_rounded_quotients(words):
    found = uniforms(np.array(words, dtype=np.uint32))
    below_one = np.nextafter(np.float32(1), np.float32(0))
    expected = [min(np.float32(np.float32(word) / np.float32(2**32)), below_one) for word in words]
    assert found.tolist() == [float(value) for value in expected]
