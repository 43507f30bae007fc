"""Comparisons that discriminate nothing say so."""

import pytest

from producer.errors import FileFormatError
from producer.experiment.trace.sanity import non_discriminating


def comparison(errors=(0.5, 0.1), perplexities=(), agreements=(), reference=20.0, tokens=1512):
    runs = [
        {
            "perplexity": one,
            "reference_perplexity": reference,
            "top1_agreement": share,
            "tokens": tokens,
            "first_token": 512,
        }
        for one, share in zip(perplexities, agreements, strict=True)
    ]
    return {
        "model": {"vocab_size": 300},
        "schemes": [
            {"summary": {"relative_error": error}, "runs": runs[place : place + 1]}
            for place, error in enumerate(errors)
        ],
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (comparison(), []),
        (comparison(errors=(1.2, 1.0)), ["no scheme is better than an output of zeros"]),
        (comparison(errors=(1.2, 0.99)), []),
        (comparison(errors=(1e-8, 0.0)), ["every scheme's is rounding alone"]),
        (comparison(perplexities=(25.0, 21.0), agreements=(0.5, 0.9)), []),
        (
            comparison(perplexities=(350.0, 300.0), agreements=(0.5, 0.9)),
            ["that of guessing among 300 words"],
        ),
        (comparison(perplexities=(350.0, 299.0), agreements=(0.5, 0.9)), []),
        (
            comparison(perplexities=(20.001, 19.999), agreements=(0.5, 0.9)),
            ["every scheme's is that of 16 bits"],
        ),
        (comparison(perplexities=(25.0, 21.0), agreements=(0.999, 1.0)), ["top-1 agreement .* 100 %"]),
        (comparison(perplexities=(25.0, 21.0), agreements=(0.998, 1.0)), []),
        (comparison(perplexities=(250.0, 210.0), agreements=(0.001, 0.0)), ["top-1 agreement .* is 0 with"]),
        (comparison(perplexities=(250.0, 210.0), agreements=(0.002, 0.0)), []),
    ],
)
def test_every_scheme_at_floor_or_ceiling(content, words):
    import re  # noqa: PLC0415

    found = non_discriminating(content)
    assert len(found) == len(words)
    assert all(re.search(word, message) for word, message in zip(words, found, strict=True))


def test_another_content_is_refused():
    with pytest.raises(FileFormatError, match="not a comparison"):
        non_discriminating({"schemes": []})
