"""The published JSON Schema against the shipped records."""

import json

import jsonschema
import pytest

from kvint2eval.errors import StrictJsonError
from kvint2eval.strict_json.parse import decode_bytes, parse_text
from tests.helpers import RECORDS, ROOT, manifest

SCHEMA = json.loads((ROOT / "kvint2eval" / "contract" / "v1" / "v1.schema.json").read_bytes())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
OF_THE_LAYOUT = {"unknown-member", "wrong-type", "integer-out-of-range", "not-an-object"}


def is_json(data):
    try:
        parse_text(decode_bytes(data))
    except StrictJsonError:
        return False
    return True


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["path"])
def test_schema_accepts_each_shipped_record_but_those_without_the_layout(row):
    data = (RECORDS / row["path"]).read_bytes()
    if not is_json(data):
        assert row["reason"] == "KVINT2_MALFORMED_RECORD"
        return
    # Whole numbers with a fraction pass: JSON Schema takes 2.0 for an integer, and the contract's page says so.
    assert VALIDATOR.is_valid(parse_text(decode_bytes(data))) == (row["finding"] not in OF_THE_LAYOUT)
