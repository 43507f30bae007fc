"""RFC 8785: the published vectors, a second implementation, and what has no canonical form."""

import json
import math
import struct
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kvint2eval.errors import CanonicalFormError
from kvint2eval.strict_json.rfc8785 import canonical_json

CORPUS = Path(__file__).resolve().parents[4] / "shared/corpora/jcs/testdata"
NAMES = ("arrays", "french", "structures", "unicode", "values", "weird")


@pytest.mark.shared
@pytest.mark.parametrize("name", NAMES)
def test_published_vector(name):
    if not CORPUS.is_dir():
        pytest.skip(f"{CORPUS} is absent")
    value = json.loads((CORPUS / f"input/{name}.json").read_text(encoding="utf-8"))
    written = canonical_json(value)
    assert written == (CORPUS / f"output/{name}.json").read_bytes().strip()
    assert written == bytes.fromhex((CORPUS / f"outhex/{name}.txt").read_text())


# RFC 8785, appendix B: IEEE 754 bits and their text.
BITS = (
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555554", "333333333.33333325"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
)


@pytest.mark.parametrize(("bits", "text"), BITS)
def test_number_of_the_appendix(bits, text):
    assert canonical_json(struct.unpack(">d", bytes.fromhex(bits))[0]) == text.encode()


_TEXT = st.text(st.characters(exclude_categories=("Cs",)))
_SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
_VALUES = st.recursive(
    st.none() | st.booleans() | _SAFE | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_agrees_with_a_second_implementation(value):
    assert canonical_json(value) == rfc8785.dumps(value)


@given(_VALUES)
def test_is_idempotent(value):
    once = canonical_json(value)
    # A large binary64 number is written as digits; whoever reads those as an integer has to round again.
    again = json.loads(
        once, parse_int=lambda digits: int(digits) if abs(int(digits)) < 2**53 else float(digits)
    )
    assert canonical_json(again) == once


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**53 + 1, 10**30])
def test_integer_beyond_binary64_has_no_form(value):
    with pytest.raises(CanonicalFormError, match="allowed: at most 9007199254740991"):
        canonical_json({"n": [value]})


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, {1: 2}, {"a": object()}, b"x", "\ud800", {"\udc00": 1}]
)
def test_value_without_a_form_is_refused(value):
    with pytest.raises(CanonicalFormError):
        canonical_json([value])


def test_deep_nesting_is_refused():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CanonicalFormError, match="too deep"):
        canonical_json(value)
    while value:  # taken apart by hand: the collector would recurse
        value = value.pop()
