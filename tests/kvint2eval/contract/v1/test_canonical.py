"""Canonical bytes against vectors and second implementations."""

import json
import math
import struct

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kvint2eval.contract.v1.canonical import canonical_v1, canonical_v1_of_layout
from kvint2eval.contract.v1.model import Record
from kvint2eval.contract.v1.reader import decode_v1, read_v1
from kvint2eval.strict_json.parse import decode_bytes, parse_text
from kvint2eval.strict_json.rfc8785 import es_number
from tests.helpers import RECORDS, SHARED, slow_canonical

# RFC 8785, appendix B: IEEE bits and text.
RFC_NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), RFC_NUMBERS)
def test_number_is_written_as_in_rfc_8785(bits, text):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert es_number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_agrees_with_a_second_implementation(value):
    assert es_number(value) == rfc8785.dumps(value).decode()


@given(st.integers(-(2**53), 2**53))
def test_integer_is_written_as_its_digits(value):
    assert es_number(value) == str(value) == es_number(float(value)) if value else es_number(value) == "0"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["values", "arrays", "structures", "french", "unicode", "weird"])
def test_numbers_of_the_jcs_vectors(name):
    """Every number of an RFC 8785 vector, written by `es_number`, stands in the expected output."""
    folder = SHARED / "corpora" / "jcs" / "testdata"
    output = (folder / "output" / f"{name}.json").read_text(encoding="utf-8")
    numbers = []
    json.loads((folder / "input" / f"{name}.json").read_bytes(), parse_float=numbers.append)
    for literal in numbers:
        assert es_number(float(literal)) in output


@pytest.mark.parametrize("path", sorted((RECORDS / "supported").glob("*.json")), ids=lambda path: path.stem)
def test_three_writers_give_the_same_bytes(path):
    data = path.read_bytes()
    slow = slow_canonical(json.loads(data))
    layout, missing = read_v1(parse_text(decode_bytes(data)))
    assert not missing
    assert canonical_v1_of_layout(layout) == slow
    assert canonical_v1_of_layout(decode_v1(data)) == slow
    assert canonical_v1(Record.model_validate_json(data)) == slow


def test_absent_members_are_written_as_empty():
    assert canonical_v1(Record()).startswith(
        b'{"contract_version":"","artifact":{"id":"","version":"","sha256":""}'
    )
    assert b'"candidates":null,"transform_milliseconds":0,"cache_bytes":0' in canonical_v1(Record())
    assert b'"candidates":[],' in canonical_v1(Record.model_validate_json('{"metrics":{"candidates":[]}}'))


def test_modeled_record_without_a_search_is_written_whole():
    data = (RECORDS / "delegate" / "modeled-evidence-without-search.json").read_bytes()
    members = json.loads(data)
    search = {"candidate_count": 0, "decode_trials": 0, "selected_rotation": 0, "candidates": None}
    whole = {**members, "metrics": {**search, **members["metrics"]}}
    assert canonical_v1_of_layout(decode_v1(data)) == slow_canonical(whole)


FIGURES = st.floats(0, allow_nan=False, allow_infinity=False).filter(
    lambda value: math.copysign(1, value) > 0
)


@given(FIGURES, FIGURES, st.text(st.characters(exclude_categories=["Cs"])))
def test_any_figures_and_strings_agree_with_a_second_implementation(mean, deviation, text):
    record = json.loads((RECORDS / "supported" / "l4-published.json").read_bytes())
    record["hardware"]["os"] = text
    record["metrics"]["candidates"][3] |= {"output_nmse_mean": mean, "output_nmse_stddev": deviation}
    data = json.dumps(record).encode()
    assert canonical_v1(Record.model_validate_json(data)) == slow_canonical(record)
    assert canonical_v1_of_layout(decode_v1(data)) == slow_canonical(record)
