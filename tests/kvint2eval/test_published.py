"""The published records of the reference folder, and the published digests."""

import json

import pytest

from kvint2eval import Record, adjudicate, canonical_v1, read_pins, witness_v1
from kvint2eval.files.digest import sha256_hex
from tests.helpers import SHARED, TESTDATA, published, slow_canonical

PUBLISHED = SHARED / "published"
OBSERVED_WITNESS = "ee901456e1ef8ccf787b90d42a2871693bb21bedf8a9a421ebec0b5ba0f1decf"
DRIFTED_WITNESS = "7416fe5688ea6a205ce0612589b6d134217540488f770985c1b1817864f29220"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "without_pins", "with_pins"),
    [
        ("l4-observed", "KVINT2_SUPPORTED", "KVINT2_SUPPORTED"),
        ("l4-observed-drifted-pin", "KVINT2_SUPPORTED", "KVINT2_PIN_MISMATCH"),
        ("modeled-delegate", "KVINT2_MODELED_NOT_OBSERVED", "KVINT2_MODELED_NOT_OBSERVED"),
        ("unsupported", "KVINT2_UNSUPPORTED_METHOD", "KVINT2_UNSUPPORTED_METHOD"),
    ],
)
def test_published_file_keeps_its_verdict(name, without_pins, with_pins):
    data = (PUBLISHED / f"{name}.json").read_bytes()
    assert adjudicate(data).reason == without_pins
    assert adjudicate(data, pins=read_pins(TESTDATA / "pins" / "met.toml")).reason == with_pins


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "digest"), [("l4-observed", OBSERVED_WITNESS), ("l4-observed-drifted-pin", DRIFTED_WITNESS)]
)
def test_published_witness_is_reproduced(name, digest):
    data = (PUBLISHED / f"{name}.json").read_bytes()
    assert adjudicate(data).witness_sha256 == digest
    record = Record.model_validate_json(data)
    assert witness_v1(record) == digest == record.witness_sha256
    assert sha256_hex(slow_canonical(json.loads(data))) == digest


@pytest.mark.shared
def test_record_rebuilt_from_its_figures_is_the_published_one():
    rebuilt = Record.model_validate_json(published())
    assert rebuilt == Record.model_validate_json((PUBLISHED / "l4-observed.json").read_bytes())


def test_output_aware_int2_kv_rotation_witness():
    """The page's named witness: verdict, completeness, tuned baseline, variance, provenance."""
    verdict = adjudicate(published())
    assert (verdict.outcome, verdict.reason) == ("supported", "KVINT2_SUPPORTED")
    assert verdict.witness_sha256 == OBSERVED_WITNESS
    record = verdict.record
    # Completeness: nine candidates, ten fresh queries, the published envelope.
    metrics = record.metrics
    assert (metrics.candidate_count, metrics.decode_trials, len(metrics.candidates)) == (9, 10, 9)
    assert (record.hardware.context_tokens, record.hardware.kv_heads, record.hardware.head_dimension) == (
        4096,
        4,
        128,
    )
    assert record.hardware.seed == 6260
    assert metrics.cache_bytes == 1_048_576
    # Tuned baseline: it was searched over the same clips, and the page prints its row.
    baseline, chosen = metrics.candidates[0], metrics.candidates[metrics.selected_rotation]
    assert (baseline.clip_ratio, chosen.clip_ratio) == (0.80, 1.00)
    assert (metrics.baseline_output_nmse, metrics.candidate_output_nmse) == (52.3537316, 1.95926247)
    assert f"{baseline.output_nmse_mean:.6f} {chosen.output_nmse_mean:.6f}" == "52.353732 1.959262"
    # Variance: every row has its deviations, and the page prints two of them.
    assert all(
        row.output_nmse_stddev > 0 and row.decode_microseconds_stddev > 0 for row in metrics.candidates
    )
    assert f"{baseline.output_nmse_stddev:.6f} {chosen.output_nmse_stddev:.6f}" == "51.571284 0.431511"
    # Provenance: producer, paper, compiled program, and the machine.
    assert record.artifact.sha256 == record.model.sha256
    assert record.artifact.sha256 == "b6c5b443791b6f9cc46dafcd2adbe9ea77d2e316c260ae1146b628beb05e5520"
    assert record.runtime.sha256 == "2a2afb63578807ac7ad798a864a5084818a2039c1c8a4caa83bf2dbe54716f2c"
    assert (record.recipe_artifact.id, record.recipe_artifact.version) == ("arxiv:2608.02691", "v2")
    assert (record.hardware.gpu, record.runtime.version) == ("NVIDIA L4", "12.9")
    assert canonical_v1(record) == verdict.canonical
