"""Both protocols through the kernels give what they give in NumPy, and the published record's figures."""

import csv
import dataclasses
import json

import pytest

from producer.backend.cpu import NumpyBackend
from producer.backend.cuda.compile import KERNEL_NAME
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, PUBLISHED, SliceSpec
from producer.record.v1 import build_record, witness_of
from tests.helpers import SHARED, published

SMALL = SliceSpec(seq_len=96, num_kv_heads=2, output_dim=16, seed=11)
SHORT = dataclasses.replace(
    PAIRED, calibration_queries=3, evaluation_queries=4, num_rotations=2, bootstrap_resamples=50
)


@pytest.mark.parametrize("protocol", [PUBLISHED, SHORT], ids=lambda protocol: protocol.name)
def test_a_run_is_that_of_numpy_but_for_times(kernel_backend, protocol):
    found = run_protocol(SMALL, protocol, kernel_backend)
    wanted = run_protocol(SMALL, protocol, NumpyBackend(1))
    assert found.selected == wanted.selected
    assert found.grid == wanted.grid
    for arm, other in zip(found.arms, wanted.arms, strict=True):
        assert arm.clip_ratio == other.clip_ratio
        assert arm.nmse_summary.mean == pytest.approx(other.nmse_summary.mean, rel=1e-5)
        # A single trial of the published protocol can rest on scores above 100, where float32 itself allows this much.
        assert arm.nmse == pytest.approx(other.nmse, rel=5e-5)
        assert arm.queries_sha256 == other.queries_sha256
        assert (arm.code_bytes, arm.scale_bytes) == (other.code_bytes, other.scale_bytes)
        assert (arm.null_nmse is None) == (other.null_nmse is None)
        assert len(arm.decode_us) == len(arm.host_decode_us) == protocol.evaluation_queries


def test_a_run_repeats_itself_bit_for_bit(kernel_backend):
    runs = [run_protocol(SMALL, SHORT, kernel_backend) for _ in range(2)]
    for arm, other in zip(runs[0].arms, runs[1].arms, strict=True):
        assert arm.nmse == other.nmse
        assert arm.curve == other.curve


@pytest.mark.slow  # a minute on the shim
def test_the_nine_published_rows(kernel_backend):
    result = run_protocol(SliceSpec(), PUBLISHED, kernel_backend)
    metrics = json.loads(published())["metrics"]
    for arm, row in zip(result.arms, metrics["candidates"], strict=True):
        assert arm.clip_ratio == row["clip_ratio"]
        assert arm.nmse_summary.mean == pytest.approx(row["output_nmse_mean"], rel=1e-5)
        assert arm.nmse_summary.stddev == pytest.approx(row["output_nmse_stddev"], rel=1e-5)
        assert result.quality(arm).mean == row["task_accuracy_mean"]
    assert result.selected == metrics["selected_rotation"]
    assert result.arms[result.selected].code_bytes == metrics["cache_bytes"]


@pytest.mark.shared
def test_the_published_rows_are_those_of_the_table():
    with (SHARED / "published" / "candidates.csv").open() as stream:
        table = list(csv.DictReader(stream))
    rows = json.loads(published())["metrics"]["candidates"]
    assert [float(row["output_nmse_mean"]) for row in table] == [row["output_nmse_mean"] for row in rows]


def test_a_record_names_the_program_that_ran(kernel_backend):
    result = run_protocol(SMALL, SHORT, kernel_backend)
    record = build_record(result, kernel_backend.runtime)
    assert record.runtime.kernel == KERNEL_NAME
    assert record.runtime.sha256 == kernel_backend.runtime.sha256 != record.artifact.sha256
    assert record.witness_sha256 == witness_of(record)
    described = kernel_backend.describe()
    assert described["decode_repeats"] >= 1
    json.dumps(described, allow_nan=False)
    if record.runtime.name == "cuda":
        assert described["cubin_sha256"] == record.runtime.sha256
        assert record.hardware.gpu == described["gpu"]
