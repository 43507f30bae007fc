"""Rederiving and auditing v2 records: the project's own run, and records with a lie in them."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest

from kvint2eval import adjudicate
from kvint2eval.contract.v2.canonical import witness_v2
from producer.backend.cpu import NumpyBackend
from producer.cli import main
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, SliceSpec
from producer.record.audit import audit_record
from producer.record.reading import parse_record
from producer.record.rederive_v2 import rederive_v2
from producer.record.v2_slice import build_record_v2

OWN = Path(__file__).resolve().parents[3] / "testdata/runs/paired.json"
SMALL = SliceSpec(seq_len=256, num_kv_heads=2, head_dim=32, output_dim=48, seed=5)
FEW = dataclasses.replace(
    PAIRED, calibration_queries=8, evaluation_queries=32, num_rotations=2, group_size=32
)
BACKEND = NumpyBackend(1)
RECORD = build_record_v2(run_protocol(SMALL, FEW, BACKEND, null_check=True, keeps_errors=True), BACKEND)


def _silent(done, total, what):
    pass


def _record(*changes):
    record = copy.deepcopy(RECORD)
    for change in changes:
        change(record)
    record["witness_sha256"] = witness_v2(record)
    return json.dumps(record).encode()


def _disagreements(*changes):
    done = rederive_v2(parse_record(_record(*changes)), BACKEND, _silent)
    return [each.field for each in done.rederived if not each.agrees]


def test_own_record_is_sound_but_for_cuda():
    verdict = adjudicate(OWN.read_bytes())
    assert verdict.finding.code == "environment-not-cuda"
    assert [claim.finding for claim in verdict.claims] == [None]


def test_own_record_comes_out_again():
    done = rederive_v2(parse_record(OWN.read_bytes()), NumpyBackend(), _silent)
    assert [each for each in done.rederived if not each.agrees] == []
    trials = json.loads(OWN.read_text())["protocol"]["trials"]
    fields = [each.field for each in done.rederived]
    assert sum(field.startswith("/measurements/arms/0/trials/") for field in fields) == 6 * trials + 1
    assert done.reported
    assert done.recomputed


def test_own_record_has_no_audit_findings():
    assert audit_record(parse_record(OWN.read_bytes()), NumpyBackend(), _silent) == []


def _consistent_lie(record):
    """Half the error in one trial of the selected arm, with every figure that follows from it."""
    trials = record["measurements"]["arms"][1]["trials"]
    for name in ("numerator", "key_part", "value_part", "cross_part"):
        trials[name][3] /= 2
    trials["nmse"][3] = trials["numerator"][3] / (trials["denominator"][3] + 1e-30)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (
            _consistent_lie,
            {
                f"/measurements/arms/1/trials/{name}/3"
                for name in ("nmse", "numerator", "key_part", "value_part")
            },
        ),
        (
            lambda record: record["measurements"]["null_checks"][1].update(nmse=0.5),
            {"/measurements/null_checks/1/nmse"},
        ),
        (
            lambda record: record["measurements"]["arms"][2]["calibration"]["query_nmse"][0].__setitem__(
                0, 9.0
            ),
            {"/measurements/arms/2/calibration/query_nmse/0/0"},
        ),
        (
            lambda record: record["recipe"]["rotations"][1].update(key_sha256="1" * 64),
            {"/recipe/rotations/1/key_sha256"},
        ),
        (lambda record: record["recipe"]["rotations"][2].update(seed=1), {"/recipe/rotations/2/seed"}),
        (lambda record: record["measurements"].update(selected="r0"), {"/measurements/selected"}),
        (
            lambda record: record["measurements"]["storage"].update(metadata_bytes=7),
            {"/measurements/storage/metadata_bytes"},
        ),
        (lambda record: record["measurements"]["arms"].pop(), {"/measurements/arms/2/rotation"}),
        (
            lambda record: record["measurements"]["arms"][0]["trials"]["nmse"].pop(),
            {"/measurements/arms/0/trials/nmse/31"},
        ),
    ],
    ids=[
        "trial",
        "null-check",
        "calibration",
        "digest",
        "rotation-seed",
        "selected",
        "storage",
        "arm",
        "column",
    ],
)
def test_lie_is_found_where_it_stands(change, fields):
    assert fields <= set(_disagreements(change))


def test_figures_that_the_record_cannot_contradict_are_found_by_running():
    # docs/reference/limits.md: each of them leaves the record sound.
    for name in ("seed", "outlier_stride", "outlier_factor"):

        def change(record, name=name):
            record["workload"]["synthetic"][name] = record["workload"]["synthetic"][name] * 2

        assert adjudicate(_record(change)).finding.code == "environment-not-cuda"
        assert _disagreements(change)


# The command


def test_command_says_what_rests_on_what(capsys):
    assert main(["rederive", str(OWN)]) == 0
    shown = capsys.readouterr().out
    assert "deterministic fields agree" in shown
    assert "only reported: decode times" in shown
    assert "recomputed by kvint2eval adjudicate: bits per element" in shown


def test_command_names_what_disagrees(tmp_path, capsys):
    path = tmp_path / "record.json"
    path.write_bytes(_record(_consistent_lie))
    assert main(["rederive", str(path)]) == 1
    assert "/measurements/arms/1/trials/numerator/3" in capsys.readouterr().out
    assert main(["rederive", str(path), "--format", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert not shown["agrees"]
    assert shown["reported"]


def test_audit_command_takes_v2(capsys):
    assert main(["audit", str(OWN)]) == 0
    assert "no findings" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["rederive", "audit"])
def test_record_without_a_run_is_delegated(tmp_path, capsys, command):
    path = tmp_path / "record.json"
    path.write_bytes(_record(lambda record: record.update(measurements=None, claims=[])))
    assert main([command, str(path)]) == 3
    assert "KVINT2_RUNTIME_DELEGATION_REQUIRED" in capsys.readouterr().out
