"""What `evaluate`, `fit` and `plot` take: own schemes, published rotation files, dumps, finished comparisons."""

import dataclasses
import json
import warnings
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from producer.cli import main
from producer.errors import FileFormatError, SpecError
from producer.experiment.trace.candidates import from_calibration, misfit
from producer.experiment.trace.check_comparison import renamed_dialects
from producer.experiment.trace.plot import frontier_of
from producer.scheme.fitted_file import read_fitted_file
from producer.scheme.own_scheme import parse_schemes
from producer.scheme.registry import SCHEMES, Scheme
from producer.trace.files import read_trace, write_arrays
from producer.transform.oscar import build_oscar
from producer.transform.oscar_file import write_oscar_rotations
from tests.helpers import ROOT, TESTDATA
from tests.producer import made_traces as made

pytest.importorskip("safetensors", reason="the extra `trace` is not installed")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("schemes")
    return made.write_trace(root / "calibration", 100, sequences=1), made.write_trace(
        root / "evaluation", 200
    )


def changed(folder, change, info=made.INFO, sequences=2, seed=200):
    """Write a trace whose arrays were changed."""
    made.write_trace(folder, seed, info=info, sequences=sequences)
    for layer_idx in range(info.num_layers):
        for index in range(sequences):
            arrays = made.layer_arrays(seed + 10 * index + layer_idx, 400, info)
            change(layer_idx, arrays)
            write_arrays(folder, layer_idx, index, arrays)
    return folder


def evaluate(folders, output, *others):
    asked = ["--calibration", str(folders[0])] if folders[0] else []
    return main(
        ["evaluate", *asked, "--trace", str(folders[1]), "--processes", "1", "-o", str(output), *others]
    )


# --- schemes of one's own ---


def test_own_schemes_are_compared_beside_others(folders, tmp_path):
    output, file = tmp_path / "out.json", tmp_path / "mine.toml"
    file.write_text(
        '[[scheme]]\nname = "four"\nkeys = {bits = 4}\nvalues = {bits = 4}\n[[scheme]]\nname = "eight"\n'
        "keys = {bits = 8}\nvalues = {bits = 8}\n"
    )
    table = '{name = "mixed", keys = {bits = 4}, values = {bits = 4}, layers = [{layers = [-1], keys = {bits = 8}}]}'
    assert (
        evaluate((None, folders[1]), output, "--scheme", str(file), "--scheme", table, "--scheme", "int4")
        == 0
    )
    found = {scheme["name"]: scheme for scheme in json.loads(output.read_text())["schemes"]}
    assert list(found) == ["int2", "four", "eight", "mixed", "int4"]
    assert found["four"]["figures"] == found["int4"]["figures"]
    errors = {name: np.array(scheme["figures"]["key_part"]) for name, scheme in found.items()}
    # The last layer of `mixed` has the keys of eight bits, the first those of four.
    assert (errors["mixed"][:, 0] == errors["four"][:, 0]).all()
    assert (errors["mixed"][:, 1] == errors["eight"][:, 1]).all()
    assert found["mixed"]["source"] == {"layers": [{"layers": [-1], "key_dialect": "affine-midpoint-8bit"}]}
    bits = {name: scheme["summary"]["bits_per_element"] for name, scheme in found.items()}
    assert bits["four"] < bits["mixed"] < bits["eight"]
    assert main(["check", str(output)]) == 0


def test_an_own_scheme_is_fitted_and_read(folders, tmp_path, capsys):
    output, file = tmp_path / "fitted.safetensors", tmp_path / "mine.toml"
    file.write_text('name = "mine"\nbase = "quarot-centred-tuned"\nvalues = {group_size = 16}\n')
    assert main(["fit", "--calibration", str(folders[0]), "--scheme", str(file), "-o", str(output)]) == 0
    assert read_fitted_file(output).scheme == dataclasses.replace(
        SCHEMES["quarot-centred-tuned"], name="mine", value_group_size=16
    )
    result = tmp_path / "out.json"
    assert evaluate((folders[0], folders[1]), result, "--scheme", str(file)) == 0
    assert evaluate((None, folders[1]), tmp_path / "other.json", "--fitted", str(output)) == 0
    one, other = (json.loads(path.read_text())["schemes"][1] for path in (result, tmp_path / "other.json"))
    assert one["figures"] == other["figures"]
    capsys.readouterr()
    file.write_text('name = "mine"\nlayers = [{layers = [0], keys = {bits = 4}}]\n')
    assert main(["fit", "--calibration", str(folders[0]), "--scheme", str(file), "-o", str(output)]) == 2
    assert "one scheme for all layers, which is what a file holds" in capsys.readouterr().err


def test_a_scheme_that_is_not_allowed_is_said_before_any_work(folders, tmp_path, capsys):
    output = tmp_path / "out.json"
    for text, message in (
        ('{name = "m", keys = {bits = 5}}', "--scheme: keys.bits: found 5, allowed: 2, 3, 4, 8"),
        (
            '{name = "m", layers = [{layers = [7], keys = {bits = 4}}]}',
            "scheme 'm': layers: found 7, allowed: -2 … 1",
        ),
        (
            '{name = "m", keys = {group_size = 24}}',
            "keys: group_size 24 is not allowed: it must divide head_dim 32",
        ),
        (str(tmp_path / "none.toml"), "none.toml"),
        ("nope", "scheme 'nope' is not allowed: one of int2"),
        (
            "centred",
            "scheme 'centred' is not allowed: it is fitted to a calibration, and there is none: --calibration",
        ),
    ):
        assert evaluate((None, folders[1]), output, "--scheme", text) == 2
        assert message in capsys.readouterr().err
    assert not output.exists()


def test_the_example_of_the_page_is_a_scheme(folders, tmp_path):
    text = (ROOT / "docs/methods/schemes.md").read_text(encoding="utf-8")
    (example,) = (part.partition("```")[0] for part in text.split("```toml\n")[1:])
    file, output = tmp_path / "mine.toml", tmp_path / "out.json"
    file.write_text(example)
    assert evaluate(folders, output, "--scheme", str(file)) == 0
    found = json.loads(output.read_text())["schemes"]
    assert [scheme["name"] for scheme in found] == ["int2", "mine"]
    assert found[1]["source"]["layers"][0]["layers"] == [0, -1]


# --- what a model or a calibration cannot have ---


@pytest.mark.parametrize("head_dim", [80, 96, 92])
def test_without_names_what_the_shape_cannot_have_is_left_out(tmp_path, capsys, head_dim):
    info = dataclasses.replace(made.INFO, head_dim=head_dim, scaling=head_dim**-0.5)
    traces = (
        made.write_trace(tmp_path / "c", 100, info=info),
        made.write_trace(tmp_path / "e", 200, info=info),
    )
    output = tmp_path / "out.json"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(traces, output) == 0
    content = json.loads(output.read_text())
    compared, left = {scheme["name"] for scheme in content["schemes"]}, content["left_out"]
    assert compared | left.keys() == SCHEMES.keys()
    assert not compared & left.keys()
    # Orders 80 = 4·20 and 96 = 8·12 are Paley's, doubled; 92 needs a search.
    assert ("balanced" in compared) == (head_dim != 92)
    assert "QuaRot's rotation" in left["quarot"]
    assert "order by bit reversal" in left["oscar"]
    assert ("kivi" in compared) == (head_dim == 96)
    shown = capsys.readouterr().err
    assert "note: left out: quarot, quarot-centred, quarot-centred-lloyd-max" in shown
    assert evaluate(traces, output, "--scheme", "quarot") == 2
    assert 'a scheme of your own with transform = "hadamard" has more orders' in capsys.readouterr().err
    if head_dim != 92:
        table = '{name = "way", keys = {transform = "hadamard"}, values = {transform = "hadamard"}}'
        assert evaluate(traces, output, "--scheme", table) == 0


def test_without_names_what_a_dump_cannot_have_is_left_out(folders, tmp_path, capsys):
    for layer_idx in range(2):
        made.write_dump(tmp_path / "dump", layer_idx, heads=4, kv_heads=2, d=32)
    output = tmp_path / "out.json"
    assert evaluate((tmp_path / "dump", folders[1]), output) == 0
    left = json.loads(output.read_text())["left_out"]
    expected = {
        name
        for name, scheme in SCHEMES.items()
        if scheme.clips == "tuned" or "balanced" in scheme.key_rotation
    }
    assert left.keys() == expected
    assert all("it needs output weights, which the dump" in reason for reason in left.values())
    assert evaluate((None, folders[1]), output) == 0
    assert "oscar" in json.loads(output.read_text())["left_out"]
    assert "it is fitted to a calibration, and there is none" in capsys.readouterr().err


def test_groups_of_tokens_begin_where_the_sink_ends():
    scheme = dataclasses.replace(SCHEMES["kivi"], name="other", sink=50)
    fault = misfit(scheme, None, made.INFO)
    assert fault == (
        "keys: kivi-key: sink 50 is not allowed: a multiple of 32, since groups of tokens begin after it and "
        "are the same "
        "in a cache and in a run of the model"
    )
    with pytest.raises(SpecError, match="scheme 'other' is not allowed: keys: kivi-key: sink 50"):
        from_calibration(scheme, None, made.INFO)
    assert misfit(SCHEMES["kivi"], None, made.INFO) is None


def test_a_token_wise_scheme_stores_two_scalars_a_token(folders):
    trace = read_trace(folders[1])
    layer = from_calibration(SCHEMES["quarot-native-token-wise"], None, trace.model).fit(0, None)
    side = layer.store_side("key", trace.layer(0, 0).k)
    # 80 tokens of 2 heads of 32 channels: 16 bytes of codes and 8 of scalars each; 320 tokens in 16 bits.
    assert side.stored_bytes == 80 * (16 + 8) + 320 * 64 * 2
    assert float(side.bits_per_element) == 8 * side.stored_bytes / (400 * 64)


# --- inputs at the edge ---


def _zero(layer_idx, arrays):
    if layer_idx == 1:
        arrays["v"][:] = 0


def _all_zero(_layer_idx, arrays):
    arrays["v"][:] = 0


def _constant(_layer_idx, arrays):
    arrays["k"][:] = 2
    arrays["v"][:] = 1.5


def _zero_head(layer_idx, arrays):
    if layer_idx == 0:
        arrays["v"][1] = 0


@pytest.mark.parametrize(
    ("change", "names", "code", "message"),
    [
        (_zero, ["quarot-centred-tuned", "oscar", "kivi", "quarot-native", "turboquant-3bit"], 0, ""),
        (_zero_head, ["oscar-centred-tuned", "kivi", "quarot-native-token-wise", "float8-e4m3"], 0, ""),
        (
            _zero,
            ["balanced"],
            2,
            "scheme 'balanced', layer 1, KV head 0: the values as they are stored: found zeros",
        ),
        (
            _zero_head,
            ["oscar-feedback"],
            2,
            "scheme 'oscar-feedback', layer 0, KV head 1: the values as they are",
        ),
        (
            _all_zero,
            ["quarot"],
            2,
            "the attention output of 'e-0.txt' is 0 in every layer: nothing to compare with",
        ),
        (_constant, ["quarot"], 2, "int2 makes no error in any layer"),
        (
            _constant,
            ["balanced-clip"],
            2,
            "layer 0, KV head 0: the keys as they are stored: found zeros at every",
        ),
    ],
)
def test_degenerate_inputs_are_measured_or_refused_by_place(tmp_path, capsys, change, names, code, message):
    traces = changed(tmp_path / "c", change, seed=100), changed(tmp_path / "e", change)
    output = tmp_path / "out.json"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = [part for name in names for part in ("--scheme", name)]
        assert evaluate(traces, output, *asked) == code
        assert message in capsys.readouterr().err
        if code == 0:
            assert "NaN" not in output.read_text()
            pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
            assert main(["plot", str(output), "-o", str(tmp_path / "p.svg")]) == 0


def test_a_group_that_a_quantizer_cannot_store_is_named_with_its_layer(tmp_path, capsys):
    def change(layer_idx, arrays):
        if layer_idx == 1:
            arrays["v"][1, 100] = 0.5

    traces = changed(tmp_path / "c", change, seed=100), changed(tmp_path / "e", change)
    table = '{name = "r", values = {dialect = "rotatekv"}}'
    assert evaluate(traces, tmp_path / "out.json", "--scheme", table) == 2
    shown = capsys.readouterr().err
    # Head 1, token 100 less the 64 of the sink.
    assert (
        "scheme 'r', layer 1, 'e-0.txt' (heads first): rotatekv: the stored scale of group [1, 36, 0] is 0.0"
        in shown
    )


# --- names and files of --fitted ---


def test_an_equals_sign_in_a_path_is_no_name(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run=3").mkdir()
    fitted = tmp_path / "run=3" / "o.safetensors"
    assert main(["fit", "--calibration", str(folders[0]), "--scheme", "quarot", "-o", str(fitted)]) == 0
    output = tmp_path / "out.json"

    def names(*entries):
        asked = [part for entry in entries for part in ("--fitted", entry)]
        assert evaluate((None, folders[1]), output, *asked) == 0
        return [scheme["name"] for scheme in json.loads(output.read_text())["schemes"]][1:]

    assert names("run=3/o.safetensors") == ["quarot"]
    assert names("mine=run=3/o.safetensors") == ["mine"]
    assert names(str(fitted)) == ["quarot"]
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "o.safetensors").write_bytes(fitted.read_bytes())
    capsys.readouterr()
    assert evaluate((None, folders[1]), output, "--fitted", "run=3/o.safetensors") == 2
    assert "write ./run=3/o.safetensors or run=./3/o.safetensors" in capsys.readouterr().err
    assert names("./run=3/o.safetensors", "b=./3/o.safetensors") == ["quarot", "b"]
    assert evaluate((None, folders[1]), output, "--fitted", "=3/o.safetensors") == 2


# --- rotation files of OSCAR ---


def _structured(_layer_idx, arrays):
    """Queries and keys with a covariance of their own, as those of models have."""
    rng = np.random.default_rng(5)
    for name in ("q", "k", "v"):
        basis = np.linalg.qr(rng.standard_normal((32, 32)))[0] * np.geomspace(8, 0.1, 32)
        arrays[name][:] = arrays[name] @ basis.astype(np.float32)


@pytest.fixture(scope="module")
def structured(tmp_path_factory):
    root = tmp_path_factory.mktemp("structured")
    return changed(root / "c", _structured, seed=100), changed(root / "e", _structured)


def _rotations(trace, *, per_head, transposed=False):
    found = {}
    for side, target in (("key", "qqt"), ("value", "sst")):
        found[side] = {}
        for index in range(2):
            layer = trace.layer(index, 0)
            rotation = build_oscar(target, layer.q, layer.k, layer.v, is_per_head=per_head)
            matrices = rotation.matrices.swapaxes(1, 2).copy() if transposed else rotation.matrices
            found[side][index] = dataclasses.replace(rotation, matrices=matrices)
    return found


def _published(path, rotations, side):
    """Write a file as others publish it: without a probe."""
    torch = pytest.importorskip("torch")
    write_oscar_rotations(path, rotations[side], side, "qqt" if side == "key" else "sst")
    content = torch.load(path)
    for layer in content["layers"].values():
        del layer["kvint2eval_probe"]
    torch.save(content, path)
    return str(path)


def test_a_published_rotation_file_is_evaluated(structured, tmp_path, capsys):
    rotations = _rotations(read_trace(structured[0]), per_head=False)
    files = [_published(tmp_path / f"{side}.pt", rotations, side) for side in ("key", "value")]
    output = tmp_path / "out.json"
    asked = [part for file in files for part in ("--rotations", file)]
    assert evaluate((None, structured[1]), output, *asked) == 0
    found = json.loads(output.read_text())["schemes"][1]
    assert (found["name"], found["key_rotation"], found["value_rotation"]) == ("oscar-file", "file", "file")
    assert found["source"]["construction"] == {"key": "file", "value": "file"}
    assert found["source"]["transpose_not_told"] == {"key": [], "value": []}
    assert len(found["source"]["files_sha256"]["key"]) == 64
    # The same rotations as the scheme that is fitted to that calibration.
    assert evaluate(structured, tmp_path / "fit.json", "--scheme", "oscar-layer") == 0
    other = json.loads((tmp_path / "fit.json").read_text())["schemes"][1]
    error = [np.array(scheme["figures"]["error"]).sum() for scheme in (found, other)]
    assert error[0] < 1.2 * error[1]
    assert evaluate((None, structured[1]), output, "--rotations", files[0], "--rotations", files[0]) == 2
    assert "holds the key rotations already" in capsys.readouterr().err
    assert evaluate((None, structured[1]), output, "--rotations", files[0]) == 0
    assert json.loads(output.read_text())["schemes"][1]["value_rotation"] == "identity"
    assert evaluate((None, structured[1]), output, "--rotations", f"value={files[0]}") == 2
    assert "is this the file of the other side?" in capsys.readouterr().err


def test_a_transposed_rotation_is_told_by_the_model_s_covariance(structured, tmp_path, capsys):
    trace = read_trace(structured[0])
    for per_head in (False, True):
        wrong = _rotations(trace, per_head=per_head, transposed=True)
        for side in ("key", "value"):
            path = _published(tmp_path / f"{side}.pt", wrong, side)
            assert (
                evaluate((None, structured[1]), tmp_path / "out.json", "--rotations", f"{side}={path}") == 2
            )
            assert f"layer 0: the {side} rotation looks transposed" in capsys.readouterr().err
    right = _published(tmp_path / "right.pt", _rotations(trace, per_head=True), "key")
    assert evaluate((None, structured[1]), tmp_path / "out.json", "--rotations", right) == 2
    assert (
        f"does not say whether the rotations are of keys or of values: write key={right}"
        in capsys.readouterr().err
    )
    assert evaluate((None, structured[1]), tmp_path / "out.json", "--rotations", f"key={right}") == 0


def test_where_nothing_tells_a_transpose_the_figures_say_so(folders, tmp_path):
    """Queries that are alike in every direction have no basis of their own."""
    rotations = _rotations(read_trace(folders[0]), per_head=False)
    path = _published(tmp_path / "key.pt", rotations, "key")
    assert evaluate((None, folders[1]), tmp_path / "out.json", "--rotations", path) == 0
    source = json.loads((tmp_path / "out.json").read_text())["schemes"][1]["source"]
    assert source["transpose_not_told"]["key"] == [0, 1]


# --- dumps in `fit` ---


def test_a_dump_is_fitted_as_a_trace_is(folders, tmp_path, capsys):
    for layer_idx in range(2):
        made.write_dump(tmp_path / "dump", layer_idx, heads=4, kv_heads=2, d=32)
    output, dump = tmp_path / "o.safetensors", str(tmp_path / "dump")
    arguments = ["fit", "--calibration", dump, "--scheme", "oscar", "-o", str(output)]
    assert main(arguments) == 2
    assert "is not allowed without --trace: a dump does not name its model" in capsys.readouterr().err
    assert main([*arguments, "--trace", str(folders[1])]) == 0
    assert "nothing tells whether an evaluation has seen them" in capsys.readouterr().err
    fitted = read_fitted_file(output)
    assert fitted.calibration[0].name == "dump dump"
    assert fitted.calibration[0].passages == ()
    assert evaluate((tmp_path / "dump", folders[1]), tmp_path / "a.json", "--scheme", "oscar") == 0
    assert evaluate((None, folders[1]), tmp_path / "b.json", "--fitted", str(output)) == 0
    one, other = (json.loads((tmp_path / name).read_text())["schemes"][1] for name in ("a.json", "b.json"))
    assert one["figures"] == other["figures"]
    assert main([*arguments[:3], "--scheme", "balanced", "--trace", str(folders[1]), "-o", str(output)]) == 2
    assert "it needs output weights, which the dump" in capsys.readouterr().err
    small = tmp_path / "small"
    for layer_idx in range(2):
        made.write_dump(small, layer_idx, heads=4, kv_heads=2, d=8)
    assert (
        main(
            [
                "fit",
                "--calibration",
                str(small),
                "--scheme",
                "oscar",
                "--trace",
                str(folders[1]),
                "-o",
                str(output),
            ]
        )
        == 2
    )
    assert "(4, 2, 8) is not allowed: the model has (4, 2, 32)" in capsys.readouterr().err


# --- pictures ---

RUN = {
    "perplexity": 12.0,
    "reference_perplexity": 10.0,
    "divergence_nats": 0.1,
    "top1_agreement": 0.9,
    "residual_by_layer": [0.01, 0.02],
    "first_token": 350,
    "tokens": 400,
}


@pytest.fixture(scope="module")
def compared(folders, tmp_path_factory):
    path = tmp_path_factory.mktemp("compared") / "out.json"
    names = [part for name in ("quarot", "balanced", "int8") for part in ("--scheme", name)]
    assert evaluate(folders, path, *names) == 0
    return path


def test_pictures_are_drawn_from_the_json(compared, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    assert main(["plot", str(compared), "-o", str(tmp_path / "p.svg")]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / f"p-{name}.svg") for name in ("error", "frontier")
    ]
    assert ET.parse(tmp_path / "p-frontier.svg").getroot().tag.endswith("svg")  # noqa: S314 - written just now
    first = (tmp_path / "p-error.svg").read_bytes()
    assert main(["plot", str(compared), "-o", str(tmp_path / "p.svg"), "--picture", "error"]) == 0
    assert (tmp_path / "p-error.svg").read_bytes() == first
    assert main(["plot", str(compared), "-o", str(tmp_path / "p.svg"), "--picture", "model"]) == 2
    assert "the comparison holds no runs of a model (--model)" in capsys.readouterr().err
    assert main(["plot", str(compared), "-o", str(tmp_path / "p.pdf")]) == 2
    assert main(["plot", str(tmp_path / "none.json"), "-o", str(tmp_path / "p.svg")]) == 2


@pytest.mark.parametrize("name", ["balanced-seeds", "balanced-fresh"])
def test_pictures_of_published_comparisons(name, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["plot", str(TESTDATA / f"runs/{name}.json"), "-o", str(tmp_path / "p.png")]) == 0
    drawn = capsys.readouterr().out.split()
    assert [path.rsplit("-", 1)[1] for path in drawn] == [
        "error.png",
        "residual.png",
        "model.png",
        "frontier.png",
    ]
    assert all((tmp_path / path).read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_the_frontier_is_what_no_other_beats():
    points = [(2.5, 0.5), (2.5, 0.1), (3.0, 0.2), (4.0, 0.01), (8.0, 0.01), (2.0, 0.9)]
    assert frontier_of(points) == [5, 1, 3]
    assert frontier_of([]) == []


def test_a_table_s_percentage_is_the_quotient_of_its_column(folders, tmp_path, capsys):
    capsys.readouterr()
    assert evaluate(folders, tmp_path / "o.json", "--scheme", "quarot") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    errors = {row[0]: (float(row[1]), float(row[2])) for row in rows[1:]}
    assert errors["quarot"][1] == pytest.approx(100 * errors["quarot"][0] / errors["int2"][0], abs=0.02)


def test_a_comparison_of_a_name_that_was_given_up_says_what_it_is(compared, tmp_path, capsys):
    content = json.loads(compared.read_text())
    digest = json.loads((ROOT / "testdata/vectors/fingerprints.json").read_text())["kivi-float32-key"]
    content["schemes"][1] |= {"fingerprints": {"kivi-key": digest}}
    assert renamed_dialects(content) == [
        "scheme 'quarot': its dialect 'kivi-key' is 'kivi-float32-key', by its fingerprint"
    ]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    assert main(["check", str(path)]) == 0
    assert "note: scheme 'quarot': its dialect 'kivi-key' is 'kivi-float32-key'" in capsys.readouterr().err


def test_a_free_scheme_of_a_user_needs_no_calibration():
    (own,) = parse_schemes('{name = "m", keys = {transform = "hadamard"}}')
    candidate = from_calibration(own, None, made.INFO)
    assert (candidate.sequences, candidate.source) == ((), {})
    assert isinstance(candidate.scheme, Scheme)
    with pytest.raises(FileFormatError):
        read_trace(ROOT)
