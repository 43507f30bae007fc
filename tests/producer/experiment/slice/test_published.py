"""The published run: every figure but the times, and the numbers of docs/results/published-run.md."""

import csv
import dataclasses
import json

import pytest

from producer.backend.cpu import NumpyBackend
from producer.experiment.slice.protocol import ProtocolRun, run_protocol
from producer.experiment.slice.spec import PUBLISHED, SliceSpec
from tests.helpers import SHARED, published
from tests.producer import reference

ROWS = json.loads(published())["metrics"]["candidates"]
CALIBRATION = {
    0: [8.80031528, 8.04982777, 7.24826845, 6.4770923, 5.77103382],
    1: [1.63839755, 2.04426526, 1.9632943, 2.00137872, 1.99540153],
}


@pytest.fixture(scope="module")
def result():
    return run_protocol(SliceSpec(), PUBLISHED, NumpyBackend(1))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"rotation {row['rotation']}")
def test_every_row_of_the_published_record(result, row):
    arm = result.arms[row["rotation"]]
    assert arm.clip_ratio == row["clip_ratio"]
    assert arm.nmse_summary.mean == pytest.approx(row["output_nmse_mean"], rel=1e-5)
    assert arm.nmse_summary.stddev == pytest.approx(row["output_nmse_stddev"], rel=1e-5)
    quality = result.quality(arm)
    assert quality.mean == row["task_accuracy_mean"]
    assert quality.stddev == pytest.approx(row["task_accuracy_stddev"], rel=1e-12)


def test_the_selected_rotation_and_the_bytes(result):
    metrics = json.loads(published())["metrics"]
    assert result.selected == metrics["selected_rotation"] == 7
    assert result.arms[7].code_bytes == metrics["cache_bytes"] == 1_048_576


@pytest.mark.shared
def test_the_table_beside_the_checkout_says_the_same():
    with (SHARED / "published" / "candidates.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [{name: float(value) for name, value in row.items()} for row in table] == ROWS


# The single calibration query carries the published program's own float32 sums, 1.6e-5 off the exact ones.
@pytest.mark.parametrize("index", CALIBRATION)
def test_the_calibration_objectives(result, index):
    assert result.arms[index].curve.objectives == pytest.approx(CALIBRATION[index], rel=3e-5)


def test_all_eight_candidates_have_one_objective(result):
    objectives = [arm.curve.best_objective for arm in result.arms[1:]]
    assert max(objectives) <= min(objectives) * (1 + 1e-7)


def test_the_null_check_fails_with_the_published_order_and_holds_with_the_inverse():
    protocol = dataclasses.replace(PUBLISHED, num_rotations=1, evaluation_queries=2)
    run = ProtocolRun(SliceSpec(), protocol, NumpyBackend(1), 2**30)
    assert run.null_nmse(run.arms[1], "signs-last") == pytest.approx(1.839, abs=5e-4)
    assert run.null_nmse(run.arms[1], "inverse") <= 1e-11


def test_with_the_inverse_order_the_objective_is_a_twentieth():
    protocol = dataclasses.replace(
        PUBLISHED, num_rotations=1, evaluation_queries=2, output_rotation="inverse"
    )
    arm = run_protocol(SliceSpec(), protocol, NumpyBackend(1)).arms[1]
    assert arm.clip_ratio == 0.8
    assert arm.curve.best_objective == pytest.approx(0.0956, abs=5e-5)


def test_a_small_slice_against_a_second_implementation():
    spec = SliceSpec(seq_len=80, num_kv_heads=2, head_dim=64, output_dim=24, seed=77)
    protocol = dataclasses.replace(PUBLISHED, group_size=64, evaluation_queries=3, num_rotations=3)
    rows = reference.published(80, 2, 64, 24, 77, rotations=3, trials=3)
    found = run_protocol(spec, protocol, NumpyBackend(2))
    for arm, (clip, curve, trials) in zip(found.arms, rows, strict=True):
        assert arm.clip_ratio == clip
        assert arm.curve.objectives == pytest.approx(curve, rel=1e-4)
        assert arm.nmse == pytest.approx(trials, rel=1e-4)
