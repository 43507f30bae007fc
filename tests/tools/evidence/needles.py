"""Needle texts: keys with numbers in filler sentences, and questions at the end that ask for the numbers.

In the manner of RULER's multi-key retrieval, made by the project's own generator from a seed, so that a digest names
it. A model that reads its cache well repeats a number that it saw once, hundreds of tokens ago; what it predicts
elsewhere in the text tells little.

Limits: the words are few and the sentences plain, as in RULER; it is a test of retrieval, not a sample of language.
"""

from typing import TYPE_CHECKING, TypeVar

from producer.errors import SpecError
from producer.numerics.mt19937 import WordStream

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["needle_text"]

_Value = TypeVar("_Value")

_FILLER = (
    "The grass is green and the sky is blue over the quiet hills.",
    "Somewhere a clock struck the hour and nobody counted it.",
    "Here the road turns and goes on towards the river again.",
    "It was said that the market would open early that day.",
    "The lamps along the harbour were lit one after another.",
    "A letter lay on the table and waited for its reader.",
    "Rain came in the afternoon and was gone before supper.",
    "The old bridge had been mended with new oak that spring.",
)
_FIRST = ("amber", "copper", "silver", "violet", "crimson", "ivory", "cobalt", "olive")
_SECOND = ("otter", "falcon", "badger", "heron", "lynx", "marten", "plover", "weasel")
#: Sentences of filler between two needles.
_SPACING = 2


def needle_text(needles: int, questions: int, seed: int) -> str:
    """Return a text of needles.

    Parameters
    ----------
    needles : int
        Keys, each with a number of seven digits; 1 … 64, since every key is another pair of words.
    questions : int
        Keys that are asked for at the end, 1 … needles, each once, with the answer.
    seed : int
        Seed of the MT19937 stream; choice = word·n / 2³², rounded down.

    Returns
    -------
    str
        One paragraph of sentences, in which every needle has two sentences of filler before it, then one line a
        question. About 45 tokens a needle and 30 a question, by the tokenizer.

    Raises
    ------
    SpecError
        If a number is outside its range.
    """
    if not 1 <= needles <= len(_FIRST) * len(_SECOND) or not 1 <= questions <= needles:
        raise SpecError(
            f"{needles} needles and {questions} questions are not allowed: 1 … {len(_FIRST) * len(_SECOND)}, and 1 … "
            "as many"
        )
    draw = _Draws(seed)
    keys = [f"{first} {second}" for first in _FIRST for second in _SECOND]
    found = [(key, 1_000_000 + draw.below(9_000_000)) for key in draw.sample(keys, needles)]
    sentences = []
    for key, number in found:
        sentences += [_FILLER[draw.below(len(_FILLER))] for _ in range(_SPACING)]
        sentences.append(f"The special number of the {key} is {number}.")
    asked = draw.sample(found, questions)
    lines = [
        f"What is the special number of the {key}? The special number of the {key} is {number}."
        for key, number in asked
    ]
    return "\n".join([" ".join(sentences), *lines]) + "\n"


class _Draws:
    """Choices from a word stream."""

    def __init__(self, seed: int) -> None:
        self._words = WordStream(seed)

    def below(self, count: int) -> int:
        """Return an integer of 0 … count - 1."""
        return (int(self._words.words(1)[0]) * count) >> 32

    def sample(self, values: "Sequence[_Value]", count: int) -> "list[_Value]":
        """Return values in a random order without repeats."""
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(count)]
