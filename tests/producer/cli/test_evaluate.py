"""`evaluate` with fitted files, against a published output, and `check`: what a changed figure does."""

import copy
import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from producer.cli import main
from producer.errors import FileFormatError, SpecError
from producer.experiment.trace.candidates import DumpCalibration, fit_candidates, from_calibration
from producer.experiment.trace.check_comparison import check_comparison, compare_comparisons
from producer.experiment.trace.perplexity import ModelErrors
from producer.experiment.trace.run_state import RunState, key_of_run
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import Fitted, write_fitted
from producer.scheme.fitted_layer import digest_of_layers
from producer.scheme.registry import SCHEMES
from producer.trace.files import read_trace
from tests.producer import made_traces as made

pytest.importorskip("safetensors", reason="the extra `trace` is not installed")


def write_scheme(path, name, trace):
    layers = {
        index: fit_layer(SCHEMES[name], [trace.layer(index, part) for part in range(len(trace.sequences))])
        for index in range(trace.model.num_layers)
    }
    write_fitted(path, Fitted(SCHEMES[name], trace.model, layers, trace.sequences))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A calibration and an evaluation trace, two fitted files, and a comparison of them."""
    root = tmp_path_factory.mktemp("evaluate")
    calibration = made.write_trace(root / "calibration", 100, sequences=1)
    made.write_trace(root / "evaluation", 200)
    for name in ("oscar", "balanced-clip"):
        write_scheme(root / f"{name}.safetensors", name, read_trace(calibration))
    command = ["evaluate", "--trace", str(root / "evaluation"), "--processes", "1"]
    fitted = [
        "--fitted",
        str(root / "oscar.safetensors"),
        "--fitted",
        f"mine={root}/balanced-clip.safetensors",
    ]
    assert main([*command, *fitted, "--rival", "oscar", "-o", str(root / "out.json")]) == 0
    return root


@pytest.fixture
def content(folder):
    return json.loads((folder / "out.json").read_text())


def test_a_file_gives_the_figures_of_the_calibration_that_it_holds(folder, content, tmp_path):
    folders = ["--calibration", str(folder / "calibration"), "--trace", str(folder / "evaluation")]
    output = tmp_path / "fresh.json"
    names = ["--scheme", "oscar", "--scheme", "balanced-clip"]
    assert main(["evaluate", *folders, *names, "--processes", "1", "-o", str(output)]) == 0
    fresh = json.loads(output.read_text())
    assert [scheme["name"] for scheme in content["schemes"]] == ["int2", "oscar", "mine"]
    for ours, theirs in zip(content["schemes"], fresh["schemes"], strict=True):
        assert ours["figures"] == theirs["figures"]
    source = content["schemes"][2]["source"]
    assert source["file_scheme"] == "balanced-clip"
    assert source["calibration"] == fresh["schemes"][2]["source"]["calibration"]
    assert len(source["file_sha256"]) == 64
    assert [len(digests) for digests in source["transforms_sha256"].values()] == [2, 2]
    assert content["schemes"][0]["source"] == {}


def test_a_rival_is_compared_text_by_text(content):
    by_name = {scheme["name"]: scheme for scheme in content["schemes"]}
    sums = {
        name: np.array(scheme["figures"]["error"]).sum(axis=(1, 2))
        / np.array(scheme["figures"]["reference"]).sum(axis=(1, 2))
        for name, scheme in by_name.items()
    }
    against = by_name["mine"]["summary"]["versus"]["oscar"]["relative_error"]
    assert against["rival_minus_scheme"]["mean"] == pytest.approx((sums["oscar"] - sums["mine"]).mean())
    assert against["scheme_over_rival"]["mean"] == pytest.approx(sums["mine"].sum() / sums["oscar"].sum())
    ratios = sums["mine"] / sums["oscar"]
    # With two texts a resample is one of them twice, or both.
    assert against["scheme_over_rival"]["low"] == pytest.approx(ratios.min())
    assert against["scheme_over_rival"]["high"] == pytest.approx(ratios.max())


def test_an_evaluation_text_that_a_file_was_fitted_to_is_refused(folder, capsys):
    command = ["evaluate", "--trace", str(folder / "calibration"), "--fitted", f"{folder}/oscar.safetensors"]
    assert main(command) == 2
    assert "contaminated: evaluation text 'calibration-0.txt'" in capsys.readouterr().err


def test_names_are_unique_and_a_scheme_needs_its_calibration(folder, capsys):
    command = ["evaluate", "--trace", str(folder / "evaluation")]
    fitted = [
        "--fitted",
        f"a={folder}/oscar.safetensors",
        "--fitted",
        f"a={folder}/balanced-clip.safetensors",
    ]
    assert main([*command, *fitted]) == 2
    assert "schemes a more than once are not allowed" in capsys.readouterr().err
    assert main([*command, "--scheme", "oscar"]) == 2
    assert (
        "scheme 'oscar' is not allowed: it is fitted to a calibration, and there is none"
        in capsys.readouterr().err
    )
    assert main([*command, "--scheme", "quarot"]) == 0
    other = ["--calibration", str(folder)]
    assert main([*command, *other]) == 2
    assert "not a trace" in capsys.readouterr().err


def test_what_was_written_checks(folder, content, capsys):
    assert check_comparison(content) == []
    assert main(["check", str(folder / "out.json")]) == 0
    assert capsys.readouterr().out == "all figures agree\n"


def change(content, pointer, by):
    *parents, last = [int(part) if part.isdigit() else part for part in pointer.strip("/").split("/")]
    value = content
    for part in parents:
        value = value[part]
    value[last] = by(value[last])
    return content


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("/schemes/1/summary/relative_error", "/schemes/1/summary/relative_error"),
        ("/schemes/1/summary/percent_of_int2", "/schemes/1/summary/percent_of_int2"),
        ("/schemes/2/summary/stored_bytes", "/schemes/2/summary/bits_per_element"),
        ("/schemes/2/figures/error/0/1/1", "/schemes/2/figures/error/0"),
        ("/schemes/2/figures/divergence/1/0/0", "/schemes/2/summary/divergence_nats"),
        ("/schemes/2/figures/reference/1/0/0", "/schemes/2/summary/relative_error"),
        (
            "/schemes/2/summary/versus/oscar/relative_error/scheme_over_rival/low",
            "/schemes/2/summary/versus/oscar/relative_error/scheme_over_rival/low",
        ),
        (
            "/schemes/1/summary/versus/int2/divergence_nats/rival_minus_scheme/high",
            "/schemes/1/summary/versus/int2/divergence_nats/rival_minus_scheme/high",
        ),
    ],
)
def test_a_changed_figure_is_found(content, tmp_path, pointer, found, capsys):
    changed = change(content, pointer, lambda value: value + 1 if isinstance(value, int) else value * 1.0001)
    pointers = [finding.pointer for finding in check_comparison(changed)]
    assert any(each.startswith(found) for each in pointers)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    assert main(["check", str(path), "--format", "json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"] is False
    assert [finding["pointer"] for finding in printed["findings"]] == pointers


def test_figures_of_another_shape_are_found(content):
    content["schemes"][1]["figures"]["error"].pop()
    content["schemes"][1]["figures"]["reference"].pop()
    with pytest.raises(FileFormatError, match="not a comparison of kvint2eval-comparison-v2"):
        check_comparison(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "format 'list' is not allowed"),
        ('{"format": "kvint2eval-comparison-v1"}', "format 'kvint2eval-comparison-v1' is not allowed"),
        ('{"format": "kvint2eval-comparison-v2"}', "not a comparison of kvint2eval-comparison-v2: KeyError"),
    ],
)
def test_what_is_no_comparison_ends_with_2(tmp_path, text, message, capsys):
    (tmp_path / "x.json").write_text(text)
    assert main(["check", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err


def test_a_fresh_comparison_is_held_against_a_published_one(folder, content, tmp_path, capsys):
    command = ["evaluate", "--trace", str(folder / "evaluation"), "--processes", "1", "--rival", "oscar"]
    command += [
        "--fitted",
        f"{folder}/oscar.safetensors",
        "--fitted",
        f"mine={folder}/balanced-clip.safetensors",
    ]
    assert main([*command, "--against", str(folder / "out.json")]) == 0
    assert capsys.readouterr().out == "all figures agree\n"
    path = tmp_path / "published.json"
    path.write_text(json.dumps(change(content, "/schemes/2/figures/error/0/0/0", lambda value: 1.2 * value)))
    assert main([*command, "--against", str(path), "--format", "json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [finding["pointer"] for finding in printed["findings"]] == ["/schemes/2/figures/error/0"]
    assert main([*command, "--against", str(path), "--tolerance", "0.5"]) == 0


def test_a_published_comparison_of_an_earlier_version_is_compared_by_what_it_says(content):
    """Those in testdata/runs hold a model of nine members; one that says another thing differs."""
    earlier = copy.deepcopy(content)
    names = ("config_sha256", "dtype", "layer_scaling", "tokenizer_sha256", "versions", "vocab_size")
    for name in names:
        del earlier["model"][name]
    for sequence in (*earlier["evaluation"], *earlier["schemes"][1]["source"]["calibration"]):
        del sequence["special_tokens"]
    assert compare_comparisons(content, earlier) == []
    assert len(earlier["model"]) == 9
    other = copy.deepcopy(content)
    other["model"]["config_sha256"] = "other"
    assert [one.pointer for one in compare_comparisons(content, other)] == ["/model/config_sha256"]
    del other["model"]["num_heads"]
    assert "/model/num_heads" in {one.pointer for one in compare_comparisons(content, other)}


def test_rounding_is_no_difference_and_another_run_is(content):
    def differing(pointer, by):
        changed = change(copy.deepcopy(content), pointer, by)
        return [finding.pointer for finding in compare_comparisons(content, changed)]

    assert differing("/schemes/1/figures/error/0/0/0", lambda value: value * (1 + 1e-4)) == []
    assert differing("/model/weights_sha256", lambda value: "0" + value[1:]) == ["/model/weights_sha256"]
    assert differing("/schemes/2/source/file_sha256", str.upper) == ["/schemes/2/source/file_sha256"]
    assert differing("/schemes/2/key_clip", lambda value: value / 2) == ["/schemes/2/key_clip"]
    assert differing("/schemes/2/name", lambda _: "another") == ["/schemes", "/schemes"]
    broken = copy.deepcopy(content)
    del broken["schemes"][1]["figures"]
    with pytest.raises(FileFormatError, match="KeyError"):
        compare_comparisons(content, broken)


# --- OSCAR's dumps as calibration ---


def test_a_dump_calibrates_what_needs_no_output_weights(folder, tmp_path):
    for layer_idx in range(2):
        made.write_dump(tmp_path / "dump", layer_idx, heads=4, kv_heads=2, d=32)
    output = tmp_path / "out.json"
    command = ["evaluate", "--calibration", str(tmp_path / "dump"), "--trace", str(folder / "evaluation")]
    assert main([*command, "--scheme", "oscar-centred", "--processes", "1", "-o", str(output)]) == 0
    source = json.loads(output.read_text())["schemes"][1]["source"]
    assert source["oscar_dump"] == "dump"
    assert len(source["oscar_dump_sha256"]) == 64


def test_a_dump_without_what_is_needed_is_refused(tmp_path):
    made.write_dump(tmp_path, 0, heads=4, kv_heads=2, d=8)
    dump = DumpCalibration(tmp_path, made.INFO)
    for name in ("balanced", "quarot-centred-tuned"):
        with pytest.raises(
            SpecError, match=r"it needs output weights, which the dump .* does not hold: a trace does"
        ):
            from_calibration(SCHEMES[name], dump, made.INFO)
    with pytest.raises(SpecError, match=r"dump .* \(4, 2, 8\) is not allowed: .* \(4, 2, 32\)"):
        fit_candidates([from_calibration(SCHEMES["oscar"], dump, made.INFO)], 0)


# --- token ids and the state of runs ---


def test_token_ids_come_back_and_faults_are_named(tmp_path):
    folder = made.write_trace(tmp_path / "t", 5)
    trace = read_trace(folder)
    assert (trace.token_ids(1) == made.token_ids(6, 400)).all()
    path = folder / "sequence-001.tokens.safetensors"
    path.replace(folder / "sequence-000.tokens.safetensors")
    with pytest.raises(
        FileFormatError, match=r"token ids of dtype int32, shape \(400,\) and SHA-256 .* are not"
    ):
        trace.token_ids(0)
    with pytest.raises(FileFormatError, match="which this trace does not hold; capture it again"):
        trace.token_ids(1)


ERRORS = ModelErrors(
    perplexity=9.5,
    reference_perplexity=8.25,
    divergence=0.1,
    top1_agreement=0.75,
    residual=np.array([0.1, 1 / 3]),
    first=512,
    tokens=2048,
)


def test_runs_that_are_done_are_read_again(tmp_path):
    path = tmp_path / "state.jsonl"
    state = RunState(path)
    assert state.get("a") is None
    state.add("a", "int2", "text", ERRORS)
    state.add("b", "oscar", "text", ERRORS)
    with path.open("a") as stream:
        stream.write('{"format": "kvint2eval-mo')  # cut off
    again = RunState(path)
    found = again.get("b")
    assert found.residual.tolist() == ERRORS.residual.tolist()
    assert (found.perplexity, found.first, found.tokens) == (9.5, 512, 2048)
    again.add("c", "oscar", "other", ERRORS)
    assert RunState(path).get("c") is not None
    assert len(path.read_text().splitlines()) == 3
    assert RunState(None).get("a") is None


def test_a_state_of_something_else_is_refused(tmp_path):
    path = tmp_path / "state.jsonl"
    path.write_text('{"format": "other", "key": "a"}\n')
    with pytest.raises(FileFormatError, match="line 1 is no run of kvint2eval-model-run-v2"):
        RunState(path)
    path.write_text('{"format": "kvint2eval-model-run-v1", "key": "a"}\n')
    with pytest.raises(
        FileFormatError, match="runs of an earlier version, which names the model by its weights"
    ):
        RunState(path)


def test_a_run_is_found_by_all_that_it_depends_on(folder):
    trace = read_trace(folder / "calibration")
    fitted = {
        name: [fit_layer(SCHEMES[name], [trace.layer(index, 0)]) for index in range(2)]
        for name in ("oscar", "oscar-centred")
    }
    model = made.INFO

    def key(layers=fitted["oscar"], text="t", first=512, device="cpu", **changes):
        return key_of_run(dataclasses.replace(model, **changes), device, text, first, layers)

    others = [
        key(weights_sha256="x"),
        key(config_sha256="x"),
        key(tokenizer_sha256="x"),
        key(dtype="bfloat16"),
        key(versions=("torch 1",)),
        key(device="cuda"),
        key(text="u"),
        key(first=513),
        key(fitted["oscar-centred"]),
        key(fitted["oscar"][::-1]),
    ]
    assert len({key(), *others}) == 11
    # The name of a folder is no property of a model, and one GPU is as good as another.
    assert key(name="another") == key()
    assert key(device="cuda:1") == key(device="cuda")
    assert digest_of_layers(fitted["oscar"]) == digest_of_layers(dict(enumerate(fitted["oscar"])))


def test_what_is_known_before_a_late_refusal_is_kept(folder, tmp_path, monkeypatch, capsys):
    """The model fails after the schemes were compared: their figures are in the file, and can be checked."""
    from producer.experiment.trace import model_runs  # noqa: PLC0415

    def late(*_args, **_options):
        raise SpecError("the model cannot be run")

    monkeypatch.setattr(model_runs, "require_model_of", lambda *_args, **_options: SimpleNamespace(notes=()))
    monkeypatch.setattr(model_runs, "run_schemes", late)
    output = tmp_path / "out.json"
    words = ["evaluate", "--trace", str(folder / "evaluation"), "--scheme", "quarot", "--processes", "1"]
    words += ["--model", str(folder), "--first-token", "350", "-o", str(output)]
    assert main(words) == 2
    assert "the model cannot be run" in capsys.readouterr().err
    content = json.loads(output.read_text())
    assert [scheme["name"] for scheme in content["schemes"]] == ["int2", "quarot"]
    assert all(scheme["runs"] == [] for scheme in content["schemes"])
    assert main(["check", str(output)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--first-token", "400"], "first scored token 400 is not allowed: 1 … 399"),
        (["--first-token", "320"], "cache not exercised before token 321"),
        (["--overlap", "2"], "overlap 2.0 is not allowed: a share, 0 … 1"),
        (["--dtype", "bfloat16"], "dtype bfloat16 is not allowed: the trace was captured in float32"),
        (["--device", "abacus"], "device 'abacus' is not allowed: cpu, cuda or cuda:N"),
    ],
)
def test_arguments_of_runs_are_checked_before_the_schemes_are_compared(
    folder, monkeypatch, capsys, words, message
):
    from producer.experiment.trace import compare_schemes  # noqa: PLC0415

    monkeypatch.setattr(compare_schemes, "compare_schemes", None)
    command = [
        "evaluate",
        "--trace",
        str(folder / "evaluation"),
        "--scheme",
        "quarot",
        "--model",
        str(folder),
    ]
    assert main([*command, "--first-token", "350", *words]) == 2
    assert message in capsys.readouterr().err


def test_options_of_runs_need_the_model(folder, capsys):
    for word in (["--untrained"], ["--dtype", "float32"], ["--device", "cuda"], ["--state", "s"]):
        assert main(["evaluate", "--trace", str(folder / "evaluation"), *word]) == 2
        assert f"{word[0]} without --model is not allowed" in capsys.readouterr().err


def test_an_overlap_is_printed_and_one_that_is_allowed_is_no_refusal(folder, capsys):
    words = ["evaluate", "--trace", str(folder / "calibration"), "--calibration", str(folder / "calibration")]
    words += ["--scheme", "oscar", "--processes", "1"]
    assert main(words) == 2
    assert "contaminated" in capsys.readouterr().err
    assert main([*words, "--overlap", "1"]) == 0
    assert (
        "note: largest overlap of a text of the calibration with one of the trace: 100 %"
        in capsys.readouterr().err
    )
