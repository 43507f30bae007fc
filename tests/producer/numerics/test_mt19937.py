"""The random stream against Python's and NumPy's generators, libstdc++'s normals, and the C++ standard."""

import itertools

import numpy as np
import pytest

from producer.errors import SpecError
from producer.numerics.mt19937 import NormalStream, WordStream, polar_normals, uniforms
from tests.helpers import TESTDATA
from tests.producer import reference


def test_ten_thousandth_word_is_the_one_that_the_cpp_standard_gives():
    assert WordStream(5489).words(10_000)[-1] == 4123659995


@pytest.mark.parametrize("seed", [0, 1, 6260, 2**32 - 1])
def test_words_are_those_of_python_and_of_numpy(seed):
    words = WordStream(seed).words(2000)
    assert words.tolist() == list(itertools.islice(reference.words(seed), 2000))
    assert (words == np.random.RandomState(seed).randint(0, 2**32, 2000, dtype=np.uint32)).all()


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_of_more_than_one_word_is_refused(seed):
    with pytest.raises(SpecError, match=r"one MT19937 seed word is 0 … 4294967295"):
        WordStream(seed)


def test_uniforms_at_the_upper_end():
    # 2³²-129 is the last word that rounds down; from 2³²-128 on float32(word) is 2³².
    words = np.array([0, 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1], dtype=np.uint32)
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    assert uniforms(words).tolist() == [0.0, 2.0**-32, 0.5, below_one, below_one, below_one]


@pytest.mark.parametrize("seed", [1, 6260, 4000000000])
def test_normals_are_those_of_a_plain_loop_bit_for_bit(seed):
    expected = np.array(list(itertools.islice(reference.normals(seed), 4001)), dtype=np.float32)
    assert NormalStream(seed).normals(4001).tobytes() == expected.tobytes()


def test_normals_are_those_of_libstdcxx_within_one_unit_in_the_last_place():
    text = (TESTDATA / "vectors" / "normals-seed-6260.txt").read_text()
    expected = np.array([int(line, 16) for line in text.split()], dtype=np.uint32).view(np.float32)
    found = NormalStream(6260).normals(expected.size)
    ulps = np.abs(found.view(np.int32).astype(np.int64) - expected.view(np.int32))
    assert expected.size == 512
    assert ulps.max() <= 1
    assert np.count_nonzero(ulps) <= 8


def test_rejected_pairs_give_nothing():
    # u = 0 gives x = y = -1, r² = 2; word 2³¹ gives exactly 0, r² = 0.
    words = np.array([0, 0, 2**31, 2**31, 2**31, 2**30], dtype=np.uint32)
    # The third pair: x = 0, y = -1/2.
    assert polar_normals(words).tolist() == pytest.approx([-1.6651092, 0.0], rel=1e-6)


def test_a_mark_continues_where_the_stream_stood():
    stream = NormalStream(7)
    stream.normals(60_001)
    mark = stream.mark()
    expected = stream.normals(200_000)
    assert NormalStream.at(mark).normals(200_000).tobytes() == expected.tobytes()


def test_skipping_is_drawing():
    drawn, skipped = NormalStream(7), NormalStream(7)
    drawn.normals(123_457)
    skipped.skip(123_457)
    assert drawn.normals(5).tolist() == skipped.normals(5).tolist()
