"""The text of needles: one digest a seed, and every answer is what the text said."""

import hashlib
import re

import pytest

from producer.errors import SpecError
from tests.tools.evidence.needles import needle_text


def test_a_seed_is_one_text():
    digest = hashlib.sha256(needle_text(36, 20, 6260).encode()).hexdigest()
    assert digest == "866e0a34b49466a5edd5358227c5d0998de9d5c875ad27ed790472506cb4657b"
    assert needle_text(36, 20, 6261) != needle_text(36, 20, 6260)


@pytest.mark.parametrize(("needles", "questions"), [(1, 1), (10, 3), (64, 64)])
def test_every_question_is_answered_by_the_text_before_it(needles, questions):
    told, *asked = needle_text(needles, questions, 7).splitlines()
    facts = dict(re.findall(r"The special number of the (\w+ \w+) is (\d{7})\.", told))
    assert len(facts) == needles
    answers = dict(re.findall(r"\? The special number of the (\w+ \w+) is (\d{7})\.", "\n".join(asked)))
    assert len(asked) == len(answers) == questions
    assert answers.items() <= facts.items()
    assert all(
        line.startswith(f"What is the special number of the {key}?")
        for line, key in zip(asked, answers, strict=True)
    )


@pytest.mark.parametrize(("needles", "questions"), [(0, 0), (65, 1), (3, 4)])
def test_numbers_outside_their_range_are_refused(needles, questions):
    with pytest.raises(SpecError, match=r"needles and .* questions are not allowed: 1 … 64"):
        needle_text(needles, questions, 1)
