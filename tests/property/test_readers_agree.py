"""Law: the fast reader and the strict one give one verdict, and the strict layout is what pydantic accepts."""

import importlib
import json
import random
from unittest import mock

import jsonschema
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import Record, adjudicate
from kvint2eval.contract.shape import ShapeFault
from kvint2eval.contract.v1.reader import read_v1
from tests.helpers import RECORDS, ROOT, as_members, dump, holder_of, pointers

adjudicate_module = importlib.import_module("kvint2eval.adjudication")

BASES = [
    (RECORDS / path).read_bytes()
    for path in (
        "supported/l4-published.json",
        "supported/two-candidates.json",
        "supported/extremes.json",
        "delegate/modeled-evidence-without-search.json",
        "unsupported/witness-missing-empty.json",
    )
]
SCHEMA = json.loads((ROOT / "kvint2eval" / "contract" / "v1" / "v1.schema.json").read_bytes())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["kvint2eval/v1", "observed", "modeled", "cuda", 0, 1, -1, 0.5, 2**63, 2**64 - 1, 2**53 + 1]
    ),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)
)


@st.composite
def changed_records(draw):
    """A record with one to three members changed, removed or added."""
    record = json.loads(draw(st.sampled_from(BASES)))
    for _round in range(draw(st.integers(1, 3))):
        pointer = draw(st.sampled_from(list(pointers(record))))
        holder, key = holder_of(record, pointer)
        what = draw(st.sampled_from(["change", "remove", "add"]))
        if what == "change":
            holder[key] = draw(VALUES)
        elif what == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=6))] = draw(VALUES)
        if not isinstance(record, dict) or not record:
            break
    return record


def strict_verdict(data):
    with mock.patch("kvint2eval.contract.v1.judge.decode_v1", return_value=None):
        return adjudicate_module.adjudicate(data)


@settings(max_examples=600)
@given(changed_records(), st.sampled_from([None, 2]), st.sampled_from([(",", ":"), (", ", " : ")]))
def test_fast_and_strict_reader_give_one_verdict(record, indent, separators):
    data = json.dumps(record, indent=indent, separators=separators).encode()
    assert adjudicate(data) == strict_verdict(data)


@settings(max_examples=1000)
@given(st.sampled_from(BASES), st.randoms(use_true_random=False))
def test_one_verdict_on_damaged_bytes(base, random_numbers):
    data = bytearray(base)
    for _round in range(random_numbers.randint(1, 3)):
        start = random_numbers.randrange(len(data))
        piece = random_numbers.choice(
            [b'"', b"-", b"0", b"e", b",", b"}", b"\\", b"1e5", b"-0", b"\xe9", b"", data[:40]]
        )
        data[start : start + random_numbers.randint(0, 2)] = piece
    damaged = bytes(data)
    assert adjudicate(damaged) == strict_verdict(damaged)


def accepts(record):
    """Verdicts of the three layouts: schema, pydantic, strict reader."""
    try:
        Record.model_validate_json(json.dumps(record))
    except pydantic.ValidationError:
        by_model = False
    else:
        by_model = True
    try:
        read_v1(record)
    except ShapeFault:
        by_reader = False
    else:
        by_reader = True
    return VALIDATOR.is_valid(record), by_model, by_reader


def has_whole_float(value):
    """Whether a float without a fraction stands somewhere: JSON Schema takes it for an integer."""
    if isinstance(value, float):
        return value.is_integer()
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(has_whole_float, children))


@settings(max_examples=600)
@given(changed_records())
def test_schema_models_and_strict_reader_accept_the_same_documents(record):
    by_schema, by_model, by_reader = accepts(record)
    assert by_model == by_reader
    if by_schema != by_model:
        assert by_schema
        assert has_whole_float(record)


@pytest.mark.parametrize("base", BASES)
def test_the_bases_are_accepted(base):
    assert accepts(json.loads(base)) == (True, True, True)


@pytest.mark.parametrize("seed", range(20))
def test_order_of_members_changes_nothing(seed):
    shuffled = random.Random(seed)

    def shuffle(value):
        if isinstance(value, dict):
            items = [(name, shuffle(inner)) for name, inner in value.items()]
            shuffled.shuffle(items)
            return dict(items)
        return [shuffle(inner) for inner in value] if isinstance(value, list) else value

    for base in BASES:
        data = dump(as_members(shuffle(json.loads(base)))).encode()
        verdict, before = adjudicate(data), adjudicate(base)
        assert (verdict.reason, verdict.canonical, verdict.witness_sha256) == (
            before.reason,
            before.canonical,
            before.witness_sha256,
        )
