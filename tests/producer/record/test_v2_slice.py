"""The producer's v2 records: split errors, intervals, fingerprint, digests, and what the adjudicator says of them."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.contract.v2.bootstrap import index_bytes
from kvint2eval.contract.v2.bootstrap import paired_interval as adjudicated_interval
from kvint2eval.contract.v2.registry import DIALECTS
from producer.backend.cpu import NumpyBackend
from producer.cli import main
from producer.errors import RecordError, SpecError
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, PUBLISHED, SliceSpec
from producer.numerics.contract_bootstrap import index_stream, paired_interval
from producer.numerics.nmse import split_errors
from producer.quantize import get_dialect
from producer.quantize.fingerprint import fingerprint, golden_inputs
from producer.record.reading import parse_record
from producer.record.v2 import record_v2_text
from producer.record.v2_slice import build_record_v2, computation_of_v2, require_v2
from producer.transform import Identity, SignedHadamard
from producer.transform.digest import rotation_digest
from tests.tools.regen import fingerprint as second

SMALL = SliceSpec(seq_len=256, num_kv_heads=2, head_dim=32, output_dim=48, seed=5)
FEW = dataclasses.replace(PAIRED, calibration_queries=3, evaluation_queries=8, num_rotations=2, group_size=16)


@pytest.fixture(scope="module")
def small():
    backend = NumpyBackend(1)
    result = run_protocol(SMALL, FEW, backend, null_check=True, keeps_errors=True)
    return result, backend, build_record_v2(result, backend)


# Parts


def test_fingerprint_is_the_registered_one_and_that_of_plain_python():
    assert (
        fingerprint(get_dialect("symmetric-absmax-clip"))
        == DIALECTS["symmetric-absmax-clip"]["fingerprint_sha256"]
        == second.fingerprint()
    )


def test_golden_inputs_are_those_of_plain_python():
    assert golden_inputs().tolist() == list(second.golden_rows())


@pytest.mark.parametrize("trials", [1, 2, 7, 64, 100, 129, 256])
def test_index_stream_is_the_adjudicators(trials):
    draws = [byte % trials for byte in index_bytes(9, trials, 5000)]
    assert index_stream(9, trials, 5000).tolist() == draws


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80),
    st.sampled_from([0.9, 0.95, 0.99]),
    st.integers(0, 2**53 - 1),
)
def test_interval_is_the_adjudicators(values, level, seed):
    mine = paired_interval(values, [0.0] * len(values), level=level, resamples=200, seed=seed)
    theirs = adjudicated_interval(values, level=level, resamples=200, seed=seed)
    # The adjudicator's declared tolerance is 1e-9 of the largest difference.
    assert mine == pytest.approx(theirs, rel=0, abs=1e-11 * max(map(abs, values)))


@pytest.mark.parametrize(("baseline", "candidate"), [([], []), ([1.0], []), ([0.0] * 257, [0.0] * 257)])
def test_interval_of_no_pairs_is_refused(baseline, candidate):
    with pytest.raises(SpecError):
        paired_interval(baseline, candidate, level=0.95, resamples=10, seed=1)


def test_split_of_known_errors():
    # y = (3, 4), e_K = (1, 0), e_V = (1, 2): 8 = 1 + 5 + 2.
    errors = split_errors(
        np.array([[5, 6]], np.float32), np.array([[4, 4]], np.float32), np.array([[3, 4]], np.float32)
    )
    assert (errors.numerator, errors.denominator) == ([8.0], [25.0])
    assert (errors.key_part, errors.value_part, errors.cross_part) == ([1.0], [5.0], [2.0])
    assert errors.nmse == [8 / 25]


@given(st.integers(0, 2**32 - 1))
def test_split_adds_up_whatever_lies_between(seed):
    draw = np.random.default_rng(seed)
    whole, keys, plain = (
        draw.normal(size=(4, 16)).astype(np.float32) * 10.0 ** draw.integers(-3, 4) for _ in "123"
    )
    errors = split_errors(whole.astype(np.float32), keys.astype(np.float32), plain.astype(np.float32))
    for numerator, *parts in zip(
        errors.numerator, errors.key_part, errors.value_part, errors.cross_part, strict=True
    ):
        assert abs(math.fsum(parts) - numerator) <= 1e-13 * (parts[0] + parts[1])


def test_digest_ignores_the_sign_and_nothing_else():
    signs = np.where(np.arange(32) % 3, 1, -1).astype(np.float32)
    one, negative = SignedHadamard(signs), SignedHadamard(-signs)
    other = SignedHadamard(np.where(np.arange(32) % 5, 1, -1).astype(np.float32))
    assert rotation_digest(one) == rotation_digest(negative) != rotation_digest(other)
    assert len({rotation_digest(each) for each in (one, other, Identity(32), Identity(64))}) == 4


def test_keys_alone_quantized_lie_between_nothing_and_all():
    backend = NumpyBackend(1)
    result = run_protocol(SMALL, FEW, backend, keeps_errors=True)
    for arm in result.arms:
        assert min(arm.errors.key_part) > 0
        assert min(arm.errors.value_part) > 0
        # The NMSE of the backend is that of the sums here up to their order.
        assert arm.errors.nmse == pytest.approx(arm.nmse, rel=1e-12)


def test_backend_that_cannot_split_gets_the_same_split():
    class Bare:
        """What a backend has to have, and no more."""

        def __init__(self):
            self._inner = NumpyBackend(1)

        def __getattr__(self, name):
            if name == "attend_packed_keys":
                raise AttributeError(name)
            return getattr(self._inner, name)

    whole = run_protocol(SMALL, FEW, NumpyBackend(1), keeps_errors=True)
    bare = run_protocol(SMALL, FEW, Bare(), keeps_errors=True)
    assert [arm.errors for arm in bare.arms] == [arm.errors for arm in whole.arms]


# Whole records


def test_record_of_a_run_is_sound_and_delegated(small):
    verdict = adjudicate(record_v2_text(small[2]).encode())
    assert (verdict.outcome, verdict.finding.code) == ("delegate", "environment-not-cuda")
    assert [claim.finding for claim in verdict.claims] == [None]
    assert verdict.basis is not None


def test_record_names_its_computation(small):
    record = parse_record(record_v2_text(small[2]).encode())
    assert computation_of_v2(record) == (SMALL, FEW)


def test_stored_bytes_are_counted_from_the_arrays(small):
    storage = small[2]["measurements"]["storage"]
    rows = 2 * 256 * 2
    assert (storage["codes_bytes"], storage["metadata_bytes"]) == (rows * 32 // 4, rows * 2 * 4)
    # 2 bits and one 32-bit scale a group of 16.
    assert storage["bits_per_element"] == 2 + 32 / 16


def test_published_computation_cannot_be_a_sound_record():
    backend = NumpyBackend(1)
    spec = dataclasses.replace(SMALL, seq_len=128)
    protocol = dataclasses.replace(PUBLISHED, num_rotations=2, group_size=32)
    result = run_protocol(spec, protocol, backend, null_check=True, keeps_errors=True)
    record = build_record_v2(result, backend)
    verdict = adjudicate(record_v2_text(record).encode())
    assert (verdict.outcome, verdict.finding.code) == ("unsupported", "rotations-equal")


@pytest.mark.parametrize("kept", [{"null_check": False, "keeps_errors": True}, {"null_check": True}])
def test_run_that_kept_too_little_makes_no_record(kept):
    backend = NumpyBackend(1)
    result = run_protocol(SMALL, FEW, backend, **kept)
    with pytest.raises(SpecError, match="kept no errors"):
        build_record_v2(result, backend)


def test_too_many_trials_for_a_record_are_refused():
    with pytest.raises(SpecError, match="at most 256"):
        require_v2(dataclasses.replace(PAIRED, evaluation_queries=257))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("workload", "synthetic", "generator"), "another", "/workload/synthetic/generator: found 'another'"),
        (("workload", "synthetic"), None, "/workload/synthetic/generator: found None"),
        (("recipe", "dialect"), None, "/recipe/dialect/id: found None"),
        (("protocol", "name"), "own", "/protocol/name: found 'own', allowed: 'published' or 'paired'"),
        (("workload", "query_heads"), 8, "/workload/query_heads: found 8, allowed: 2"),
        (("recipe", "sink_tokens"), 64, "/recipe/sink_tokens: found 64"),
        (("protocol", "trials"), None, "leaves open what was run"),
        (("workload", "head_dimension"), 30, "head_dim 30 is not allowed"),
    ],
)
def test_record_of_another_computation_is_refused(small, path, value, message):
    record = json.loads(record_v2_text(small[2]))
    holder = record
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    with pytest.raises(RecordError, match=message.replace("(", r"\(")):
        computation_of_v2(parse_record(json.dumps(record).encode()))


# The command

ARGUMENTS = [
    "--seq-len",
    "256",
    "--kv-heads",
    "2",
    "--head-dim",
    "32",
    "--output-dim",
    "48",
    "--rotations",
    "2",
]
ARGUMENTS += ["--calibration-queries", "8", "--evaluation-queries", "32", "--seed", "5", "--threads", "1"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_command_writes_a_v2_record(tmp_path, capsys, form):
    path = tmp_path / "record.json"
    assert main(["run", "--contract", "v2", *ARGUMENTS, "--format", form, "-o", str(path)]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]
    record = json.loads(path.read_bytes())
    assert adjudicate(path.read_bytes()).outcome == "delegate"
    shown = capsys.readouterr().out
    if form == "json":
        assert json.loads(shown)["claims"] == record["claims"]
    assert "trials:" not in shown


def test_command_refuses_more_trials_than_a_record_holds(tmp_path, capsys):
    arguments = ["run", "--contract", "v2", "--evaluation-queries", "300", "-o", str(tmp_path / "x.json")]
    assert main(arguments) == 2
    assert "at most 256" in capsys.readouterr().err


def test_command_draws_a_v2_run(tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "run.svg"
    arguments = ["run", "--contract", "v2", *ARGUMENTS, "--plot", str(plot), "-o", str(tmp_path / "r.json")]
    assert main(arguments) == 0
    assert plot.stat().st_size > 1000
