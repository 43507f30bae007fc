"""Records of a trace beside a run from traces and files whose bytes are others."""

import dataclasses
import json

import numpy as np
import pytest

from producer.cli import main
from producer.errors import RecordError
from producer.fitted_arms import FittedArm
from producer.record import parse_record
from producer.record_trace import build_trace_record, trace_record_text
from producer.rederive_trace import rederive_traces
from producer.remade import REMADE_TOLERANCE, require_remade, trained_arms
from producer.rotation.dense import DenseRotation
from producer.rotation.files import LayerRotations
from producer.trace.files import write_arrays, write_manifest
from producer.trace_arms import compare_arms
from producer.trace_protocol import TraceProtocol
from tests.producer.trace import made
from tests.producer.trace.test_trace_records import GRID, resealed, silent

F = np.float32


def rounded_otherwise(array, seed):
    """What another processor may give after some layers: every value off by up to fifty units in the last place."""
    noise = np.random.default_rng(seed).uniform(-50, 50, array.shape) * np.finfo(F).eps
    return (array * (1 + noise)).astype(F)


class RemadeTrace(made.MemoryTrace):
    def layer(self, layer_idx, sequence):
        layer = super().layer(layer_idx, sequence)
        return dataclasses.replace(
            layer, **{name: rounded_otherwise(getattr(layer, name), 7) for name in ("q", "k", "v")}
        )


def remade(trace, folder):
    """The trace as another machine would capture it: other last bits, and another manifest."""
    folder.mkdir()
    write_manifest(folder, trace.model, trace.sequences, {"perplexity": 2.0000001})
    fields = {field.name: getattr(trace, field.name) for field in dataclasses.fields(trace)}
    return RemadeTrace(**{**fields, "folder": folder})


def trained(seed):
    """An orthogonal transform for two heads, as training leaves one."""
    gaussian = np.random.default_rng(seed).standard_normal((2, 32, 32))
    return DenseRotation(kind="optr", matrices=np.linalg.qr(gaussian)[0].astype(F))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("remade")


@pytest.fixture(scope="module")
def traces(folder):
    calibration = made.memory_trace(folder / "calibration", 100)
    return calibration, made.memory_trace(folder / "evaluation", 200, sequences=8)


@pytest.fixture(scope="module")
def again(folder, traces):
    return tuple(remade(trace, folder / f"{trace.folder.name}-remade") for trace in traces)


def arm(seed, traces, sha256):
    rotations = LayerRotations(trained(seed), trained(seed + 1))
    return FittedArm(sha256, {0: rotations, 1: rotations}, traces[0].sequences)


@pytest.fixture(scope="module")
def record(traces):
    """Identity against three arms, one of them trained."""
    given = {"learned": arm(1, traces, "1" * 64)}
    compared = TraceProtocol(
        arms=("identity", "quarot", "oscar", "learned"),
        dialect="affine-midpoint",
        clip_grid=GRID,
        center_keys=False,
    )
    (found,) = compare_arms(
        compared,
        *traces,
        [0],
        processes=1,
        progress=silent,
        fitted={name: one.layers for name, one in given.items()},
    )
    return build_trace_record(compared, found, *traces, {"learned": "1" * 64})


def rederived(traces, record, seed=1, **options):
    parsed = parse_record(trace_record_text(record).encode())
    fitted = {"learned": arm(seed, traces, "2" * 64 if options.get("remade") else "1" * 64)}
    (done,) = rederive_traces([parsed], *traces, processes=1, progress=silent, fitted=fitted, **options)
    return [each.field for each in done.rederived if not each.agrees], done


def test_other_last_bits_need_to_be_said(again, record):
    with pytest.raises(RecordError, match="found a trace with the manifest"):
        rederived(again, record)


def test_a_record_comes_out_of_what_was_made_again(traces, again, record):
    assert record["claims"], "the record has to claim something"
    wrong, done = rederived(again, record, remade=True)
    assert wrong == []
    compared = {each.field: each for each in done.rederived}
    # Eight trials of six columns and three arms, and more; nothing of the fourth, which was trained.
    assert sum("/trials/" in field for field in compared) == 3 * (6 * 8 + 1)
    assert not [field for field in compared if field.startswith("/measurements/arms/3/")]
    assert not [field for field in compared if field.endswith("key_sha256")]
    assert "/claims/0" in compared
    assert all(each.tolerance in (0.0, 1e-9, REMADE_TOLERANCE) for each in compared.values())
    # It is another run: what the record's own traces give again agrees to 10⁻⁵.
    differences = [each.difference for field, each in compared.items() if "/trials/nmse/" in field]
    assert max(differences) > 1e-5
    assert rederived(traces, record)[0] == []


def test_a_trained_arm_is_reported(again, record):
    wrong, done = rederived(again, record, seed=5, remade=True)
    assert wrong == []
    assert trained_arms(parse_record(trace_record_text(record).encode())) == ["learned"]
    assert done.reported[0] == "errors of the trained arm learned"
    assert list(done.means) == ["identity", "quarot", "oscar", "learned"]
    shifts = {name: abs(stated / found - 1) for name, (stated, found) in done.means.items()}
    assert max(shifts["identity"], shifts["quarot"], shifts["oscar"]) < 1e-3 < shifts["learned"]


def _times(arm, factor):
    def change(record):
        trials = record["measurements"]["arms"][arm]["trials"]
        for name in ("nmse", "numerator"):
            trials[name][3] *= factor

    return change


def _claims_the_baseline(record):
    record["claims"][0].update(candidate="identity", baseline=record["claims"][0]["candidate"])


def _claims_a_stranger(record):
    record["claims"][0].update(candidate="nobody")


def _best_is_another(record):
    arms = {arm["rotation"]: arm for arm in record["measurements"]["arms"]}
    worst = max(("quarot", "oscar"), key=lambda name: min(arms[name]["calibration"]["objective"]))
    arms[worst]["calibration"]["objective"][2] = 1e-6


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_times(2, 1.03), "/measurements/arms/2/trials/nmse/3"),
        (_times(0, 0.97), "/measurements/arms/0/trials/numerator/3"),
        (lambda r: r["measurements"]["arms"][1].update(clip_ratio=0.6), "/measurements/arms/1/clip_ratio"),
        (_best_is_another, "/measurements/selected"),
        (_claims_the_baseline, "/claims/0"),
        (_claims_a_stranger, "/claims/0"),
        (lambda r: r["workload"].update(query_heads=8), "/workload/query_heads"),
        (
            lambda r: r["measurements"]["storage"].update(codes_bytes=1),
            "/measurements/storage/codes_bytes",
        ),
    ],
)
def test_a_lie_is_still_found(again, record, change, field):
    changed = resealed(record, change)
    assert changed != record
    assert field in rederived(again, changed, remade=True)[0]


def test_a_difference_below_the_tolerance_is_none(again, record):
    assert rederived(again, resealed(record, _times(2, 1.01)), remade=True)[0] == []


def test_claims_of_times_are_not_judged(again, record):
    done = rederived(
        again, resealed(record, lambda r: r["claims"][0].update(metric="decode_us")), remade=True
    )[1]
    assert not [each for each in done.rederived if each.field.startswith("/claims/")]


def test_another_model_and_other_sequences_are_refused(again, record):
    parsed = parse_record(trace_record_text(record).encode())
    calibration, evaluation = again
    given = {"learned": arm(1, again, "2" * 64)}
    require_remade(parsed, calibration, evaluation, given)
    other = dataclasses.replace(
        evaluation, model=dataclasses.replace(evaluation.model, weights_sha256="0" * 64)
    )
    with pytest.raises(RecordError, match=f"found a model with the weights {'0' * 64}, allowed: {'ab' * 32}"):
        require_remade(parsed, calibration, other, given)
    fewer = dataclasses.replace(evaluation, sequences=evaluation.sequences[:7])
    with pytest.raises(RecordError, match="which the record names as the evaluation"):
        require_remade(parsed, calibration, fewer, given)
    with pytest.raises(RecordError, match="which the record names as the calibration"):
        require_remade(parsed, evaluation, evaluation, given)
    with pytest.raises(
        RecordError, match=r"arm 'learned': found a file fitted to evaluation-0.txt@0\+400/last64"
    ):
        require_remade(parsed, calibration, evaluation, {"learned": arm(1, again[::-1], "2" * 64)})
    with pytest.raises(RecordError, match=r"found none for its file, allowed: the file of SHA-256 1+ or one"):
        rederive_traces([parsed], *again, processes=1, progress=silent, remade=True)


# The command


def _rewrite(folder, seed):
    """A trace's folder, as another machine would have written it."""
    from producer.trace.files import read_trace  # noqa: PLC0415

    trace = read_trace(folder)
    for layer_idx in range(trace.model.num_layers):
        for index in range(len(trace.sequences)):
            layer = trace.layer(layer_idx, index)
            arrays = {name: rounded_otherwise(getattr(layer, name), seed) for name in ("q", "k", "v")}
            write_arrays(folder, layer_idx, index, arrays)
    write_manifest(folder, trace.model, trace.sequences, {"perplexity": 2.0000001})


def test_the_command_takes_what_was_made_again(tmp_path, capsys):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    folders = made.write_trace(tmp_path / "cal", 100), made.write_trace(tmp_path / "eval", 200, sequences=6)
    traced = ["--calibration", str(folders[0])]
    own = tmp_path / "own.safetensors"
    fit = ["fit", *traced, "--scheme", "balanced-clip", "-o", str(own)]
    assert main(fit) == 0
    records = tmp_path / "records.jsonl"
    asked = ["--trace", str(folders[1]), "--fitted", str(own)]
    grid = ["--dialect", "affine-midpoint", "--centred", "--grid", "1,0.9,0.8,0.7,0.6,0.5,0.4"]
    assert main(["compare", *traced, *asked, *grid, "--arm", "oscar", "-o", str(records)]) == 0
    for seed, folder in enumerate(folders):
        _rewrite(folder, seed)
    own.unlink()
    assert main(fit) == 0
    capsys.readouterr()
    again = ["rederive", str(records), *traced, *asked, "--threads", "1"]
    assert main(again) == 2
    assert "found a trace with the manifest" in capsys.readouterr().err
    assert main([*again, "--remade"]) == 0
    shown = capsys.readouterr().out
    assert [line.split(":")[0] for line in shown.splitlines()[:3]] == [
        "mean NMSE of identity",
        "mean NMSE of oscar",
        "mean NMSE of own",
    ]
    assert "\n36 errors of trials: half differ by at most " in shown
    assert "; allowed 0.02\n" in shown
    assert "deterministic fields of 2 records agree" in shown
    assert "only reported: digests of traces, transforms and fitted files" in shown
    assert main([*again, "--remade", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"]
    assert [list(one) for one in printed["means"]] == [["identity", "oscar", "own"]] * 2
    assert main(["rederive", str(records), "--remade"]) == 2
    assert "--calibration and --trace are needed" in capsys.readouterr().err
