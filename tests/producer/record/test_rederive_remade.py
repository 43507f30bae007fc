"""Records of a trace beside a run from traces and files whose bytes are others."""

import dataclasses
import json

import numpy as np
import pytest

from kvint2eval import adjudicate
from producer.cli import main
from producer.errors import RecordError
from producer.experiment.trace.arm_protocol import TraceProtocol
from producer.experiment.trace.compare_arms import compare_arms
from producer.experiment.trace.fitted_arms import FittedArm
from producer.record.reading import parse_record
from producer.record.rederive_remade import REMADE_TOLERANCE, require_remade, trained_arms
from producer.record.rederive_trace import rederive_traces
from producer.record.v2 import claim_json, summary_json
from producer.record.v2_trace import build_trace_record, trace_record_text
from producer.trace.files import write_arrays, write_manifest
from producer.transform.centring import key_mean
from producer.transform.dense import DenseRotation, build_quarot
from producer.transform.transform_file import LayerTransforms
from tests.producer import made_traces as made
from tests.producer.record.test_v2_trace import resealed, silent

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


GRID = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


def fitted_arm(transforms, traces, sha256="2" * 64):
    mean = key_mean(np.concatenate([traces[0].layer(0, index).k for index in (0, 1)], axis=1))
    return FittedArm(sha256, {0: LayerTransforms(*transforms, mean)}, traces[0].sequences)


def random_arm(seed, traces, sha256="2" * 64):
    return fitted_arm((trained(seed), trained(seed + 1)), traces, sha256)


def made_record(traces, arms, given):
    compared = TraceProtocol(
        arms=arms, dialect="affine-midpoint", clip_grid=GRID, center_keys=True, sink=16, recent=64
    )
    fitted = {"learned": given.layers} if "learned" in arms else {}
    (found,) = compare_arms(compared, *traces, [0], processes=1, progress=silent, fitted=fitted)
    record = build_trace_record(compared, found, *traces, dict.fromkeys(fitted, "1" * 64))
    verdict = adjudicate(trace_record_text(record).encode())
    assert (verdict.outcome, verdict.finding.code) == ("delegate", "environment-not-cuda")
    return record


@pytest.fixture(scope="module")
def record(traces):
    """Identity against three arms, one of them trained; the calibration selects QuaRot's."""
    record = made_record(traces, ("identity", "quarot", "oscar", "learned"), random_arm(1, traces, "1" * 64))
    assert record["measurements"]["selected"] == "quarot"
    assert record["claims"]
    return record


def better():
    """Transforms of the kind that training leaves, as good as QuaRot's."""
    matrices = np.repeat(build_quarot(32).matrices, 2, axis=0)
    return (DenseRotation(kind="optr", matrices=matrices),) * 2


@pytest.fixture(scope="module")
def led(traces):
    """A record whose selected arm is the trained one."""
    record = made_record(traces, ("identity", "oscar", "learned"), fitted_arm(better(), traces, "1" * 64))
    assert record["measurements"]["selected"] == "learned"
    assert record["recipe"]["method"] == "file"
    assert record["claims"]
    return record


def rederived(traces, record, given=None, **options):
    parsed = parse_record(trace_record_text(record).encode())
    given = given or random_arm(1, traces, "2" * 64 if options.get("remade") else "1" * 64)
    (done,) = rederive_traces(
        [parsed], *traces, processes=1, progress=silent, fitted={"learned": given}, **options
    )
    return [each.field for each in done.rederived if not each.agrees], done


def test_other_last_bits_need_to_be_said(again, record):
    with pytest.raises(RecordError, match="found a trace with the manifest"):
        rederived(again, record)


def test_a_record_comes_out_of_what_was_made_again(traces, again, record):
    wrong, done = rederived(again, record, remade=True)
    assert wrong == []
    compared = {each.field: each for each in done.rederived}
    # Eight trials of six columns and three arms, and their queries; of the fourth, which was trained, less.
    own = [field for field in compared if field.startswith("/measurements/arms/3/")]
    assert own == [
        "/measurements/arms/3/trials/query",
        *(f"/measurements/arms/3/trials/denominator/{place}" for place in range(8)),
    ]
    assert sum("/trials/" in field for field in compared) == 3 * (6 * 8 + 1) + len(own)
    assert not [field for field in compared if "_sha256" in field and field.startswith("/recipe/rotations")]
    assert not [field for field in compared if "query_nmse" in field]
    assert "/workload/trace/model_id" not in compared
    assert {
        "/workload/trace/weights_sha256",
        "/workload/trace/layer",
        "/workload/tokens",
        "/protocol/evaluation_queries",
        "/recipe/rotations/3/construction",
        "/measurements/null_checks/3/nmse",
        "/measurements/arms/2/clip_ratio",
        "/measurements/arms/*/calibration/objective",
        "/claims/0",
        "/claims/0/value",
    } <= compared.keys()
    assert not {"/measurements/selected", "/recipe/method"} & compared.keys()
    assert all(each.tolerance in (0.0, 1e-9, REMADE_TOLERANCE) for each in compared.values())
    # It is another run: what the record's own traces give again agrees to 10⁻⁵.
    differences = [each.difference for field, each in compared.items() if "/trials/nmse/" in field]
    assert max(differences) > 1e-5
    assert rederived(traces, record)[0] == []


def test_without_trained_arms_the_selection_is_compared(traces, again):
    record = made_record(traces, ("identity", "quarot"), None)
    wrong, done = rederived(again, record, remade=True)
    assert wrong == []
    assert {"/measurements/selected", "/recipe/method"} <= {each.field for each in done.rederived}
    assert "errors of the trained arm" not in str(done.reported)


def test_a_trained_arm_is_reported(again, record):
    given = random_arm(5, again)
    wrong, done = rederived(again, record, given, remade=True)
    assert wrong == []
    # The record names a file, and what is in the file says how it was made.
    parsed = parse_record(trace_record_text(record).encode())
    assert (trained_arms(parsed), trained_arms(parsed, {"learned": given})) == ([], ["learned"])
    assert done.reported[0] == "errors of the trained arm learned"
    assert list(done.means) == ["identity", "quarot", "oscar", "learned"]
    published = np.mean(record["measurements"]["arms"][3]["trials"]["nmse"])
    assert done.means["learned"][0] == pytest.approx(published, rel=1e-12)
    shifts = {name: abs(stated / found - 1) for name, (stated, found) in done.means.items()}
    assert max(shifts["identity"], shifts["quarot"], shifts["oscar"]) < 1e-3 < shifts["learned"]


def test_a_record_from_before_there_was_a_word_for_files_comes_out_again(traces, again, record):
    """The construction was the one that the file named."""
    earlier = resealed(record, lambda r: r["recipe"]["rotations"][3].update(construction="optr"))
    assert rederived(traces, earlier)[0] == []
    assert rederived(again, earlier, remade=True)[0] == []
    lying = resealed(record, lambda r: r["recipe"]["rotations"][3].update(construction="oscar"))
    assert rederived(traces, lying)[0] == ["/recipe/rotations/3/construction"]


def test_a_general_transform_is_trained_as_well(record):
    changed = resealed(record, lambda r: r["recipe"]["rotations"][3].update(construction="optr-general"))
    assert trained_arms(parse_record(trace_record_text(changed).encode())) == ["learned"]


def test_the_claim_of_a_trained_arm_is_judged_on_the_new_trials(again, led):
    wrong, done = rederived(again, led, fitted_arm(better(), again), remade=True)
    assert wrong == []
    (selection,) = (each for each in done.rederived if each.field.endswith("/objective"))
    assert (selection.published, selection.recomputed) == ("oscar", "oscar")
    # The record's own trials support its claim: only those of this run refute it.
    nothing = DenseRotation(kind="optr", matrices=np.repeat(np.eye(32, dtype=F)[None], 2, axis=0))
    plain = fitted_arm((nothing, nothing), again)
    # Keys that are moved away from their mean twice as far have a range that leaves nothing of them.
    layer = plain.layers[0]
    hopeless = FittedArm(
        plain.sha256, {0: dataclasses.replace(layer, key_mean=-layer.key_mean)}, plain.calibration
    )
    wrong, done = rederived(again, led, hopeless, remade=True)
    assert wrong == ["/claims/0", "/claims/0/value"]
    found = {each.field: each for each in done.rederived}
    assert (found["/claims/0"].published, found["/claims/0"].recomputed) == ("stands", "not shown")


def test_a_trained_arm_cannot_claim_what_it_likes(again, led):
    """All that follows from a thousandth of its errors, sealed: the rules of the adjudicator hold."""

    def boast(record):
        measured = record["measurements"]
        arm, baseline = measured["arms"][2], measured["arms"][0]
        for name in ("numerator", "key_part", "value_part", "cross_part"):
            arm["trials"][name] = [value / 1000 for value in arm["trials"][name]]
        pair = zip(arm["trials"]["numerator"], arm["trials"]["denominator"], strict=True)
        arm["trials"]["nmse"] = [one / (other + 1e-30) for one, other in pair]
        arm["summary"] = summary_json(arm["trials"]["nmse"], arm["trials"]["decode_us"])
        pair = baseline["trials"]["nmse"], arm["trials"]["nmse"]
        record["claims"] = [claim_json(("identity", "learned"), pair)]

    changed = resealed(led, boast)
    assert adjudicate(trace_record_text(changed).encode()).outcome == "delegate"
    wrong, _ = rederived(again, changed, fitted_arm(better(), again), remade=True)
    assert wrong == ["/claims/0/value"]


def _times(arm, factor):
    def change(record):
        trials = record["measurements"]["arms"][arm]["trials"]
        for name in ("nmse", "numerator"):
            trials[name][3] *= factor

    return change


def _best_is_another(record):
    arms = {arm["rotation"]: arm for arm in record["measurements"]["arms"]}
    arms["oscar"]["calibration"]["objective"][2] = 1e-6


def _drop_oscar(record):
    del record["measurements"]["arms"][2]


CLAIM = "/claims/0"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_times(2, 1.03), "/measurements/arms/2/trials/nmse/3"),
        (_times(0, 0.97), "/measurements/arms/0/trials/numerator/3"),
        (lambda r: r["measurements"]["arms"][1].update(clip_ratio=0.3), "/measurements/arms/1/clip_ratio"),
        (lambda r: r["measurements"]["null_checks"][2].update(nmse=5e-9), "/measurements/null_checks/2/nmse"),
        (_best_is_another, "/measurements/arms/*/calibration/objective"),
        (_drop_oscar, "/measurements/arms/2/rotation"),
        (lambda r: r["claims"][0].update(low=-1.0), CLAIM),
        (lambda r: r["claims"][0].update(value=1.05 * r["claims"][0]["value"]), CLAIM + "/value"),
        (lambda r: r["claims"][0].update(candidate="nobody"), CLAIM),
        (lambda r: r["workload"].update(query_heads=8), "/workload/query_heads"),
        (lambda r: r["workload"]["trace"].update(head=1), "/workload/trace/head"),
        (lambda r: r["recipe"].update(clip_grid_size=8), "/recipe/clip_grid_size"),
        (lambda r: r["measurements"]["storage"].update(codes_bytes=1), "/measurements/storage/codes_bytes"),
        (
            lambda r: r["measurements"]["arms"][3]["trials"]["denominator"].__setitem__(0, 1.0),
            "/measurements/arms/3/trials/denominator/0",
        ),
    ],
)
def test_a_lie_is_still_found(again, record, change, field):
    assert field in rederived(again, resealed(record, change), remade=True)[0]


def test_a_difference_below_the_tolerance_is_none(again, record):
    assert rederived(again, resealed(record, _times(2, 1.01)), remade=True)[0] == []


def test_claims_of_times_are_not_judged(again, record):
    changed = resealed(record, lambda r: r["claims"][0].update(metric="decode_us"))
    done = rederived(again, changed, remade=True)[1]
    assert not [each for each in done.rederived if each.field.startswith("/claims/")]


def test_another_model_and_other_sequences_are_refused(again, record):
    parsed = parse_record(trace_record_text(record).encode())
    calibration, evaluation = again
    given = {"learned": random_arm(1, again)}

    def refused(message, calibration=calibration, evaluation=evaluation, given=given):
        with pytest.raises(RecordError, match=message):
            require_remade(parsed, calibration, evaluation, given)

    require_remade(parsed, calibration, evaluation, given)
    other = dataclasses.replace(evaluation.model, weights_sha256="0" * 64)
    words = f"found a model with the weights {'0' * 64}, allowed: {'ab' * 32}"
    refused(words, evaluation=dataclasses.replace(evaluation, model=other))
    refused(words, calibration=dataclasses.replace(calibration, model=other))
    words = "which the record names as the evaluation"
    refused(words, evaluation=dataclasses.replace(evaluation, sequences=evaluation.sequences[:7]))
    refused(words, evaluation=dataclasses.replace(evaluation, sequences=evaluation.sequences[::-1]))
    refused("which the record names as the calibration", calibration=evaluation)
    words = r"arm 'learned': found a file fitted to evaluation-0.*, allowed: fitted to calibration-0"
    refused(words, given={"learned": random_arm(1, again[::-1])})
    half = dataclasses.replace(given["learned"], calibration=calibration.sequences[:1])
    refused("arm 'learned': found a file fitted to", given={"learned": half})
    # A file that no arm came from is not looked at.
    require_remade(parsed, calibration, evaluation, {**given, "unused": half})
    with pytest.raises(
        RecordError, match=r"found none for its file, allowed: the file of SHA-256 1+ or a rebuilt"
    ):
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


def _all_less(record):
    """Errors of the baseline a twentieth larger, and all that follows from them."""
    measured = record["measurements"]
    arms = {arm["rotation"]: arm for arm in measured["arms"]}
    trials = arms["identity"]["trials"]
    for name in ("numerator", "key_part", "value_part", "cross_part"):
        trials[name] = [1.05 * value for value in trials[name]]
    trials["nmse"] = [
        one / (other + 1e-30) for one, other in zip(trials["numerator"], trials["denominator"], strict=True)
    ]
    arms["identity"]["summary"] = summary_json(trials["nmse"], trials["decode_us"])
    pair = trials["nmse"], arms[measured["selected"]]["trials"]["nmse"]
    record["claims"] = [claim_json(("identity", measured["selected"]), pair)]


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
    windows = ["--sink", "16", "--recent", "64"]
    assert main(["compare", *traced, *asked, *grid, *windows, "--arm", "oscar", "-o", str(records)]) == 0
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
    assert "\n36 errors of trials compared: half differ by at most " in shown
    assert "; allowed 0.02\n" in shown
    assert "deterministic fields of 2 records agree" in shown
    assert "only reported: digests of traces, transforms and fitted files" in shown
    assert main([*again, "--remade", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"]
    assert [list(one) for one in printed["means"]] == [["identity", "oscar", "own"]] * 2
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    lying = tmp_path / "lying.jsonl"
    lying.write_text(trace_record_text(lines[0]) + trace_record_text(resealed(lines[1], _all_less)))
    assert main(["rederive", str(lying), *again[2:], "--remade"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("record 2:\nfield ")
    assert "/measurements/arms/0/trials/nmse/0" in shown
    assert "/claims/0/value" in shown
    lying.write_text(trace_record_text(lines[0]) + trace_record_text(resealed(lines[1], _times(1, 1.001))))
    assert main(["rederive", str(lying), *again[2:], "--remade"]) == 2
    assert "lying.jsonl, line 2: unsupported: " in capsys.readouterr().err
    assert main(["rederive", str(records), "--remade"]) == 2
    assert "--calibration and --trace are needed" in capsys.readouterr().err
