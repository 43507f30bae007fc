"""Law: change any one number of a supported v2 record, beyond times, and it is not supported any more.

Also with the witness made anew. The exceptions are the figures that the record's own trials cannot contradict:
docs/limits.md lists them, and `FREE` is that list.
"""

import copy
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.canonical_v2 import witness_v2
from kvint2eval.codes import Outcome
from tests.regen.records_v2 import at
from tests.regen.vector_v2 import claim, sealed, vector

LIMITS = Path(__file__).resolve().parents[2] / "docs/limits.md"

# Times, and what only a new run can contradict.
FREE = (
    "/measurements/arms/*/trials/decode_us/*",
    "/measurements/null_checks/*/nmse",
    "/recipe/rotations/*/seed",
    "/workload/query_heads",
    "/workload/output_dimension",
    "/workload/synthetic/seed",
    "/workload/synthetic/outlier_stride",
    "/workload/synthetic/outlier_factor",
    "/workload/trace/layer",
    "/workload/trace/head",
    "/protocol/warmup",
    "/protocol/repeats",
    "/environment/gpu_memory_bytes",
)
_FREE = re.compile("|".join(re.escape(pattern).replace(r"\*", "[0-9]+") for pattern in FREE))


def _numbers(value, pointer=""):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in items:
            yield from _numbers(one, f"{pointer}/{name}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield pointer


def _synthetic():
    record = vector()
    record["claims"] = [claim(record), claim(record, "decode_us", level=0.9, resamples=500, seed=3)]
    return sealed(record)


RECORD = _synthetic()
POINTERS = sorted(_numbers(RECORD))
BOUND = [pointer for pointer in POINTERS if not _FREE.fullmatch(pointer)]


def _changed(pointer, change):
    record = copy.deepcopy(RECORD)
    holder, name = at(record, pointer)
    before = holder[name]
    holder[name] = change(before)
    return None if holder[name] == before else record


def _outcome(record):
    return adjudicate(json.dumps(record).encode()).outcome


def _resealed(record):
    try:
        return record | {"witness_sha256": witness_v2(record)}
    except Exception:  # noqa: BLE001  # a number that has no canonical form cannot be sealed
        return record


def test_the_record_itself_is_supported():
    assert _outcome(RECORD) is Outcome.SUPPORTED


@pytest.mark.parametrize("factor", [1.000001, 2])
def test_every_number_scaled(factor):
    for pointer in BOUND:

        def scale(value):
            return round(value * factor) + (factor < 2) if isinstance(value, int) else value * factor

        record = _changed(pointer, scale)
        if record is not None:
            assert _outcome(_resealed(record)) is not Outcome.SUPPORTED, pointer


@given(st.sampled_from(BOUND), st.floats(-1e9, 1e9) | st.integers(-(2**53), 2**53))
@settings(max_examples=150, deadline=None)
def test_any_number_in_its_place(pointer, value):
    holder, name = at(RECORD, pointer)
    before = holder[name]
    record = _changed(pointer, lambda _: value)
    # Within the declared tolerance two figures are one.
    if record is None or abs(value - before) <= 1e-8 * abs(before):
        return
    assert _outcome(_resealed(record)) is not Outcome.SUPPORTED


@given(st.sampled_from(POINTERS), st.floats(0.5, 2) | st.just(0))
@settings(max_examples=60, deadline=None)
def test_without_a_new_witness_no_number_is_free(pointer, factor):
    record = _changed(
        pointer, lambda value: value * factor if isinstance(value, float) else round(value * factor)
    )
    if record is not None:
        assert _outcome(record) is not Outcome.SUPPORTED


def test_every_exception_is_one_and_is_documented():
    page = LIMITS.read_text()
    assert [pattern for pattern in FREE if f"`{pattern}`" not in page] == []
    matched = {pattern for pattern in FREE for pointer in POINTERS if _free(pattern, pointer)}
    assert set(FREE) - matched == {"/workload/trace/layer", "/workload/trace/head"}


def _free(pattern, pointer):
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[0-9]+"), pointer)


def test_an_exception_can_be_changed_unnoticed():
    # Otherwise it were no exception. The last null check and time, so that no summary or claim depends on them.
    for pointer in (
        "/measurements/null_checks/1/nmse",
        "/recipe/rotations/1/seed",
        "/workload/output_dimension",
        "/workload/synthetic/seed",
        "/workload/synthetic/outlier_stride",
        "/workload/synthetic/outlier_factor",
        "/workload/query_heads",
        "/protocol/warmup",
        "/protocol/repeats",
    ):
        record = _changed(pointer, lambda value: value * 2)
        assert _outcome(_resealed(record)) is Outcome.SUPPORTED, pointer
