"""Reading of a record: steps 0 and 1 alone; and what a re-derivation leaves undone."""

import pytest

from kvint2eval.contract.v2.rules import soundness
from producer.backend.cpu import NumpyBackend
from producer.record import reading, v2
from producer.record.field_comparison import NULL_CHECK_BOUND, compare_exactly, compare_numbers
from producer.record.reading import parse_record
from producer.record.rederive_v2 import rederive_v2
from tests.helpers import TESTDATA

OWN = TESTDATA / "runs" / "paired.json"


def never(*_arguments, **_named):
    raise AssertionError


def test_the_bound_is_the_contracts():
    assert NULL_CHECK_BOUND == soundness.NULL_BOUND


@pytest.mark.parametrize("name", ["v1/supported/l4-published.json", "v2/supported/balanced.json"])
def test_a_record_is_read_without_being_judged(name, monkeypatch):
    monkeypatch.setattr(reading, "adjudicate", never)
    path = TESTDATA / "records" / name
    record = parse_record(path.read_bytes())
    assert record.contract_version == f"kvint2eval/{name[:2]}"


def test_a_re_derivation_writes_no_record_and_hashes_no_source(monkeypatch):
    record = parse_record(OWN.read_bytes())
    for name in ("source_digest", "witness_v2", "record_v2_text"):
        monkeypatch.setattr(v2, name, never)
    done = rederive_v2(record, NumpyBackend(), lambda *_: None)
    assert done.rederived
    assert all(one.agrees for one in done.rederived)


def test_numbers_are_compared_relative_to_a_scale():
    assert compare_numbers("/x", 2.0, 2.1, 0.06).agrees
    assert not compare_numbers("/x", 2.0, 2.1, 0.04).agrees
    assert compare_numbers("/x", 0.0, 1e-10, 1e-9).agrees
    assert not compare_numbers("/x", 0.0, 1e-10, 1e-9, scale=0.0).agrees
    assert compare_numbers("/x", 0.0, 0.1, 0.02, scale=10.0).difference == pytest.approx(0.01)
    assert not compare_numbers("/x", 1.0, float("nan"), 1.0).agrees
    assert not compare_numbers("/x", None, 1.0, 1.0).agrees
    assert compare_numbers("/x", None, None, 1.0).agrees


def test_what_has_to_be_equal_is():
    assert compare_exactly("/x", (1, 2), (1, 2)).published == "(1, 2)"
    assert not compare_exactly("/x", "a", "b").agrees
