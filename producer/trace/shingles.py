"""Shingles of words and of token ids: digests by which shared passages of two texts are found.

A shingle is a run of k words, or k tokens. Of w shingles in a row the one with the least hash is kept (winnowing,
Schleimer, Wilkerson and Aiken 2003), so that two texts with a common run of k + w - 1 keep at least one digest in
common, wherever the run stands in either, and about 2/(w + 1) of all shingles are stored.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["TOKEN_RUN", "WORD_RUN", "normal_words", "shared", "token_shingles", "word_shingles"]

_WORDS, _WORD_WINDOW = 8, 9
_TOKENS, _TOKEN_WINDOW = 16, 17
#: A shared run of so many words, or tokens, is found.
WORD_RUN = _WORDS + _WORD_WINDOW - 1
TOKEN_RUN = _TOKENS + _TOKEN_WINDOW - 1

# A ruler of dashes, a run of zeros or a table of numbers is no passage, whatever its length.
_LEAST_WORDS = 4
_LEAST_TOKENS = 8
# Digests of 48 bits: two books have some 10¹⁰ pairs of them, so one pair in 30 000 books agrees by chance.
_DIGEST_BYTES = 6

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
# A word that was broken at the end of a line, behind a marker of comments or quotes on the next, or is written with a
# hyphen: one word in all three.
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011](?:\s*\n[\s#>*/;%|]*)?(?=[^\W\d_])")
_APOSTROPHE = re.compile("(?<=\\w)['\u2018\u2019\u02bc`](?=\\w)")
# Scripts without spaces between words: each character is a word.
_SINGLE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_SINGLE}]|[^\\W_{_SINGLE}]+")


def normal_words(text: str) -> list[str]:
    """Return the words of a text: letters and digits alone, in one Unicode form and case.

    White space, line breaks, punctuation, quotes and markers of comments and lists are gone, hyphens and apostrophes
    within a word too.
    """
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
        text = unicodedata.normalize("NFKC", text.casefold())
    else:
        text = text.lower()
    return _WORD.findall(_APOSTROPHE.sub("", _HYPHEN.sub("", text)))


def word_shingles(text: str) -> str:
    """Return the shingles of a text's words: any shared run of `WORD_RUN` words is found by them.

    Shingles with fewer than four different words that have a letter are left out.

    Returns
    -------
    str
        Digests of 48 bits, rising, without repeats, in base64.
    """
    words = normal_words(text)
    place = {word: index for index, word in enumerate(dict.fromkeys(words))}
    hashes = np.array(
        [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in place],
        dtype=np.uint64,
    )
    has_letter = np.array([any(map(str.isalpha, word)) for word in place], dtype=bool)
    ids = np.array([place[word] for word in words], dtype=np.int64)
    counts = _different(ids, _WORDS, has_letter)
    return _encode(_winnow(_runs(hashes[ids], _WORDS), counts >= _LEAST_WORDS, _WORD_WINDOW))


def token_shingles(token_ids: npt.NDArray[np.int32]) -> str:
    """Return the shingles of token ids, int32, shape (tokens,): any shared run of `TOKEN_RUN` tokens is found by them.

    Shingles with fewer than eight different tokens are left out.

    Returns
    -------
    str
        As `word_shingles`.
    """
    ids = token_ids.astype(np.int64)
    counts = _different(ids, _TOKENS, None)
    runs = _runs(_mix(ids.astype(np.uint64) + np.uint64(1)), _TOKENS)
    return _encode(_winnow(runs, counts >= _LEAST_TOKENS, _TOKEN_WINDOW))


def shared(one: str, other: str) -> tuple[int, int]:
    """Return how many digests of `other` are in `one`, and how many `other` has.

    Raises
    ------
    ValueError
        If one of the two is no base64 of whole digests.
    """
    found, wanted = _decode(one), _decode(other)
    return len(found & wanted), len(wanted)


def _runs(hashes: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.uint64]:
    """Return one hash for each run of `size` hashes, modulo 2⁶⁴."""
    count = max(len(hashes) - size + 1, 0)
    total = np.zeros(count, dtype=np.uint64)
    for place in range(size):
        total = total * np.uint64(0x9E3779B97F4A7C15) + hashes[place : place + count]
    return _mix(total)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 of each value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _different(ids: npt.NDArray[np.int64], size: int, counted: npt.NDArray[np.bool_] | None) -> Any:
    """Return how many different ids each run of `size` has, int64; of those that are counted."""
    count = max(len(ids) - size + 1, 0)
    total = np.zeros(count, dtype=np.int64)
    for place in range(size):
        own = ids[place : place + count]
        is_new = np.ones(count, dtype=bool) if counted is None else counted[own]
        for before in range(place):
            is_new &= own != ids[before : before + count]
        total += is_new
    return total


def _winnow(hashes: npt.NDArray[np.uint64], allowed: npt.NDArray[np.bool_], window: int) -> Any:
    """Return the least allowed hash of every `window` in a row, rising, without repeats."""
    last = np.uint64(2**64 - 1)
    hashes = np.where(allowed, hashes, last)
    if len(hashes) > window:
        count = len(hashes) - window + 1
        least = hashes[:count]
        for place in range(1, window):
            least = np.minimum(least, hashes[place : place + count])
        hashes = least
    elif len(hashes):
        hashes = hashes.min(keepdims=True)
    return np.unique(hashes[hashes != last] >> np.uint64(64 - 8 * _DIGEST_BYTES))


def _encode(digests: npt.NDArray[np.uint64]) -> str:
    rows = digests.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - _DIGEST_BYTES :]
    return base64.b64encode(rows.tobytes()).decode()


@functools.lru_cache(maxsize=4096)
def _decode(text: str) -> frozenset[bytes]:
    content = base64.b64decode(text, validate=True)
    if len(content) % _DIGEST_BYTES:
        raise ValueError(f"{len(content)} bytes are no digests of {_DIGEST_BYTES}")
    return frozenset(
        content[place : place + _DIGEST_BYTES] for place in range(0, len(content), _DIGEST_BYTES)
    )
