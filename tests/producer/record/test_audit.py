"""The audit: each property broken alone gives its own finding, and a sound computation gives none."""

import dataclasses
import json

import pytest

from producer.backend.cpu import NumpyBackend
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, PUBLISHED, SliceSpec
from producer.record.audit import CODES, Claims, audit, audit_record, claims_of
from producer.record.reading import parse_record
from producer.record.v1 import build_record
from tests.helpers import published

SPEC = SliceSpec(seq_len=512, num_kv_heads=2, head_dim=64, output_dim=32, seed=1)
SOUND = dataclasses.replace(
    PAIRED, group_size=64, evaluation_queries=16, num_rotations=4, bootstrap_resamples=0
)
BACKEND = NumpyBackend(1)


def silent(*_):
    pass


def findings(spec=SPEC, claims=claims_of, **broken):
    protocol = dataclasses.replace(SOUND, **broken)
    return {each.code: each for each in audit(spec, protocol, BACKEND, progress=silent, claims=claims)}


def test_a_sound_computation_has_no_finding():
    assert findings() == {}


@pytest.mark.parametrize(
    ("code", "broken"),
    [
        ("AUDIT_WO_NOT_INVERTED", {"output_rotation": "signs-last"}),
        ("AUDIT_DUPLICATE_ROTATIONS", {"sign_source": "index-parity"}),
        ("AUDIT_SELECTION_READS_EVALUATION", {"selection": "evaluation"}),
        ("AUDIT_UNPAIRED_QUERIES", {"shared_evaluation": False}),
        ("AUDIT_CLIP_AT_GRID_EDGE", {"clips": PUBLISHED.clips}),
        ("AUDIT_ZERO_PASSES_QUALITY", {"quality_threshold": 10.0}),
    ],
)
def test_a_property_broken_alone_gives_its_finding_alone(code, broken):
    found = findings(**broken)
    assert set(found) == {code}
    assert found[code].figures


def test_a_winner_that_loses_to_zero_is_found_alone():
    # On this slice the calibration queries lead to a candidate whose evaluation mean is above 1.
    found = findings(dataclasses.replace(SPEC, seed=2))
    assert set(found) == {"AUDIT_LOSES_TO_ZERO"}
    figures = found["AUDIT_LOSES_TO_ZERO"].figures
    assert figures["selected_nmse"] >= figures["zero_nmse"] == 1


def test_a_claimed_selection_that_only_the_evaluation_explains_is_found():
    result = run_protocol(SPEC, SOUND, BACKEND)
    other = next(arm.index for arm in result.arms[1:] if arm.index != result.selected)

    def claims(run):
        return Claims(other, claims_of(run).clip_ratios)

    found = findings(claims=claims)["AUDIT_SELECTION_READS_EVALUATION"]
    assert found.figures["selected"] == other
    assert found.figures["calibration_best"] == result.selected
    assert "is not the best of the calibration" in found.message


def test_the_published_record_has_all_faults_with_the_numbers_of_the_page(published_audit):
    found = {each.code: each.figures for each in published_audit}
    assert list(found) == list(CODES)
    assert found["AUDIT_WO_NOT_INVERTED"]["null_nmse"] == pytest.approx(1.839, abs=5e-4)
    assert found["AUDIT_WO_NOT_INVERTED"]["null_nmse_inverse"] <= 1e-11
    assert found["AUDIT_DUPLICATE_ROTATIONS"]["rotations"] == 8
    assert found["AUDIT_DUPLICATE_ROTATIONS"]["distinct"] == 1
    assert found["AUDIT_DUPLICATE_ROTATIONS"]["objective_spread"] <= 1e-7
    assert found["AUDIT_SELECTION_READS_EVALUATION"]["selected"] == 7
    assert found["AUDIT_UNPAIRED_QUERIES"]["query_sets"] == 9
    edge = found["AUDIT_CLIP_AT_GRID_EDGE"]
    assert (edge["rotation"], edge["clip_ratio"]) == (0, 0.8)
    assert edge["best_objective"] < edge["next_objective"] < edge["objective"]
    assert found["AUDIT_LOSES_TO_ZERO"]["selected_nmse"] == pytest.approx(1.95926247, rel=1e-5)
    assert found["AUDIT_LOSES_TO_ZERO"]["baseline_nmse"] == pytest.approx(52.3537316, rel=1e-5)
    assert found["AUDIT_ZERO_PASSES_QUALITY"]["threshold"] == 10


def test_a_record_of_the_sound_protocol_has_no_finding():
    protocol = dataclasses.replace(SOUND, bootstrap_resamples=PAIRED.bootstrap_resamples)
    record = build_record(run_protocol(SPEC, protocol, BACKEND), BACKEND.runtime)
    assert audit_record(record, BACKEND, silent) == []


def test_a_record_that_selects_no_candidate_is_still_audited():
    members = json.loads(published())
    members["metrics"]["selected_rotation"] = 99
    record = parse_record(json.dumps(members).encode())
    assert "AUDIT_WO_NOT_INVERTED" in {each.code for each in audit_record(record, BACKEND, silent)}


def test_every_code_has_a_meaning():
    assert all(code.startswith("AUDIT_") and meaning.endswith(".") for code, meaning in CODES.items())
