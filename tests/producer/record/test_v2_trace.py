"""Rotations compared on made traces: records, what the adjudicator says of them, and rederiving them."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from kvint2eval import adjudicate
from kvint2eval.contract.v2.canonical import witness_v2
from kvint2eval.contract.v2.registry import DIALECTS
from producer.cli import main
from producer.errors import FileFormatError, RecordError, SpecError
from producer.experiment.trace.arm_protocol import ARM_NAMES, TraceProtocol, sequence_id
from producer.experiment.trace.compare_arms import compare_arms, null_nmse
from producer.record.reading import parse_record, read_record_lines
from producer.record.rederive_trace import rederive_traces
from producer.record.v2_trace import (
    build_trace_record,
    is_of_trace,
    protocol_of_trace,
    require_same_traces,
    trace_record_text,
)
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import SCHEMES
from producer.transform.dense import DenseTransform, build_hadamard, build_identity
from producer.transform.transform_file import LayerTransforms
from tests.producer import made_traces as made
from tests.producer.cache_errors import head_errors
from tests.producer.scheme.test_stored_cache import balanced

GRID = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
ARMS = ("identity", "quarot", "oscar")


def silent(_done, _total, _what):
    pass


def protocol(dialect="affine-midpoint", **changes):
    fields = {"arms": ARMS, "dialect": dialect, "clip_grid": GRID, "center_keys": True}
    # Of 400 tokens most are quantized, or the record is refused.
    fields |= {"sink": 16, "recent": 64}
    return TraceProtocol(**{**fields, **changes})


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    calibration = made.memory_trace(folder / "calibration", 100)
    return calibration, made.memory_trace(folder / "evaluation", 200, sequences=8)


def run(traces, compared, layers=(0,), **options):
    found = compare_arms(compared, *traces, list(layers), processes=1, progress=silent, **options)
    return [build_trace_record(compared, one, *traces) for one in found]


@pytest.fixture(scope="module")
def records(traces):
    return run(traces, protocol(), layers=(0, 1))


def resealed(record, *changes):
    record = copy.deepcopy(record)
    for change in changes:
        change(record)
    record["witness_sha256"] = ""
    return record | {"witness_sha256": witness_v2(record)}


# What is compared


def test_figures_are_those_of_the_schemes(traces):
    calibration, evaluation = traces
    compared = protocol(window_dtype="float32")
    (found,) = compare_arms(compared, *traces, [1], processes=1, progress=silent)
    for arm in found.arms:
        scheme = dataclasses.replace(
            compared.scheme(arm.id), key_clip=arm.clip_ratio, value_clip=arm.clip_ratio
        )
        fitted = FittedLayer(scheme, arm.rotations)
        for index in range(8):
            layer = evaluation.layer(1, index)
            errors = head_errors(
                layer,
                *fitted.store(layer.k, layer.v).restored(),
            )
            for name, column in (
                ("error", "numerator"),
                ("reference", "denominator"),
                ("key_part", "key_part"),
                ("value_part", "value_part"),
                ("cross_part", "cross_part"),
            ):
                expected = float(getattr(errors, name).sum())
                assert getattr(arm.errors, column)[index] == pytest.approx(expected, rel=1e-12), column
        place = GRID.index(arm.clip_ratio)
        layer = calibration.layer(1, 1)
        errors = head_errors(
            layer,
            *fitted.store(layer.k, layer.v).restored(),
        )
        assert arm.query_nmse[place][1] == pytest.approx(
            errors.error.sum() / errors.reference.sum(), rel=1e-12
        )
        assert arm.objective[place] == min(arm.objective)
        assert len(arm.decode_us) == 8
        assert min(arm.decode_us) > 0


def test_search_and_selection_do_not_see_the_evaluation(traces, tmp_path):
    other = made.memory_trace(tmp_path / "other", 900, sequences=2)
    one, two = (
        compare_arms(protocol(), traces[0], evaluation, [0], processes=1, progress=silent)[0]
        for evaluation in (traces[1], other)
    )
    assert one.selected == two.selected
    for mine, theirs in zip(one.arms, two.arms, strict=True):
        assert (mine.clip_ratio, mine.query_nmse, mine.null_nmse) == (
            theirs.clip_ratio,
            theirs.query_nmse,
            theirs.null_nmse,
        )
        assert mine.errors.nmse[:2] != theirs.errors.nmse


def test_processes_change_no_figure_but_times(traces):
    one, two = (
        compare_arms(protocol(), *traces, [0, 1], processes=count, progress=silent) for count in (1, 2)
    )
    for mine, theirs in zip(one, two, strict=True):
        assert mine.selected == theirs.selected
        assert [arm.errors for arm in mine.arms] == [arm.errors for arm in theirs.arms]
        assert [arm.query_nmse for arm in mine.arms] == [arm.query_nmse for arm in theirs.arms]


def test_an_arm_may_be_given_layer_by_layer(traces):
    given = {layer: LayerTransforms(build_hadamard(32), build_hadamard(32)) for layer in (0, 1)}
    compared = protocol(arms=("identity", "mine"), center_keys=False)
    (found,) = compare_arms(compared, *traces, [1], processes=1, progress=silent, fitted={"mine": given})
    named = protocol(arms=("identity", "hadamard"), center_keys=False)
    (other,) = compare_arms(named, *traces, [1], processes=1, progress=silent)
    assert found.arms[1].errors == other.arms[1].errors


# Null checks


class _KeysAndQueriesAlike(DenseTransform):
    """What a transform that is no rotation would do if queries were turned as keys are."""

    def __init__(self, inner):
        self.kind, self.matrices, self._inner = inner.kind, inner.matrices, inner

    @property
    def inverses(self):
        return self._inner.inverses

    def rotate_queries(self, q):
        return np.matmul(q, self.matrices)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("make", [lambda: build_identity(32), lambda: build_hadamard(32), balanced])
def test_a_transform_alone_changes_nothing(make, centred):
    layer, transform = made.layer(30), make()
    mean = layer.k.mean(axis=1) if centred else None
    found = null_nmse(layer, LayerTransforms(transform, transform, mean))
    # Float32 attention itself; a factor of 20 in the singular values makes it a hundred times as large.
    assert 0 < found <= 1e-10


def test_a_null_check_sees_queries_that_do_not_follow_their_keys():
    layer = made.layer(30)
    wrong = _KeysAndQueriesAlike(balanced())
    assert null_nmse(layer, LayerTransforms(wrong, build_identity(32))) > 1e-3


# Records


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("affine-midpoint", {}),
        (
            "affine-midpoint",
            {
                "center_keys": False,
                "arms": ("quarot", "oscar"),
                "window_dtype": "float16",
                "clip_grid": (1.0, *GRID[1:], 0.4, 0.3, 0.2),
            },
        ),
        ("oscar-prefill-bfloat16", {"group_size": 16, "sink": 0, "recent": 32, "window_dtype": "float32"}),
        ("oscar-flush", {}),
        ("lloyd-max", {"clip_grid": (1.0,)}),
        ("quarot-head-wise", {}),
        ("kivi-float32", {"clip_grid": (1.0,), "group_size": 16}),
        ("kivi", {"clip_grid": (1.0,), "group_size": 16}),
    ],
)
def test_a_record_is_sound_and_delegated(traces, dialect, changes):
    (record,) = run(traces, protocol(dialect, **changes))
    verdict = adjudicate(trace_record_text(record).encode())
    assert (verdict.outcome, verdict.finding.code) == ("delegate", "environment-not-cuda")
    assert all(claim.finding is None for claim in verdict.claims)
    read = parse_record(trace_record_text(record).encode())
    assert is_of_trace(read)
    expected = protocol(dialect, **changes)
    assert protocol_of_trace(read) == dataclasses.replace(expected, group_size=expected.group_size or 32)


def test_a_record_names_its_traces(traces, records):
    calibration, evaluation = traces
    trace = records[1]["workload"]["trace"]
    assert trace["manifest_sha256"] == evaluation.manifest_sha256
    assert (trace["model_id"], trace["weights_sha256"]) == ("made", "ab" * 32)
    assert (trace["layer"], trace["head"]) == (1, 0)
    digests = {artifact["role"]: artifact["sha256"] for artifact in records[1]["artifacts"]}
    assert (digests["file"], digests["weights"]) == (calibration.manifest_sha256, "ab" * 32)
    assert records[1]["protocol"]["evaluation_queries"][1] == "evaluation-1.txt@0+400/last64"
    assert sequence_id(calibration.sequences[0]) == records[1]["protocol"]["calibration_queries"][0]
    assert records[1]["protocol"]["clock"] == "host"


def test_a_record_claims_what_its_trials_show_and_no_more(traces, records, tmp_path):
    claim = records[0]["claims"][0]
    assert (claim["baseline"], claim["candidate"]) == ("identity", records[0]["measurements"]["selected"])
    assert 0 < claim["low"] <= claim["value"] <= claim["high"]
    few = made.memory_trace(tmp_path / "few", 300, sequences=5)
    (record,) = run((traces[0], few), protocol())
    assert record["claims"] == []
    # Oscar's rotation is the better one here, so that the selected arm loses.
    (record,) = run(traces, protocol(arms=("oscar", "identity")))
    assert record["claims"] == []
    assert adjudicate(trace_record_text(record).encode()).outcome == "delegate"


def test_a_clip_at_the_end_of_its_grid_is_refused(traces):
    (record,) = run(traces, protocol(clip_grid=(1.0, 0.95, 0.9, 0.85)))
    assert adjudicate(trace_record_text(record).encode()).finding.code == "clip-at-grid-end"


def test_keys_and_values_of_an_arm_have_one_construction(traces):
    given = {0: LayerTransforms(build_hadamard(32), build_identity(32))}
    compared = protocol(arms=("identity", "mine"), center_keys=False)
    (found,) = compare_arms(compared, *traces, [0], processes=1, progress=silent, fitted={"mine": given})
    with pytest.raises(SpecError, match="arm 'mine' with keys by hadamard and values by identity"):
        build_trace_record(compared, found, *traces)


@pytest.mark.parametrize(("centred", "words"), [(True, "without"), (False, "with")])
def test_arms_centre_keys_alike(traces, centred, words):
    mean = None if centred else np.zeros((2, 32), np.float32)
    given = {0: LayerTransforms(build_hadamard(32), build_hadamard(32), mean)}
    compared = protocol(arms=("identity", "mine"), center_keys=centred)
    with pytest.raises(SpecError, match=f"arm 'mine' {words} a key mean is not allowed: centring is one"):
        compare_arms(compared, *traces, [0], processes=1, progress=silent, fitted={"mine": given})


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("identity",)}, "arms identity are not allowed: a baseline and others, each once"),
        ({"arms": ("quarot", "quarot")}, "arms quarot, quarot are not allowed"),
        ({"dialect": "best"}, "dialect 'best' is not allowed"),
        ({"dialect": "turboquant-3bit-key"}, "dialect 'turboquant-3bit-key' is not allowed: it has 3 bits"),
        ({"clip_grid": (1.0, 0.9)}, "clip grid 1, 0.9 is not allowed: at least 3 ratios, falling"),
        ({"clip_grid": (0.9, 1.0, 0.8)}, "falling"),
        ({"clip_grid": (1.0, 0.9, 0.9)}, "falling"),
        ({"clip_grid": (1.0, 0.5, float("nan"))}, "falling"),
        ({"clip_grid": (1.0, 0.5, 0.0)}, "falling"),
        ({"clip_grid": ()}, "clip grid of no ratio is not allowed"),
        ({"dialect": "lloyd-max"}, "lloyd-max has no clip, only 1"),
        ({"window_dtype": "int8"}, "windows in 'int8' are not allowed: float32, float16, bfloat16"),
    ],
)
def test_a_comparison_that_no_record_can_hold_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        protocol(**changes)


def test_traces_that_do_not_fit_are_refused(traces, tmp_path):
    calibration, evaluation = traces

    def refused(message, *pair, compared=None, layers=(0,)):
        with pytest.raises(SpecError, match=message):
            compare_arms(compared or protocol(), *pair, layers, processes=1, progress=silent)

    refused("contaminated", evaluation, evaluation)
    refused("layer 2 is not allowed: 0 … 1", *traces, layers=(2,))
    refused(
        "arm 'best' is not allowed: one of identity", *traces, compared=protocol(arms=("identity", "best"))
    )
    short = made.memory_trace(tmp_path / "short", 0, tokens=383)
    least = "sequence of 383 tokens of 'short-0.txt' is not allowed: 384 at least"
    refused(least, calibration, short, compared=protocol(sink=64, recent=256))
    info = dataclasses.replace(made.INFO, weights_sha256="ef" * 32)
    refused(
        "is of another model: 'made' differs from 'made' in weights",
        calibration,
        made.memory_trace(tmp_path / "o", 0, info=info),
    )
    first, second = evaluation.sequences[:2]
    longer = dataclasses.replace(second, tokens=500)
    refused(
        r"sequences of \[400, 500\] tokens are not allowed: a record has one length",
        calibration,
        dataclasses.replace(evaluation, sequences=(first, longer)),
    )
    twice = dataclasses.replace(second, name=first.name)
    refused(
        "two sequences 'evaluation-0.txt@0.400/last64' are not allowed: a record names each once",
        calibration,
        dataclasses.replace(evaluation, sequences=(first, twice)),
    )
    many = [dataclasses.replace(first, first_token=index) for index in range(257)]
    refused("at most 256", calibration, dataclasses.replace(evaluation, sequences=tuple(many)))


# Rederiving


def rederived(traces, record, **options):
    parsed = parse_record(trace_record_text(record).encode())
    (done,) = rederive_traces([parsed], *traces, processes=1, progress=silent, **options)
    return {each.field for each in done.rederived if not each.agrees}, done


def test_a_record_comes_out_again(traces, records):
    for record in records:
        wrong, done = rederived(traces, record)
        assert wrong == set()
        assert len(done.rederived) > 200
        assert not [each.field for each in done.rederived if "decode_us" in each.field]


def _lie(record):
    trials = record["measurements"]["arms"][2]["trials"]
    for name in ("numerator", "key_part", "value_part", "cross_part"):
        trials[name][3] /= 2
    trials["nmse"][3] = trials["numerator"][3] / (trials["denominator"][3] + 1e-30)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_lie, "/measurements/arms/2/trials/numerator/3"),
        (lambda r: r["workload"].update(query_heads=8), "/workload/query_heads"),
        (lambda r: r["workload"].update(output_dimension=25), "/workload/output_dimension"),
        (lambda r: r["workload"]["trace"].update(head=1), "/workload/trace/head"),
        (lambda r: r["workload"]["trace"].update(layer=1), "/measurements/arms/0/trials/numerator/0"),
        (lambda r: r["recipe"]["rotations"][2].update(key_sha256="1" * 64), "/recipe/rotations/2/key_sha256"),
        (lambda r: r["measurements"]["null_checks"][1].update(nmse=5e-9), "/measurements/null_checks/1/nmse"),
        (lambda r: r["recipe"].update(key_centring="none"), "/measurements/arms/0/trials/numerator/0"),
        (lambda r: r["recipe"].update(window_dtype="float16"), "/measurements/arms/0/trials/numerator/0"),
    ],
)
def test_a_lie_is_found_by_running(traces, records, change, field):
    assert field in rederived(traces, resealed(records[0], change))[0]


def test_other_traces_are_refused(traces, records, tmp_path):
    calibration, evaluation = traces
    record = parse_record(trace_record_text(records[0]).encode())
    for pair, words in (
        ((calibration, calibration), "as the evaluation"),
        ((evaluation,) * 2, "calibration"),
    ):
        with pytest.raises(RecordError, match=words):
            require_same_traces(record, *pair)
    require_same_traces(record, calibration, evaluation)
    moved = made.memory_trace(tmp_path / "moved", 1)
    (moved.folder / "trace.json").unlink()
    with pytest.raises(FileFormatError, match=r"trace\.json: cannot be read"):
        require_same_traces(record, calibration, moved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r["protocol"].update(name="paired"),
            "/protocol/name: found 'paired', allowed: 'trace-arms'",
        ),
        (
            lambda r: r["recipe"].update(baseline="oscar"),
            "/recipe/baseline: found 'oscar', allowed: 'identity'",
        ),
        (lambda r: r["recipe"].update(bits=4), "/recipe/bits: found 4, allowed: 2"),
        (lambda r: r["recipe"].update(rotations=None), "/recipe/baseline: found 'identity', allowed: an arm"),
        (lambda r: r["recipe"].update(window_dtype=None), "leaves open what was run"),
        (
            lambda r: r["recipe"]["dialect"].update(id="best"),
            "a comparison that is not allowed: dialect 'best'",
        ),
    ],
)
def test_a_record_of_another_comparison_is_refused(records, change, message):
    with pytest.raises(RecordError, match=message):
        protocol_of_trace(parse_record(json.dumps(resealed(records[0], change)).encode()))


# The commands


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    folder = tmp_path_factory.mktemp("on-disk")
    return made.write_trace(folder / "cal", 100), made.write_trace(folder / "eval", 200, sequences=6)


def arguments(folders, *others):
    base = ["--calibration", str(folders[0]), "--trace", str(folders[1]), "--dialect", "affine-midpoint"]
    return [
        "compare",
        *base,
        "--arm",
        "quarot",
        "--processes",
        "1",
        "--sink",
        "16",
        "--recent",
        "64",
        *others,
    ]


def test_the_commands_make_judge_and_repeat_records(folders, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    asked = arguments(folders, "--centred", "--grid", "1,0.9,0.8,0.7,0.6,0.5", "-o", str(path))
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert lines[1].endswith("delegate: environment-not-cuda")
    assert main([*asked, "--layer", "1", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["records"]
    assert (row["layer"], row["baseline"], row["selected"]) == (1, "identity", "quarot")
    (record,) = read_record_lines(str(path))
    assert row["nmse_mean"]["quarot"] == record.measurements.arms[1].summary.nmse_mean
    again = ["--calibration", str(folders[0]), "--trace", str(folders[1]), "--threads", "1"]
    assert main(["rederive", str(path), *again]) == 0
    shown = capsys.readouterr().out
    assert "deterministic fields of 1 records agree" in shown
    assert "only reported: decode times" in shown
    lying = tmp_path / "lying.jsonl"
    lying.write_text(trace_record_text(resealed(json.loads(path.read_text()), _quarter)) + "\n")
    assert main(["rederive", str(lying), *again]) == 1
    assert "/measurements/arms/0/trials/numerator/2" in capsys.readouterr().out
    single = tmp_path / "single.json"
    single.write_text(path.read_text())
    assert main(["rederive", str(single), *again, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["agrees"]
    modeled = tmp_path / "modeled.jsonl"
    modeled.write_text(trace_record_text(resealed(json.loads(path.read_text()), _modeled)))
    assert main(["rederive", str(modeled), *again]) == 3
    assert main(["audit", str(path)]) == 2
    assert "`kvint2eval adjudicate` holds what an audit asks" in capsys.readouterr().err
    assert main(["audit", str(single)]) == 2
    assert "/workload/trace: found a trace" in capsys.readouterr().err


def _quarter(record):
    record["measurements"]["arms"][0]["trials"]["numerator"][2] /= 4


def _modeled(record):
    record["evidence"] = "modeled"


def test_a_fitted_file_is_an_arm(folders, tmp_path, capsys):
    path, transforms = tmp_path / "records.jsonl", tmp_path / "mine.safetensors"
    traced = ["--calibration", str(folders[0])]
    assert main(["fit", *traced, "--scheme", "balanced-clip", "-o", str(transforms)]) == 0
    grid = ["--centred", "--grid", "1,0.9,0.8,0.7,0.6,0.5,0.4", "--layer", "1"]
    asked = arguments(folders, *grid, "--fitted", str(transforms), "-o", str(path))
    capsys.readouterr()
    assert main([*asked, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["records"]
    assert list(row["nmse_mean"]) == ["identity", "quarot", "mine"]
    (record,) = read_record_lines(str(path))
    # Nothing in the file lets a reader build the matrix again: its digest tells it, and no name.
    assert record.recipe.rotations[2].construction == "file"
    assert record.recipe.rotations[1].construction == "quarot"
    # Far from the bound of 1e-9, though no rotation: its condition number is small.
    assert record.measurements.null_checks[2].nmse <= 1e-11
    again = ["rederive", str(path), *traced, "--trace", str(folders[1]), "--threads", "1"]
    assert main([*again, "--fitted", str(transforms)]) == 0
    assert main(again) == 2
    assert "arm 'mine': found none for its file" in capsys.readouterr().err
    assert main([*asked, "--fitted", str(transforms)]) == 2
    assert "an arm named 'mine' is there already" in capsys.readouterr().err
    assert main(arguments(folders, "--fitted", str(transforms), "-o", str(path))) == 2
    assert "arm 'mine' with a key mean is not allowed" in capsys.readouterr().err


def test_an_unsound_record_is_written_and_said(folders, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    assert main(arguments(folders, "--grid", "1,0.97,0.94,0.85", "--layer", "0", "-o", str(path))) == 1
    assert "unsupported: clip-at-grid-end" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) == 1


def test_a_dialect_without_a_clip_needs_no_grid(folders, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    asked = arguments(folders, "--dialect", "lloyd-max", "--layer", "0", "-o", str(path))
    assert main(asked) == 0
    assert "@     1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (["-o", "x.json"], "its ending must be .jsonl"),
        (["-o", "nowhere/x.jsonl"], "there is no folder nowhere"),
        (["-o", "x.jsonl", "--processes", "0"], "processes 0 is not allowed"),
        (["-o", "x.jsonl", "--dialect", "best"], "dialect 'best' is not allowed"),
        (["-o", "x.jsonl", "--arm", "best"], "arm 'best' is not allowed"),
        (["-o", "x.jsonl", "--layer", "7"], "layer 7 is not allowed: 0 … 1"),
        (["-o", "x.jsonl", "--group-size", "5"], "group_size 5 is not allowed"),
        (["-o", "x.jsonl", "--sink", "-1"], "sink -1 is not allowed"),
    ],
)
def test_wrong_use_ends_with_2_and_one_line(folders, others, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(arguments(folders, *others)) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_a_grid_that_is_none_is_wrong_usage(folders, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments(folders, "--grid", "1,x", "-o", "x.jsonl"))
    assert "'1,x' is no grid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no record, allowed: one a line"),
        ("{}\n", "line 1: unknown-contract"),
        (None, "--calibration and --trace are needed"),
    ],
)
def test_wrong_files_are_refused(records, content, message, capsys, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(trace_record_text(records[0]) if content is None else content)
    assert main(["rederive", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert main(["rederive", str(tmp_path / "nowhere.jsonl")]) == 2


def test_records_of_no_trace_are_not_run_from_traces(traces, capsys):
    own = made.__file__.rpartition("/tests/")[0] + "/testdata/runs/paired.json"
    assert main(["rederive", own, "--calibration", str(traces[0].folder), "--trace", "x"]) == 2
    assert "found a record that is not of a trace" in capsys.readouterr().err


def test_an_arm_is_the_transforms_of_the_scheme_of_its_name(traces):
    calibration = [traces[0].layer(0, index) for index in range(len(traces[0].sequences))]
    for name in ("balanced", "balanced-plain", "balanced-attention", "balanced-attention-keys"):
        arm = fit_layer(
            protocol("affine-midpoint", center_keys=True, sink=64, recent=256).scheme(name), calibration
        ).rotations
        fixed = dataclasses.replace(SCHEMES[name], clips="fixed")
        scheme = fit_layer(fixed, calibration).rotations
        assert (arm.key.sha256, arm.value.sha256) == (scheme.key.sha256, scheme.value.sha256), name
    arms = {name: protocol("affine-midpoint", center_keys=True).scheme(name) for name in ARM_NAMES}
    assert arms["balanced"].weights == "attention"
    assert arms["balanced-plain"].weights == "none"


def test_a_file_named_as_a_scheme_is_that_scheme(tmp_path, capsys):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    # With the windows of the scheme, half of the tokens have to be quantized.
    folders = (
        made.write_trace(tmp_path / "cal", 100, tokens=1600),
        made.write_trace(tmp_path / "eval", 200, sequences=6, tokens=1600),
    )
    traced = ["--calibration", str(folders[0])]
    own, other = tmp_path / "balanced.safetensors", tmp_path / "quarot.safetensors"
    assert main(["fit", *traced, "--scheme", "balanced", "-o", str(own)]) == 0
    grid = [
        "--centred",
        "--grid",
        "1,0.9,0.8,0.7,0.6,0.5,0.4",
        "--layer",
        "1",
        "--sink",
        "64",
        "--recent",
        "256",
    ]
    path = tmp_path / "records.jsonl"
    # As the documents have it, and beside the same arm by its name it would be one arm twice.
    assert main(arguments(folders, *grid, "--fitted", str(own), "-o", str(path))) == 0
    assert (
        main(
            [
                "rederive",
                str(path),
                *traced,
                "--trace",
                str(folders[1]),
                "--threads",
                "1",
                "--fitted",
                str(own),
            ]
        )
        == 0
    )
    (record,) = read_record_lines(str(path))
    named = tmp_path / "named.jsonl"
    assert main(arguments(folders, *grid, "--arm", "balanced", "-o", str(named))) == 0
    (other_record,) = read_record_lines(str(named))
    digests = [one.recipe.rotations[2].key_sha256 for one in (record, other_record)]
    assert digests[0] == digests[1]
    capsys.readouterr()
    assert main(arguments(folders, *grid, "--arm", "balanced", "--fitted", str(own), "-o", str(path))) == 2
    assert "an arm named 'balanced' is there already" in capsys.readouterr().err
    other.write_bytes(own.read_bytes())
    base = ["compare", *traced, "--trace", str(folders[1]), "--dialect", "affine-midpoint", "--arm", "oscar"]
    assert main([*base, "--centred", "--fitted", str(other), "-o", str(path)]) == 2
    assert (
        "named 'quarot' is not allowed for this file, which holds scheme 'balanced'"
        in capsys.readouterr().err
    )
    plain = tmp_path / "balanced-plain.safetensors"
    plain.write_bytes(own.read_bytes())
    assert main([*base, "--centred", "--fitted", str(plain), "-o", str(path)]) == 2


def test_a_record_of_a_name_that_was_given_up_is_run_as_what_it_was(records):
    """`kivi` with the fingerprint of the float32 dialect, as it was published; `quarot-token`, which was head-wise."""
    for name, digest, expected in (
        ("kivi", DIALECTS["kivi-float32"]["fingerprint_sha256"], "kivi-float32"),
        ("quarot-token", DIALECTS["quarot-token"]["fingerprint_sha256"], "quarot-head-wise"),
        ("kivi", DIALECTS["kivi"]["fingerprint_sha256"], "kivi"),
    ):
        changes = {"id": name, "fingerprint_sha256": digest}

        def change(record, changes=changes):
            record["recipe"]["dialect"].update(changes)
            if changes["id"] == "kivi":
                record["recipe"].update(clip_grid=[1.0])

        read = parse_record(json.dumps(resealed(records[0], change)).encode())
        assert protocol_of_trace(read).dialect == expected


def test_groups_that_span_heads_have_no_record():
    with pytest.raises(
        SpecError, match="dialect 'quarot-token-wise' is not allowed: its groups span the heads"
    ):
        protocol("quarot-token-wise")


def test_a_record_of_what_balanced_was_comes_out_again(traces):
    """Before it was the scheme's, the arm `balanced` had the transforms of the plain covariances."""
    compared = protocol(arms=("identity", "balanced"))
    calibration = [traces[0].layer(0, index) for index in range(len(traces[0].sequences))]
    plain = {0: fit_layer(compared.scheme("balanced-plain"), calibration).rotations}
    for fitted in ({"balanced": plain}, {}):
        (record,) = run(traces, compared, fitted=fitted)
        (done,) = rederive_traces(
            [parse_record(trace_record_text(record).encode())], *traces, processes=1, progress=silent
        )
        assert [each.field for each in done.rederived if not each.agrees] == []
