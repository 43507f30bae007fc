"""Passages that calibration and evaluation share: found however they are wrapped, marked and spelled."""

import pydoc_data.topics
import textwrap
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import SpecError
from producer.trace.shingles import (
    TOKEN_RUN,
    WORD_RUN,
    normal_words,
    shared,
    token_shingles,
    word_shingles,
)
from producer.trace.texts import describe_sequence, largest_overlap, require_disjoint

TOPICS = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
PROSE = " ".join("\n".join(TOPICS).split())[20000:40000]


def sequence(text, name="text", ids=None):
    ids = np.frombuffer(text.encode(), dtype=np.uint8) if ids is None else ids
    return describe_sequence(name, "00" * 32, 0, ids.astype(np.int32), 0, text)


def words(seed, count):
    return [f"word{index}" for index in np.random.default_rng(seed).integers(0, 10**6, count)]


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 2**32), st.integers(0, 60))
def test_any_shared_run_of_words_is_found(before, after, seed, more):
    run = words(seed, WORD_RUN + more)
    one = " ".join([*words(seed + 1, before), *run, *words(seed + 2, after)])
    other = " ".join([*words(seed + 3, after), *run, *words(seed + 4, before)])
    assert shared(word_shingles(one), word_shingles(other))[0] >= 1


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 2**32))
def test_any_shared_run_of_tokens_is_found(before, after, seed):
    rng = np.random.default_rng(seed)
    run = rng.integers(0, 50000, TOKEN_RUN)
    one, other = (
        np.concatenate([rng.integers(0, 50000, size), run, rng.integers(0, 50000, rest)]).astype(np.int32)
        for size, rest in ((before, after), (after, before))
    )
    assert shared(token_shingles(one), token_shingles(other))[0] >= 1


@given(st.integers(0, 2**32), st.integers(1, 7))
def test_texts_that_share_fewer_words_than_a_shingle_have_none_in_common(seed, run):
    own = words(seed, run)
    one = " ".join([*words(seed + 1, 50), *own, *words(seed + 2, 50)])
    other = " ".join([*words(seed + 3, 70), *own, *words(seed + 4, 30)])
    assert shared(word_shingles(one), word_shingles(other))[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: textwrap.fill(text, 60),
        lambda text: textwrap.fill(text, 79, initial_indent="# ", subsequent_indent="# "),
        lambda text: textwrap.fill(text, 50, initial_indent="> ", subsequent_indent="> ").replace(
            "\n", "\r\n"
        ),
        lambda text: (
            "/*\n" + textwrap.fill(text, 70, initial_indent=" * ", subsequent_indent=" * ") + "\n */"
        ),
        str.upper,
        lambda text: text.replace('"', "\u201c").replace("'", "\u2019").replace("-", "\u2010"),
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: text.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}),  # full width
        lambda text: text.replace("fi", "\ufb01").replace("ffl", "\ufb04"),  # ligatures
        lambda text: "\ufeff" + text.replace("tion", "ti\u00adon"),  # soft hyphens
        lambda text: "".join(f"{word} " if at % 9 else f"{word}\n\n" for at, word in enumerate(text.split())),
    ],
)
def test_one_text_in_another_dress_is_one_text(change):
    text = PROSE[:6000]
    found, of = shared(word_shingles(text), word_shingles(change(text)))
    assert of > 100
    assert found == of


def test_words_that_were_broken_at_the_end_of_a_line_are_whole():
    assert normal_words("an exam-\n# ple, well-known; Don\u2019t") == ["an", "example", "wellknown", "dont"]
    assert normal_words("well - known, 3-4") == ["well", "known", "3", "4"]


def test_one_licence_wrapped_at_two_widths_is_contamination():
    text = " ".join("\n".join(TOPICS[:4]).split())
    one, other = (sequence(textwrap.fill(text, width), f"at {width}") for width in (60, 79))
    assert not set(one.passages) & set(other.passages)  # no line is whole in both
    with pytest.raises(
        SpecError, match=r"contaminated: evaluation text 'at 79' shares 100 % of the runs of words"
    ):
        require_disjoint([one], [other])


def test_two_cuts_of_a_file_of_one_line_are_contamination():
    one, other = sequence(PROSE[:3000], "fitted"), sequence(PROSE[:3300], "judged")
    with pytest.raises(
        SpecError, match=r"shares [89]\d\.\d % of the runs of words, [89]\d\.\d % of the runs of tokens"
    ):
        require_disjoint([one], [other])


def test_tokens_are_compared_where_words_are_not_the_same():
    ids = np.random.default_rng(0).integers(0, 50000, 500)
    one, other = sequence("one text", "a", ids), sequence("quite another", "b", ids[100:400])
    with pytest.raises(SpecError, match=r"0 % of the runs of words, 100 % of the runs of tokens"):
        require_disjoint([one], [other])


def test_scripts_without_spaces_have_a_word_for_each_character():
    text = "".join(chr(0x4E00 + index) for index in np.random.default_rng(1).integers(0, 3000, 60))
    assert len(normal_words(text)) == 60
    assert shared(word_shingles("abc" + text), word_shingles(text[20:50]))[0] >= 1


def test_the_share_is_that_of_the_evaluation_and_a_limit_allows_it():
    mine, other = " ".join(words(1, 2000)), " ".join(words(2, 2000))
    fitted, judged = sequence(mine, "fitted"), sequence(f"{other} {mine[:1300]}", "judged")
    overlap = largest_overlap([sequence(other[:5000], "third"), fitted], [judged])
    # About a hundred of 2100 words are shared, and half of them are the third text's.
    assert overlap.calibration == "third"
    found = largest_overlap([fitted], [judged])
    assert 0.03 < found.words < 0.07
    with pytest.raises(SpecError, match="at most 2 % is allowed"):
        require_disjoint([fitted], [judged], 0.02)
    assert require_disjoint([fitted], [judged], 0.2) == found
    assert require_disjoint([], [judged]).share == 0


def test_rulers_and_tables_of_numbers_are_no_passages():
    table = "\n".join(f"{row} {2 * row} {3 * row}" for row in range(40))
    assert shared(word_shingles(table), word_shingles(table)) == (0, 0)
    assert token_shingles(np.full(200, 61)) == ""
    assert token_shingles(np.arange(200) % 7) == ""


def test_different_texts_of_one_kind_share_nothing():
    one, other = (sequence("\n".join(part), str(len(part))) for part in (TOPICS[:20], TOPICS[40:60]))
    assert largest_overlap([one], [other]).words < 0.01


def test_two_books_are_compared_in_seconds():
    """Measured at 0.6 s for both on one core; the bound is for a busy machine."""
    books = [" ".join(words(seed, 110_000)) for seed in (1, 2)]
    assert min(map(len, books)) > 1_000_000
    start = time.process_time()
    ids = [np.random.default_rng(seed).integers(0, 50000, 300_000) for seed in (1, 2)]
    pair = [sequence(book, str(seed), own) for seed, (book, own) in enumerate(zip(books, ids, strict=True))]
    assert require_disjoint([pair[0]], [pair[1]]).share == 0
    assert time.process_time() - start < 8


def test_digests_are_those_of_every_machine():
    """A golden vector: a change would make every fitted file blind."""
    text = "the quick brown fox jumps over the lazy dog and runs away from the old grey wolf"
    assert word_shingles(text) == GOLDEN[0]
    assert token_shingles(np.arange(40) * 3) == GOLDEN[1]


GOLDEN = ("FVBt+UdQ", "Apy51j/TA33Qq8Rc")
