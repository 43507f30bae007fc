"""Rederiving: every deterministic field is compared, and a change in any one of them is seen."""

import dataclasses
import json

import pytest

from kvint2eval import witness_v1
from producer.backend.cpu import NumpyBackend
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, PUBLISHED, SliceSpec
from producer.record.reading import parse_record
from producer.record.rederive_v1 import compare_records, rederive
from producer.record.v1 import build_record

BACKEND = NumpyBackend(1)
SPEC = SliceSpec(seq_len=128, num_kv_heads=2, head_dim=64, output_dim=16, seed=1)
SMALL = dataclasses.replace(
    PAIRED, evaluation_queries=4, calibration_queries=8, num_rotations=2, group_size=64
)


def silent(*_):
    pass


def test_the_published_record_is_derived_again(published_fields):
    comparisons = published_fields
    assert len(comparisons) == 4 + 9 * 5 + 4 + 1
    assert [each.field for each in comparisons if not each.agrees] == []


@pytest.fixture(scope="module")
def record():
    return build_record(run_protocol(SPEC, SMALL, BACKEND), BACKEND.runtime)


@pytest.mark.parametrize("protocol", [SMALL, dataclasses.replace(PUBLISHED, group_size=64)])
def test_an_own_record_is_derived_again_to_the_last_bit(protocol):
    made = build_record(run_protocol(SPEC, protocol, BACKEND), BACKEND.runtime)
    comparisons = rederive(made, NumpyBackend(2), silent)
    assert all(each.agrees for each in comparisons)
    assert all(each.difference in {0.0, None} for each in comparisons)


def altered(record, pointer, value):
    members = record.model_dump(mode="json")
    *path, last = [int(part) if part.isdigit() else part for part in pointer.split("/")[1:]]
    place = members
    for part in path:
        place = place[part]
    place[last] = value(place[last]) if callable(value) else value
    changed = parse_record(json.dumps(members).encode())
    return changed.model_copy(update={"witness_sha256": witness_v1(changed)})


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/metrics/candidates/1/output_nmse_mean", lambda old: old * 1.0001),
        ("/metrics/candidates/2/output_nmse_stddev", lambda old: old * 0.9999),
        ("/metrics/candidates/0/clip_ratio", lambda old: old + 0.001),
        ("/metrics/candidates/0/task_accuracy_mean", lambda old: old - 0.25),
        ("/metrics/candidates/1/task_accuracy_stddev", lambda old: old + 1e-6),
        ("/metrics/selected_rotation", lambda old: 3 - old),
        ("/metrics/cache_bytes", lambda old: old + 1),
        ("/metrics/baseline_output_nmse", lambda old: old * 1.0001),
        ("/metrics/candidate_output_nmse", lambda old: old * 1.0001),
        ("/metrics/baseline_task_accuracy", lambda old: old + 1e-9),
        ("/metrics/candidate_task_accuracy", lambda old: old + 1e-9),
        ("/model/sha256", "0" * 64),
    ],
)
def test_a_changed_field_disagrees_and_no_other(record, pointer, value):
    changed = compare_records(altered(record, pointer, value), record)
    assert [each.field for each in changed if not each.agrees] == [pointer]


def test_a_change_within_the_tolerance_agrees(record):
    changed = altered(record, "/metrics/candidates/1/output_nmse_mean", lambda old: old * (1 + 9e-6))
    assert all(each.agrees for each in compare_records(changed, record))


@pytest.mark.parametrize(
    "pointer",
    ["/metrics/candidates/1/calibration_milliseconds", "/metrics/candidates/1/decode_microseconds_mean"],
)
def test_times_are_not_compared(record, pointer):
    changed = altered(record, pointer, lambda old: old * 7)
    assert all(each.agrees for each in compare_records(changed, record))


def test_a_wrong_witness_disagrees(record):
    changed = record.model_copy(update={"witness_sha256": "0" * 64})
    assert [each.field for each in compare_records(changed, record) if not each.agrees] == ["/witness_sha256"]


def test_a_missing_row_disagrees(record):
    members = record.model_dump(mode="json")
    del members["metrics"]["candidates"][1]
    changed = parse_record(json.dumps(members).encode())
    wrong = [each for each in compare_records(changed, record) if not each.agrees]
    assert {each.field.rsplit("/", 1)[0] for each in wrong} == {
        "/metrics/candidates/1",
        "",
    }
    assert all(each.published is None for each in wrong if each.field.startswith("/metrics"))
