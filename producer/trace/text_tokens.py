"""Texts as token ids, cut into sequences that all begin as the model expects."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.trace.texts import SequenceInfo, describe_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["cut_text", "cut_texts", "special_prefix"]

# Characters of a text that are tokenized first for each token that is needed; more where that gives too few.
_CHARACTERS = 16
# Tokens at the end of a cut text that may be others than in the whole.
_MARGIN = 256
_SAMPLE = "A text, as any."


def special_prefix(tokenizer: Any) -> list[int]:
    """Return the token ids that a tokenizer puts before every text, such as BOS; none where it gives none.

    Raises
    ------
    SpecError
        If the text's own tokens are not among those that it gives.
    """
    plain = list(tokenizer(_SAMPLE, add_special_tokens=False, verbose=False)["input_ids"])
    full = list(tokenizer(_SAMPLE, verbose=False)["input_ids"])
    for first in range(len(full) - len(plain) + 1):
        if full[first : first + len(plain)] == plain:
            return full[:first]
    raise SpecError(
        "the tokenizer gives other tokens with its special tokens than without: it is not known here"
    )


def cut_texts(
    tokenizer: Any, paths: Sequence[Path], tokens: int, count: int
) -> tuple[list[tuple[SequenceInfo, npt.NDArray[np.int32]]], list[str]]:
    """Return the sequences of several texts, as `cut_text`, and what a user should know of them.

    A text that is given twice, under whatever name, is one; two texts of one name in two folders are two.

    Raises
    ------
    SpecError
        As `cut_text`.
    """
    cut: list[tuple[SequenceInfo, npt.NDArray[np.int32]]] = []
    first_path: dict[str, Path] = {}
    notes = []
    for path in paths:
        content = _read(path)
        digest = hashlib.sha256(content).hexdigest()
        if digest in first_path:
            notes.append(f"text {path} is left out: it is that of {first_path[digest]}")
            continue
        first_path[digest] = path
        cut += cut_text(tokenizer, path, tokens, count)
    return cut, notes


def cut_text(
    tokenizer: Any, path: Path, tokens: int, count: int
) -> list[tuple[SequenceInfo, npt.NDArray[np.int32]]]:
    """Return sequences of a text, one after the other from its beginning, with what a record says of them.

    Parameters
    ----------
    tokenizer : object
        Of `transformers`.
    path : Path
        A UTF-8 file; its line ends are part of the text.
    tokens : int
        Of each sequence, with the special tokens that the tokenizer puts before a text: every sequence begins with
        them.
    count : int

    Raises
    ------
    SpecError
        If the file cannot be read or has too few tokens.
    """
    content = _read(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"text {path} cannot be read: {error}") from error
    prefix = special_prefix(tokenizer)
    own_tokens = tokens - len(prefix)
    if own_tokens < 1:
        raise SpecError(f"{tokens} tokens are not allowed: {len(prefix)} stand before every text")
    ids = _tokenize(tokenizer, text, own_tokens * count)
    if len(ids) < own_tokens * count:
        raise SpecError(
            f"text {path} is not allowed: {len(ids)} tokens, {count} sequences of {own_tokens} are needed"
        )
    digest = hashlib.sha256(content).hexdigest()
    parts = []
    for first in range(0, own_tokens * count, own_tokens):
        own = ids[first : first + own_tokens]
        whole = np.array([*prefix, *own], dtype="<i4")
        decoded = tokenizer.decode(list(own))
        parts.append((describe_sequence(path.name, digest, first, whole, len(prefix), decoded), whole))
    return parts


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SpecError(f"text {path} cannot be read: {error.strerror}") from error


def _tokenize(tokenizer: Any, text: str, needed: int) -> list[int]:
    """Return the first token ids of a text, `needed` at least where it has so many, as those of the whole text.

    A tokenizer takes long over a long text: only its beginning is tokenized, a larger one until it has enough tokens.
    """
    size = _CHARACTERS * (needed + _MARGIN)
    while True:
        ids = list(tokenizer(text[:size], add_special_tokens=False, verbose=False)["input_ids"])
        if size >= len(text) or len(ids) >= needed + _MARGIN:
            return ids
        size *= 4
