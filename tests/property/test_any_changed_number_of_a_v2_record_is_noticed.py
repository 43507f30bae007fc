"""Law: change any one number of a supported v2 record, beyond times, and it is not supported any more.

Also with the witness made anew. The exceptions are the figures that the record's own trials cannot contradict:
docs/reference/limits.md lists them, and `FREE` is that list.
"""

import copy
import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.codes import Outcome
from kvint2eval.contract.v2.canonical import witness_v2
from producer.experiment.trace.arm_protocol import TraceProtocol
from producer.experiment.trace.compare_arms import compare_arms
from producer.record.v2_trace import build_trace_record
from tests.producer import made_traces as made
from tests.tools.regen.dialects_v2 import under
from tests.tools.regen.records_v2 import at
from tests.tools.regen.vector_v2 import claim, sealed, vector

LIMITS = Path(__file__).resolve().parents[2] / "docs/reference/limits.md"

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
    record["claims"] = [claim(record), claim(record, "decode_us", level=0.9)]
    return sealed(record)


def _of_trace():
    """A record of a made trace, as it would be had it been observed on CUDA."""
    protocol = TraceProtocol(
        arms=("identity", "quarot", "oscar"),
        dialect="affine-midpoint",
        clip_grid=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4),
        center_keys=True,
        sink=16,
        recent=64,
    )
    with tempfile.TemporaryDirectory() as folder:
        traces = (
            made.memory_trace(Path(folder, "calibration"), 100),
            made.memory_trace(Path(folder, "evaluation"), 200, sequences=8),
        )
        (found,) = compare_arms(protocol, *traces, [1], processes=1, progress=lambda *_: None)
        record = build_trace_record(protocol, found, *traces)
    # NumPy ran it; a kernel and a GPU are what step 17 asks for beyond that.
    record["environment"] |= {"runtime": "cuda", "gpu": "none: a test", "gpu_memory_bytes": 1}
    record["artifacts"].append(record["artifacts"][1] | {"role": "kernel"})
    return sealed(record)


RECORD = _synthetic()
OTHERS = {name: sealed(under(name)) for name in ("kivi", "oscar-flush", "oscar-transformers")}
OTHERS["trace"] = _of_trace()
POINTERS = sorted(_numbers(RECORD))


def _bound(record):
    return [pointer for pointer in sorted(_numbers(record)) if not _FREE.fullmatch(pointer)]


BOUND = _bound(RECORD)


def _changed(pointer, change, original=RECORD):
    record = copy.deepcopy(original)
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
    assert {_outcome(record) for record in OTHERS.values()} == {Outcome.SUPPORTED}


def _scaled_and_supported(original, factor):
    """Pointers of bound numbers that can be scaled unnoticed."""

    def scale(value):
        return round(value * factor) + (factor < 2) if isinstance(value, int) else value * factor

    changed = ((pointer, _changed(pointer, scale, original)) for pointer in _bound(original))
    return [
        pointer
        for pointer, record in changed
        if record is not None and _outcome(_resealed(record)) is Outcome.SUPPORTED
    ]


@pytest.mark.parametrize("factor", [1.000001, 2])
def test_every_number_scaled(factor):
    assert _scaled_and_supported(RECORD, factor) == []


@pytest.mark.parametrize("name", OTHERS)
def test_every_number_scaled_of_other_dialects_and_of_a_trace(name):
    assert _scaled_and_supported(OTHERS[name], 1.000001) == []


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
