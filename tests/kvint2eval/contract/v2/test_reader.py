"""Models, schema, the two readers and the witness of contract v2."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kvint2eval import adjudicate
from kvint2eval.adjudication import read_subject
from kvint2eval.contract.v2 import model as v2
from kvint2eval.contract.v2.canonical import canonical_v2, canonical_v2_of_layout, witness_v2
from kvint2eval.contract.v2.judge import read_plain_v2
from kvint2eval.contract.v2.reader import decode_v2, read_v2
from kvint2eval.contract.v2.registry import DIALECTS
from kvint2eval.strict_json.rfc8785 import canonical_json
from tests.tools.regen import fingerprint
from tests.tools.regen.edits_v2 import EDITS
from tests.tools.regen.records_v2 import edited, text
from tests.tools.regen.vector_v2 import vector

ROOT = Path(__file__).resolve().parents[4]
BASE = vector()
SCHEMA = json.loads((ROOT / "kvint2eval/contract/v2/v2.schema.json").read_text())


def test_layout_faults_are_those_of_schema_and_models():
    shape_codes = {
        "missing-member",
        "unknown-member",
        "wrong-type",
        "integer-out-of-range",
        "fraction-in-integer",
    }
    for path in sorted((ROOT / "testdata/records/v2").rglob("*.json")):
        data = path.read_bytes()
        try:
            members = json.loads(data)
        except ValueError:
            continue
        code = (found := adjudicate(data).finding) and found.code
        if code in {
            "duplicate-member",
            "not-a-number",
            "number-overflow",
            "negative-zero",
            "unknown-contract",
        }:
            continue  # nothing that a schema can see
        is_shaped = code not in shape_codes
        # JSON Schema takes 2.0 for an integer, and a number of any size.
        if code == "fraction-in-integer" or path.name == "integer-out-of-range-number.json":
            continue
        assert jsonschema.Draft202012Validator(SCHEMA).is_valid(members) == is_shaped, path
        try:
            v2.Record.model_validate_json(data)
        except ValidationError:
            assert not is_shaped, path
        else:
            assert is_shaped, path


def test_both_readers_read_one_record():
    data = text(BASE)
    assert decode_v2(data) == read_v2(json.loads(data))


@given(st.data())
def test_both_readers_agree_on_any_number(data):
    number = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    changes = [
        (f"/measurements/arms/{arm}/trials/{name}", data.draw(st.lists(number, min_size=8, max_size=8)))
        for arm, name in ((0, "nmse"), (1, "cross_part"))
    ] + [(pointer, data.draw(number)) for pointer in ("/claims/0/low", "/recipe/dialect/range_floor")]
    record = json.loads(json.dumps(BASE))
    for pointer, value in changes:
        holder = record
        *steps, name = pointer.split("/")[1:]
        for step in steps:
            holder = holder[int(step) if isinstance(holder, list) else step]
        holder[name] = value
    encoded = json.dumps(record).encode()
    plain = read_plain_v2(encoded, None, None)
    if plain is not None:
        assert plain.canonical == canonical_v2(record) == canonical_v2_of_layout(read_v2(record))
    elif re.search(rb"-0\.0[],}]", encoded):
        assert adjudicate(encoded).finding.code == "negative-zero"
    else:
        assert read_subject(encoded).canonical == canonical_v2(record)


@given(st.text(), st.booleans())
def test_both_readers_agree_on_any_text(text_of_record, is_ascii):
    record = json.loads(json.dumps(BASE))
    record["workload"]["synthetic"]["generator"] = record["protocol"]["name"] = text_of_record
    encoded = json.dumps(record, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    plain, strict = read_plain_v2(encoded, None, None), read_subject(encoded)
    if re.search("[\ud800-\udfff]", text_of_record):
        assert plain is None
        assert strict.code in ("lone-surrogate", "not-utf8")
    else:
        assert strict.canonical == canonical_v2(record)
        assert plain is None or plain.canonical == strict.canonical


def test_witness_is_that_of_the_plain_form():
    members = {name: value for name, value in BASE.items() if name != "witness_sha256"}
    assert canonical_v2(BASE) == canonical_json(members)
    assert witness_v2(BASE) == BASE["witness_sha256"] == adjudicate(text(BASE)).witness_sha256


def test_witness_does_not_depend_on_order_or_white_space():
    def reversed_members(value):
        if isinstance(value, dict):
            return {name: reversed_members(value[name]) for name in reversed(value)}
        return [reversed_members(one) for one in value] if isinstance(value, list) else value

    for form in (
        json.dumps(reversed_members(BASE)),
        json.dumps(BASE, indent=4),
        json.dumps(BASE, indent=None),
    ):
        assert adjudicate(form.encode()).outcome == "supported"


@pytest.mark.parametrize("version", ["kvint2eval/v3", "", "kvint2eval/V2", None, 2])
def test_unknown_version_is_refused_before_anything_else(version):
    record = {"contract_version": version, "nonsense": [1, {"recipe": "x"}]}
    finding = adjudicate(json.dumps(record).encode()).finding
    assert finding.code == ("unknown-contract" if isinstance(version, str) else "wrong-type")
    assert finding.pointer == "/contract_version"


def test_a_record_is_judged_by_the_contract_that_it_names():
    as_v1 = BASE | {"contract_version": "kvint2eval/v1"}
    assert adjudicate(json.dumps(as_v1).encode()).finding.code == "unknown-member"
    v1 = json.loads((ROOT / "testdata/records/v1/supported/l4-published.json").read_text())
    as_v2 = v1 | {"contract_version": "kvint2eval/v2"}
    assert adjudicate(json.dumps(as_v2).encode()).finding.code in ("unknown-member", "missing-member")


def test_the_name_of_v2_inside_a_v1_record_changes_nothing():
    v1 = json.loads((ROOT / "testdata/records/v1/supported/l4-published.json").read_text())
    v1["hardware"]["os"] = "kvint2eval/v2"
    finding = adjudicate(json.dumps(v1).encode()).finding
    assert finding.code == "witness-mismatch"


@pytest.mark.parametrize("pointer", ["/workload/synthetic/seed", "/claims/0/seed", "/protocol/warmup"])
def test_integers_that_binary64_confuses_are_never_sealed_alike(pointer):
    for value in (2**53, 2**53 + 1):
        record = json.dumps(edited(BASE, (pointer, 1234567))).replace("1234567", str(value))
        assert adjudicate(record.encode()).finding.code == "integer-out-of-range"


def test_an_integer_among_numbers_hides_no_later_fault():
    """A record with a fault is read a second time, member by member, to say where: 1 is a number there too."""
    finding = adjudicate(text(edited(BASE, ("/recipe/clip_grid/0", 1), ("/claims/0/metric", 5)))).finding
    assert (finding.code, finding.pointer) == ("wrong-type", "/claims/0/metric")


def test_fingerprint_is_that_of_a_second_implementation():
    assert DIALECTS["symmetric-absmax-clip"]["fingerprint_sha256"] == fingerprint.fingerprint()


def test_every_edit_changes_the_record():
    assert len({(code, slug) for code, slug, *_ in EDITS}) == len(EDITS)


def test_hostile_record_of_largest_figures_does_not_raise():
    columns = ("nmse", "numerator", "denominator", "key_part", "value_part", "cross_part", "decode_us")
    for value in (1.7e308, 1e60, 5e-324):
        changes = [
            (f"/measurements/arms/{arm}/trials/{name}", [value] * 8) for arm in range(3) for name in columns
        ]
        changes += [
            (f"/measurements/arms/{arm}/calibration/query_nmse", [[value] * 3] * 5) for arm in range(3)
        ]
        changes += [("/claims/0/value", value), ("/claims/0/low", -value)]
        assert adjudicate(json.dumps(edited(BASE, *changes)).encode()).outcome == "unsupported"


@pytest.mark.parametrize(
    "literal", ["-0", "-0.0", "-0e0", "-0E+5", "-1e-999", "0.0", "1.0", "1e0", "00", "+1", "-1"]
)
@pytest.mark.parametrize("name", ["warmup", "repeats"])
def test_integer_member_takes_plain_digits_alone(name, literal):
    data = text(edited(BASE, (f"/protocol/{name}", 7654321))).replace(b"7654321", literal.encode())
    finding = adjudicate(data).finding
    assert finding.code in {"negative-zero", "fraction-in-integer", "integer-out-of-range", "invalid-json"}


@pytest.mark.parametrize(
    "literal", ["-0", "-0.0", "-0e0", "-0E+5", "-1e-999", "00", "+1", ".5", "1.", "0x1", "1e999"]
)
@pytest.mark.parametrize(
    "pointer", ["/measurements/arms/0/trials/cross_part/0", "/claims/0/low", "/recipe/clip_grid/1"]
)
def test_number_is_read_strictly(pointer, literal):
    data = text(edited(BASE, (pointer, 7654.321))).replace(b"7654.321", literal.encode())
    assert adjudicate(data).finding.code in {"negative-zero", "invalid-json", "number-overflow"}
