"""Texts of traces by digest, and the refusal of texts that calibration and evaluation share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer.errors import SpecError
from producer.trace.shingles import TOKEN_RUN, WORD_RUN, normal_words, shared, token_shingles, word_shingles

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

__all__ = [
    "PASSAGE_FIELDS",
    "Overlap",
    "SequenceInfo",
    "describe_sequence",
    "largest_overlap",
    "parse_sequence",
    "passages",
    "require_disjoint",
]

_MIN_CHARACTERS = 24
_MIN_LETTERS = 12
_DIGEST_CHARACTERS = 16

#: Fields of a sequence that serve the search for shared passages alone.
PASSAGE_FIELDS = ("passages", "word_shingles", "token_shingles")


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """Where a sequence of a trace comes from.

    Attributes
    ----------
    name : str
        Name of the text's file, without its folder.
    text_sha256 : str
        SHA-256 of the text's file.
    first_token : int
        Place of the sequence's first token of the text in the tokenized text, special tokens not counted.
    tokens : int
        With the special tokens at the beginning.
    token_ids_sha256 : str
        SHA-256 of the token ids as little-endian int32.
    passages : tuple of str
        Short digests of the sequence's lines.
    word_shingles, token_shingles : str
        See `producer.trace.shingles`.
    special_tokens : int
        Tokens at the beginning that the tokenizer puts before every text, such as BOS.
    """

    name: str
    text_sha256: str
    first_token: int
    tokens: int
    token_ids_sha256: str
    passages: tuple[str, ...]
    word_shingles: str = ""
    token_shingles: str = ""
    special_tokens: int = 0

    @property
    def end_token(self) -> int:
        """Place behind the sequence's last token in the tokenized text."""
        return self.first_token + self.tokens - self.special_tokens


@dataclass(frozen=True, slots=True)
class Overlap:
    """The shares of an evaluation sequence's passages that a calibration sequence has too.

    Attributes
    ----------
    lines, words, tokens : float
        Of its lines, shingles of words and shingles of tokens, each 0 … 1.
    calibration, evaluation : str
        Names of the two texts.
    """

    lines: float = 0.0
    words: float = 0.0
    tokens: float = 0.0
    calibration: str = ""
    evaluation: str = ""

    @property
    def share(self) -> float:
        """The largest of the three."""
        return max(self.lines, self.words, self.tokens)

    def __str__(self) -> str:
        return (
            f"{100 * self.words:.3g} % of the runs of words, {100 * self.tokens:.3g} % of the runs of tokens and "
            f"{100 * self.lines:.3g} % of the lines"
        )


def describe_sequence(
    name: str, text_sha256: str, first_token: int, ids: npt.NDArray[np.int32], special: int, text: str
) -> SequenceInfo:
    """Return what a trace says of a sequence.

    Parameters
    ----------
    name, text_sha256 : str
        Of the text's file.
    first_token : int
    ids : int32, shape (tokens,)
        With `special` tokens at the beginning that are not of the text.
    special : int
    text : str
        What the token ids stand for.
    """
    return SequenceInfo(
        name=name,
        text_sha256=text_sha256,
        first_token=first_token,
        tokens=len(ids),
        token_ids_sha256=hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest(),
        passages=passages(text),
        word_shingles=word_shingles(text),
        token_shingles=token_shingles(ids[special:]),
        special_tokens=special,
    )


def parse_sequence(entry: dict[str, Any]) -> SequenceInfo:
    """Return a sequence from its JSON values.

    Raises
    ------
    TypeError, KeyError, ValueError
        If fields are missing, unknown or of another type. Those of earlier versions lack the shingles.
    """
    names = {"name": str, "text_sha256": str, "first_token": int, "tokens": int, "token_ids_sha256": str}
    names |= {"word_shingles": str, "token_shingles": str, "special_tokens": int}
    for name, kind in names.items():
        if type(entry[name]) is not kind:
            raise TypeError(f"{name} {entry[name]!r} of a sequence is no {kind.__name__}")
    sequence = SequenceInfo(**{**entry, "passages": tuple(map(str, entry["passages"]))})
    for own in (sequence.word_shingles, sequence.token_shingles):
        shared(own, own)
    return sequence


def passages(text: str) -> tuple[str, ...]:
    """Return short digests of the lines of a text, sorted, without repeats.

    A line counts by its words alone (`producer.trace.shingles.normal_words`), if they have 24 characters and 12 letters
    or digits: a question of a list is found so, though it is shorter than a shared run of words has to be.
    """
    lines = (" ".join(normal_words(line)) for line in text.splitlines())
    return tuple(
        sorted(
            {
                hashlib.sha256(line.encode()).hexdigest()[:_DIGEST_CHARACTERS]
                for line in lines
                if len(line) >= _MIN_CHARACTERS and sum(map(str.isalnum, line)) >= _MIN_LETTERS
            }
        )
    )


def _overlap(fitted: SequenceInfo, judged: SequenceInfo) -> Overlap:
    """Return what an evaluation sequence has of a calibration sequence."""
    names = fitted.name, judged.name
    if fitted.token_ids_sha256 == judged.token_ids_sha256:
        return Overlap(1.0, 1.0, 1.0, *names)
    lines = len(set(fitted.passages) & set(judged.passages)), len(judged.passages)
    words = shared(fitted.word_shingles, judged.word_shingles)
    tokens = shared(fitted.token_shingles, judged.token_shingles)
    shares = [count / max(total, 1) for count, total in (lines, words, tokens)]
    return Overlap(shares[0], shares[1], shares[2], *names)


def largest_overlap(calibration: Iterable[SequenceInfo], evaluation: Iterable[SequenceInfo]) -> Overlap:
    """Return the overlap of the two sequences, one of each, that have most in common; none without sequences."""
    judged = list(evaluation)
    pairs = (_overlap(one, other) for one in calibration for other in judged)
    return max(pairs, key=lambda overlap: overlap.share, default=Overlap())


def require_disjoint(
    calibration: Iterable[SequenceInfo], evaluation: Iterable[SequenceInfo], limit: float = 0.0
) -> Overlap:
    """Return the largest overlap of calibration and evaluation; raise when evaluation has seen the calibration.

    Parameters
    ----------
    calibration, evaluation : iterable of SequenceInfo
    limit : float
        Largest share of an evaluation sequence's runs of words, runs of tokens, or lines that may be in one
        calibration sequence.

    Raises
    ------
    SpecError
        With the two texts and the shares that they have in common.

    Notes
    -----
    Limits: a paraphrase or a translation is another text. Any shared run of 16 words, or 32 tokens, is found,
    however it is wrapped, quoted or spelled in Unicode; a shorter one only if it is a whole line of both.
    """
    found = largest_overlap(calibration, evaluation)
    if found.share > limit:
        raise SpecError(
            f"contaminated: evaluation text {found.evaluation!r} shares {found} with calibration text "
            f"{found.calibration!r} (a run is {WORD_RUN} words or {TOKEN_RUN} tokens); at most {100 * limit:g} % is "
            "allowed: take different texts"
        )
    return found
