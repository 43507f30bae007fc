"""Texts of traces by digest, and the refusal of texts that calibration and evaluation share."""

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SequenceInfo", "passages", "require_disjoint"]

_MIN_CHARACTERS = 24
# A ruler of dashes is no passage, whatever its length.
_MIN_LETTERS = 12
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """Where a sequence of a trace comes from.

    Attributes
    ----------
    name : str
        Name of the text's file, without its folder.
    text_sha256 : str
        SHA-256 of the whole text in UTF-8.
    first_token : int
        Place of the sequence's first token in the tokenized text.
    tokens : int
    token_ids_sha256 : str
        SHA-256 of the token ids as little-endian int32.
    passages : tuple of str
        Short digests of the sequence's passages.
    """

    name: str
    text_sha256: str
    first_token: int
    tokens: int
    token_ids_sha256: str
    passages: tuple[str, ...]


def passages(text: str) -> tuple[str, ...]:
    """Return short digests of the passages of a text, sorted, without repeats.

    A passage is a line of at least 24 characters, 12 of them letters or digits, with its case folded and runs of white
    space made one space, so that a prompt that was wrapped or indented anew is still the same.
    """
    lines = (re.sub(r"\s+", " ", line).strip().casefold() for line in text.splitlines())
    return tuple(
        sorted(
            {
                hashlib.sha256(line.encode()).hexdigest()[:_DIGEST_CHARACTERS]
                for line in lines
                if len(line) >= _MIN_CHARACTERS and sum(map(str.isalnum, line)) >= _MIN_LETTERS
            }
        )
    )


def require_disjoint(calibration: "Iterable[SequenceInfo]", evaluation: "Sequence[SequenceInfo]") -> None:
    """Raise when evaluation has seen a passage of the calibration.

    Raises
    ------
    SpecError
        With the two texts and the number of passages that they share.
    """
    for fitted in calibration:
        for judged in evaluation:
            shared = set(fitted.passages) & set(judged.passages)
            if shared or fitted.token_ids_sha256 == judged.token_ids_sha256:
                raise SpecError(
                    f"contaminated: calibration text {fitted.name!r} and evaluation text {judged.name!r} share "
                    f"{max(len(shared), 1)} passages; take different texts"
                )
