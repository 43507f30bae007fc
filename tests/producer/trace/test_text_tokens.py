"""Texts cut by tokens: how much of a text is read, where sequences begin, and which text is which."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.errors import SpecError
from producer.experiment.trace.arm_protocol import sequence_ids
from producer.trace.text_tokens import cut_text, cut_texts, special_prefix
from tests.producer.made_models import Bytes


class Runs:
    """A tokenizer that makes one token of up to so many equal characters; counts what it reads."""

    def __init__(self, width=16):
        self.read, self.width = 0, width

    def __call__(self, text, **_options):
        self.read += len(text)
        ids, place = [], 0
        while place < len(text):
            end = place
            while end < len(text) and end - place < self.width and text[end] == text[place]:
                end += 1
            ids.append(ord(text[place]) % 256 * self.width + end - place - 1)
            place = end
        return {"input_ids": ids}

    def decode(self, ids):
        return "".join(chr(one // self.width) * (one % self.width + 1) for one in ids)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_text_is_cut_by_tokens_not_by_characters(tmp_path):
    """14 000 tokens of 64 characters each: none of them is missing, and not all of them are read."""
    path = write(tmp_path / "rules.txt", b"".join(b"=-"[at % 2 : at % 2 + 1] * 64 for at in range(14_000)))
    tokenizer = Runs(64)
    ((info, ids),) = cut_text(tokenizer, path, 2048, 1)
    assert (info.tokens, len(ids)) == (2048, 2048)
    assert tokenizer.read < 2 * 64 * (2048 + 256)
    assert len(cut_text(tokenizer, path, 2000, 7)) == 7
    with pytest.raises(SpecError, match="14000 tokens, 7 sequences of 2001 are needed"):
        cut_text(tokenizer, path, 2001, 7)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("=- ab\n"), st.integers(1, 400)), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_the_tokens_are_those_of_the_whole_text(tmp_path_factory, runs, tokens, count):
    text = "".join(letter * size for letter, size in runs)
    path = write(tmp_path_factory.mktemp("t") / "text", text.encode())
    whole = Runs()(text)["input_ids"]
    if len(whole) < tokens * count:
        with pytest.raises(SpecError, match=f"{len(whole)} tokens, {count} sequences"):
            cut_text(Runs(), path, tokens, count)
    else:
        found = [one for _, ids in cut_text(Runs(), path, tokens, count) for one in ids]
        assert found == whole[: tokens * count]


def test_every_sequence_begins_with_the_special_tokens(tmp_path):
    path = write(tmp_path / "text", bytes(range(32, 127)) * 3)
    parts = cut_text(Bytes(bos=1), path, 50, 3)
    assert special_prefix(Bytes(bos=1)) == [1]
    assert special_prefix(Bytes()) == []
    content = path.read_bytes()
    for index, (info, ids) in enumerate(parts):
        assert ids[0] == 1
        assert ids[1:].astype(np.uint8).tobytes() == content[49 * index : 49 * index + 49]
        assert (info.first_token, info.end_token, info.special_tokens) == (49 * index, 49 * index + 49, 1)
        assert info.token_ids_sha256 == hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()


def test_line_ends_are_part_of_a_text(tmp_path):
    unix, dos = (
        write(tmp_path / name, f"one{end}two{end}".encode() * 20)
        for name, end in (("u", "\n"), ("d", "\r\n"))
    )
    for path in (unix, dos):
        ((info, ids),) = cut_text(Bytes(), path, 60, 1)
        assert info.text_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert ids.astype(np.uint8).tobytes() == path.read_bytes()[:60]


def test_two_texts_of_one_name_are_two_and_one_text_twice_is_one(tmp_path):
    one, other = (write(tmp_path / folder / "text.txt", folder.encode() * 60) for folder in "ab")
    again = write(tmp_path / "copy.txt", one.read_bytes())
    cut, notes = cut_texts(Bytes(), [one, other, again, one], 50, 1)
    assert [info.text_sha256[:8] for info, _ in cut] == [
        hashlib.sha256(letter.encode() * 60).hexdigest()[:8] for letter in "ab"
    ]
    assert notes == [
        f"text {again} is left out: it is that of {one}",
        f"text {one} is left out: it is that of {one}",
    ]
    a, b = (info for info, _ in cut)
    # In a record: by name alone where that is enough, across both traces.
    assert sequence_ids([a], []) == (["text.txt@0+50/last64"], [])
    assert sequence_ids([a], [b]) == (
        [f"text.txt#{a.text_sha256[:8]}@0+50/last64"],
        [f"text.txt#{b.text_sha256[:8]}@0+50/last64"],
    )


def test_a_tokenizer_that_changes_a_text_by_its_special_tokens_is_refused():
    class Odd(Bytes):
        def __call__(self, text, *, add_special_tokens=True, **_options):
            return {"input_ids": list(text.encode())[:: 2 if add_special_tokens else 1]}

    with pytest.raises(SpecError, match="other tokens with its special tokens than without"):
        special_prefix(Odd())
