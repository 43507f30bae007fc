"""Records of the producer before the adjudicator, and the specifications that they name."""

import dataclasses
import hashlib
import json
import shutil
import subprocess

import pytest

from kvint2eval import adjudicate, witness_v1
from producer.backend.cpu import NumpyBackend
from producer.errors import RecordError
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, PUBLISHED, SliceSpec
from producer.record.provenance import delegation, source_digest
from producer.record.reading import parse_record, read_record_file
from producer.record.side_file import build_trials, trials_text
from producer.record.v1 import build_record, computation_of, record_text
from tests.helpers import RECORDS, ROOT, published

SPEC = SliceSpec(seq_len=256, num_kv_heads=2, output_dim=16, seed=1)
PROTOCOL = dataclasses.replace(PAIRED, evaluation_queries=8, calibration_queries=8, num_rotations=2)
BACKEND = NumpyBackend(1)


@pytest.fixture(scope="module")
def result():
    return run_protocol(SPEC, PROTOCOL, BACKEND)


@pytest.fixture(scope="module")
def record(result):
    return build_record(result, BACKEND.runtime)


def test_a_cpu_record_is_delegated(record):
    verdict = adjudicate(record_text(record).encode())
    assert (verdict.outcome, verdict.reason) == ("delegate", "KVINT2_RUNTIME_DELEGATION_REQUIRED")


def test_but_for_the_runtime_the_record_is_supported(record):
    # Its runtime is all that keeps it from a verdict on its figures, so the later steps are looked at too.
    runtime = record.runtime.model_copy(update={"name": "cuda"})
    hardware = record.hardware.model_copy(update={"gpu": "some GPU", "gpu_memory_bytes": 1})
    claimed = record.model_copy(update={"runtime": runtime, "hardware": hardware})
    claimed = claimed.model_copy(update={"witness_sha256": witness_v1(claimed)})
    assert adjudicate(record_text(claimed).encode()).reason == "KVINT2_SUPPORTED"


def test_the_runtime_is_honest(record):
    assert record.runtime.name == "numpy"
    assert record.runtime.driver == "none"
    assert (record.hardware.gpu, record.hardware.gpu_memory_bytes) == ("", 0)
    assert record.evidence == "observed"
    assert record.artifact.sha256 == record.runtime.sha256 == source_digest()


def test_the_record_names_its_computation(record):
    assert computation_of(parse_record(record_text(record).encode())) == (SPEC, PROTOCOL)


def test_the_published_record_names_the_published_computation():
    assert computation_of(parse_record(published())) == (SliceSpec(), PUBLISHED)


def changed(place, name, value):
    members = json.loads(published())
    members[place][name] = value
    return parse_record(json.dumps(members).encode())


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("artifact", "id", "another"),
        ("artifact", "version", "1"),
        ("model", "id", "another"),
        ("model", "version", "seed-6260-v3"),
        ("model", "version", "seed-1-v2"),
        ("model", "version", "seed-6260-v2\n"),
    ],
)
def test_another_name_is_no_computation_that_is_known(place, name, value):
    with pytest.raises(RecordError, match="names no computation that is known here; allowed: artifact"):
        computation_of(changed(place, name, value))


@pytest.mark.parametrize(
    ("place", "name", "value", "message"),
    [
        ("hardware", "context_tokens", 10**9, "seq_len 1000000000 is not allowed"),
        ("metrics", "decode_trials", 1, "evaluation_queries 1 is not allowed"),
        ("metrics", "candidate_count", 0, "num_rotations -1 is not allowed"),
        ("hardware", "seed", 2**40, "seed 1099511627776 is not allowed"),
    ],
)
def test_a_computation_that_is_not_allowed_is_refused(place, name, value, message):
    with pytest.raises(RecordError, match=message):
        computation_of(changed(place, name, value))


@pytest.mark.parametrize(("name", "value"), [("method", "another"), ("bits", 3), ("objective", "")])
def test_another_recipe_is_not_computed(name, value):
    with pytest.raises(RecordError, match=f"/recipe/{name}: found {value!r}, allowed: "):
        computation_of(changed("recipe", name, value))


def test_malformed_bytes_are_refused_with_their_place():
    place = "duplicate-member at the record, line 33, column 16: found a second member 'seed', allowed: each"
    with pytest.raises(RecordError, match=place):
        parse_record((RECORDS / "unsupported" / "duplicate-member-plain.json").read_bytes())


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        read_record_file(str(tmp_path / "none.json"))


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_the_source_digest_is_that_of_the_documented_command():
    names = "-name '*.py' -o -name '*.cu' -o -name '*.cuh'"
    command = f"find producer {names} | LC_ALL=C sort | xargs sha256sum | sha256sum"
    made = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S602
    assert made.stdout.split()[0] == source_digest()


def test_the_side_file_holds_the_trials_and_names_its_record(result, record):
    text = record_text(record)
    digest = hashlib.sha256(text.encode()).hexdigest()
    trials = json.loads(trials_text(build_trials(result, {"os": "here"}, digest)))
    assert trials["layout"] == "kvint2eval-producer/trials-1"
    assert trials["record_sha256"] == digest
    for arm, row in zip(trials["arms"], record.metrics.candidates, strict=True):
        assert sum(arm["nmse"]) / len(arm["nmse"]) == pytest.approx(row.output_nmse_mean, rel=1e-12)
        assert arm["clip_ratio"] == row.clip_ratio
        assert arm["null_check_nmse"] <= 1e-9
        assert arm["clip_curve"]["ratios"] == trials["clip_grid"]["searched"]
    assert trials["arms"][0]["baseline_minus_arm"] is None
    both = {name: trials[name] for name in ("protocol", "slice")}
    compact = json.dumps(both, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(compact.encode()).hexdigest() == record.model.sha256
    assert trials["arms"][1]["baseline_minus_arm"]["resamples"] == 2000


@pytest.mark.parametrize("modeled", [False, True])
def test_delegations_are_typed(modeled):
    reason = "KVINT2_MODELED_NOT_OBSERVED" if modeled else "KVINT2_RUNTIME_DELEGATION_REQUIRED"
    assert dataclasses.astuple(delegation("why", modeled=modeled)) == ("delegate", reason, "why")
