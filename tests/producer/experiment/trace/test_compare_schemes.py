"""Schemes on made traces: errors against a second computation, their parts, bits, the command."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from producer.cli import main
from producer.errors import SpecError
from producer.experiment.trace.candidates import TraceCalibration, from_calibration
from producer.experiment.trace.compare_schemes import METRICS, compare_schemes
from producer.scheme.fit import fit_layer
from producer.scheme.registry import SCHEMES, Scheme, get_scheme
from producer.trace.files import read_trace
from tests.producer import made_traces as made
from tests.producer.cache_errors import head_errors

F = np.float32


def silent(_done, _total, _what):
    pass


def compare(names, calibration, evaluation, processes=1, rivals=()):
    fitted_on = TraceCalibration(calibration)
    candidates = [from_calibration(SCHEMES[name], fitted_on, evaluation.model) for name in names]
    return compare_schemes(candidates, evaluation, processes, silent, rivals)


def by_hand(layer, keys, values, queries):
    """Error, parts, reference and divergence, query by query in plain floats."""
    found = np.zeros((6, layer.num_kv_heads))
    tokens = layer.seq_len
    for j in range(layer.q.shape[0]):
        kv = j // (layer.q.shape[0] // layer.num_kv_heads)
        for t in range(tokens - queries, tokens):

            def weights(k, j=j, t=t):
                scores = [
                    float(layer.q[j, t].astype(float) @ k[s].astype(float)) * layer.scaling
                    for s in range(t + 1)
                ]
                top = max(scores)
                raised = [math.exp(score - top) for score in scores]
                return np.array(raised) / math.fsum(raised)

            p, other = weights(layer.k[kv]), weights(keys[kv])
            w = layer.w_o[j].astype(float)
            y = p @ layer.v[kv, : t + 1].astype(float) @ w
            changed = other @ values[kv, : t + 1].astype(float) @ w
            between = other @ layer.v[kv, : t + 1].astype(float) @ w
            key, value = between - y, changed - between
            found[:, kv] += [
                ((changed - y) ** 2).sum(),
                (key**2).sum(),
                (value**2).sum(),
                2 * key @ value,
                (y**2).sum(),
                (p * np.log(p / other)).sum(),
            ]
    return found


def test_errors_are_those_of_a_second_computation():
    layer = made.layer(3, tokens=40)
    rng = np.random.default_rng(4)
    keys = layer.k + F(0.3) * rng.standard_normal(layer.k.shape).astype(F)
    values = layer.v + F(0.2) * rng.standard_normal(layer.v.shape).astype(F)
    errors = head_errors(layer, keys, values, num_queries=7)
    expected = by_hand(layer, keys, values, 7)
    for name, row in zip(METRICS, expected, strict=True):
        assert getattr(errors, name) == pytest.approx(row, rel=1e-9), name
    assert errors.queries == 2 * 7


def test_exact_keys_and_values_have_no_error():
    layer = made.layer(5, tokens=30)
    errors = head_errors(layer, layer.k, layer.v, 8)
    assert (errors.error == 0).all()
    assert np.abs(errors.divergence).max() == 0
    assert (errors.reference > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_queries": 31}, "31 queries are not allowed: 1 … 30, the tokens"),
        ({"keys": np.ones((2, 3, 4), F)}, "are not allowed"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    layer = made.layer(5, tokens=30)
    with pytest.raises(SpecError, match=message):
        head_errors(layer, **{"keys": layer.k, "values": layer.v, **change})


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_every_scheme_keeps_its_windows_and_changes_the_rest(scheme):
    layer = made.layer(6, tokens=420)
    fitted = fit_layer(scheme, [made.layer(7, tokens=400), made.layer(8, tokens=200)])
    for side, x in (
        (fitted.store_side("key", layer.k), layer.k),
        (fitted.store_side("value", layer.v), layer.v),
    ):
        start, end = side.tokens.sink, side.tokens.sink + side.tokens.quantized
        assert (side.tokens.sink, side.tokens.total) == (64, 420)
        assert side.tokens.recent in ({256} if scheme.group_size == 0 else {256, 260})
        assert (side.restored()[:, :start] == x[:, :start]).all()
        assert (side.restored()[:, end:] == x[:, end:]).all()
        # Witness 44: a quantized arm that equals the exact one quantized nothing.
        assert (np.abs(side.restored()[:, start:end] - x[:, start:end]).max(axis=-1) > 0).all()
        assert side.stored_bytes * 8 == pytest.approx(float(side.bits_per_element) * x.size)
    whole_k, whole_v = fitted.quantize_all(layer.k, layer.v)
    if scheme.group_size == 0:
        keys = fitted.store_side("key", layer.k)
        middle = slice(64, 420 - 256)
        assert np.abs(whole_k[:, middle] - keys.restored()[:, middle]).max() <= 1e-5 * np.abs(layer.k).max()
    assert whole_v.shape == layer.v.shape


def test_centring_and_rotation_help_keys_with_a_mean_and_outliers():
    fitted_on, layer = made.layer(9), made.layer(10)
    errors = {}
    for name in ("int2", "centred", "quarot", "quarot-centred", "oscar-centred"):
        fitted = fit_layer(SCHEMES[name], [fitted_on])
        found = head_errors(
            layer,
            *fitted.store(layer.k, layer.v).restored(),
        )
        errors[name] = found.error.sum() / found.reference.sum()
    assert errors["int2"] > errors["centred"]
    assert errors["int2"] > errors["quarot"] > errors["quarot-centred"]


@pytest.fixture
def traces(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    calibration = made.write_trace(tmp_path / "calibration", 100, sequences=1)
    return calibration, made.write_trace(tmp_path / "evaluation", 200)


def test_a_comparison_sums_what_its_layers_give(traces):
    calibration, evaluation = map(read_trace, traces)
    comparison = compare(("int2", "quarot-centred", "oscar"), calibration, evaluation)
    assert comparison.figures.shape == (3, 6, 2, 2, 2)
    layer = evaluation.layer(1, 1)
    fitted = fit_layer(SCHEMES["oscar"], [calibration.layer(1, 0)])
    alone = head_errors(layer, *fitted.store(layer.k, layer.v).restored())
    assert comparison.figures[2, 0, 1, 1].tolist() == alone.error.tolist()
    summary = comparison.summary(1)
    parts = summary["key_part"] + summary["value_part"] + summary["cross_part"]
    assert parts == pytest.approx(summary["relative_error"], rel=1e-12)
    sums = comparison.figures.sum(axis=(2, 3, 4))
    assert summary["relative_error"] == pytest.approx(sums[1, 0] / sums[1, 4])
    against = summary["versus"]["int2"]["relative_error"]
    assert 0 < against["rival_minus_scheme"]["low"] <= against["rival_minus_scheme"]["mean"]
    assert against["scheme_over_rival"]["mean"] == pytest.approx(summary["percent_of_int2"] / 100)
    assert comparison.summary(0)["percent_of_int2"] == 100
    assert comparison.percent_of_baseline(0) == pytest.approx(np.full((2, 2), 100))
    # 400 tokens: 80 of them in 2 + 64/32 bits, 320 in 16.
    assert summary["bits_per_element"] == (80 * 4 + 320 * 16) / 400
    assert summary["stored_bytes"] == 2 * 2 * 2 * 2 * 400 * 32 * summary["bits_per_element"] / 8


def test_processes_change_no_figure(traces):
    calibration, evaluation = map(read_trace, traces)
    one, two = (compare(("int2", "oscar"), calibration, evaluation, count) for count in (1, 2))
    assert (one.figures == two.figures).all()
    assert one.stored_bytes == two.stored_bytes


def test_what_would_mislead_is_refused(traces, tmp_path):
    calibration, evaluation = map(read_trace, traces)
    with pytest.raises(SpecError, match=r"contaminated: evaluation text 'evaluation-0.txt'"):
        compare(("int2", "oscar"), evaluation, evaluation)
    with pytest.raises(SpecError, match="schemes without int2 are not allowed"):
        compare(("oscar",), calibration, evaluation)
    with pytest.raises(SpecError, match="schemes int2 more than once are not allowed: one name each"):
        compare(("int2", "oscar", "int2"), calibration, evaluation)
    with pytest.raises(SpecError, match="rival 'kivi' is not allowed: one of int2, oscar"):
        compare(("int2", "oscar"), calibration, evaluation, rivals=("kivi",))
    short = read_trace(made.write_trace(tmp_path / "short", 0, tokens=383))
    with pytest.raises(
        SpecError, match=r"sequence of 383 tokens of 'short-0.txt' is not allowed: 384 at least"
    ):
        compare(("int2",), calibration, short)
    with pytest.raises(SpecError, match="no calibration sequence"):
        fit_layer(SCHEMES["oscar"], [])


def test_the_command_writes_figures_and_a_picture(traces, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    output, plots = tmp_path / "out.json", [tmp_path / "a.svg", tmp_path / "b.svg"]
    arguments = [
        "evaluate",
        "--calibration",
        str(traces[0]),
        "--trace",
        str(traces[1]),
        "--scheme",
        "oscar",
        "--processes",
        "1",
    ]
    assert main([*arguments, "-o", str(output), "--plot", str(plots[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["scheme", "int2", "oscar"]
    content = json.loads(output.read_text())
    assert [scheme["name"] for scheme in content["schemes"]] == ["int2", "oscar"]
    assert content["schemes"][1]["fingerprints"].keys() == {"oscar-prefill"}
    assert f"{content['schemes'][1]['summary']['relative_error']:.4f}" == lines[2].split()[1]
    assert main([*arguments, "--plot", str(plots[1]), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == content
    assert plots[0].read_bytes() == plots[1].read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        "calibration",
        "evaluation",
        "out.json",
        "a.svg",
        "b.svg",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "best"], "scheme 'best' is not allowed: one of int2, int2-clip"),
        (["--plot", "x.pdf"], "its ending must be one of .svg, .png"),
        (["--model", "x"], "model x is not allowed: there is no such file"),
        (["--state", "x"], "--state without --model is not allowed"),
        (["--tolerance", "1"], "tolerance 1.0 is not allowed: 0 or more, below 1"),
        (["--fitted", "a=nowhere"], "nowhere"),
        (["--processes", "0"], "processes 0 is not allowed"),
        (["-o", "nowhere/x.json"], "there is no folder nowhere"),
        (["--trace", "nowhere"], "not a trace, trace.json cannot be read"),
    ],
)
def test_wrong_use_ends_with_2_and_one_line(traces, arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    base = ["evaluate", "--calibration", str(traces[0]), "--trace", str(traces[1]), "--scheme", "int2"]
    assert main([*base, *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_scheme_may_have_groups_smaller_than_a_head():
    layer = made.layer(11)
    scheme = Scheme(name="g", group_size=4)
    keys = fit_layer(scheme, [layer]).store_side("key", layer.k)
    assert float(keys.bits_per_element) == (80 * (2 + 64 / 4) + 320 * 16) / 400
    with pytest.raises(SpecError, match="group_size 5 is not allowed: it must divide head_dim 32"):
        fit_layer(Scheme(name="g", group_size=5), [layer]).store_side("key", layer.k)
    with pytest.raises(SpecError, match="scheme 'g' is not allowed"):
        get_scheme("g")


def test_reading_needs_no_torch():
    code = (
        "import sys; import producer.experiment.trace.compare_schemes, producer.trace.oscar_dump; "
        "import producer.transform.oscar_file; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
