"""The layout of v1: what the strict reader says of values that have no place in it."""

import pytest
from pydantic import ValidationError

from kvint2eval import Record
from kvint2eval.contract.shape import ShapeFault
from kvint2eval.contract.v1.reader import read_v1
from kvint2eval.strict_json.describe import describe


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "an object"),
        ([1], "an array"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (2**64, "18446744073709551616"),
        ("a\n\u00e4\u202e", '"a\\n\\u00e4\\u202e"'),
        ("x" * 80, f'"{"x" * 80}"'),
        ("x" * 81, f'"{"x" * 80}"... (81 characters)'),
    ],
)
def test_a_value_is_described_in_plain_ascii(value, text):
    assert describe(value) == text


@pytest.mark.parametrize(
    ("members", "code", "pointer", "found", "allowed"),
    [
        ({"x/y~": 1}, "unknown-member", "/x~1y~0", 'member "x/y~"', "one of contract_version, artifact"),
        ({"artifact": []}, "wrong-type", "/artifact", "an array", "an object"),
        ({"evidence": 1}, "wrong-type", "/evidence", "1", "a string"),
        (
            {"metrics": {"candidates": {}}},
            "wrong-type",
            "/metrics/candidates",
            "an object",
            "an array of objects",
        ),
        ({"metrics": {"candidates": [1]}}, "wrong-type", "/metrics/candidates/0", "1", "an object"),
        ({"metrics": {"cache_bytes": "1"}}, "wrong-type", "/metrics/cache_bytes", '"1"', "an integer"),
        ({"hardware": {"seed": False}}, "wrong-type", "/hardware/seed", "false", "an unsigned integer"),
        (
            {"metrics": {"baseline_output_nmse": True}},
            "wrong-type",
            "/metrics/baseline_output_nmse",
            "true",
            "a number",
        ),
        (
            {"hardware": {"seed": -1}},
            "integer-out-of-range",
            "/hardware/seed",
            "-1",
            "an integer from 0 to 18446744",
        ),
        (
            {"recipe": {"bits": 2.0}},
            "fraction-in-integer",
            "/recipe/bits",
            "2.0",
            "an integer, written as plain",
        ),
    ],
)
def test_a_member_without_a_place_is_refused(members, code, pointer, found, allowed):
    with pytest.raises(ShapeFault) as caught:
        read_v1(members)
    assert (caught.value.code, caught.value.pointer, caught.value.found) == (code, pointer, found)
    assert caught.value.allowed.startswith(allowed)


def test_absent_members_are_named_once():
    layout, missing = read_v1({"artifact": {"id": "x"}, "metrics": {"candidates": None}})
    assert {
        "/artifact/version",
        "/artifact/sha256",
        "/model",
        "/metrics/candidates",
        "/metrics/cache_bytes",
    } <= missing
    assert "/model/id" not in missing
    assert (layout.artifact.id, layout.model.id, layout.metrics.candidates) == ("x", "", None)


def test_models_are_frozen_strict_and_closed():
    record = Record()
    with pytest.raises(ValidationError, match="frozen"):
        record.evidence = "observed"
    with pytest.raises(ValidationError, match="valid string"):
        Record(evidence=1)
    with pytest.raises(ValidationError, match="Extra inputs"):
        Record(unknown=1)
