"""`fit` and `export`: the file has what `fit_layer` gives, and what an OSCAR file cannot hold is refused."""

import sys

import numpy as np
import pytest

from producer.cli import main
from producer.errors import SpecError
from producer.scheme.export_oscar import export_oscar
from producer.scheme.fit import fit_layer
from producer.scheme.fit_trace import fit_trace, notes
from producer.scheme.fitted_file import read_fitted, read_fitted_file
from producer.scheme.registry import SCHEMES
from producer.trace.files import read_trace
from producer.transform.oscar_file import read_oscar_rotations
from tests.producer import made_traces as made

pytest.importorskip("safetensors", reason="the extra `trace` is not installed")


def silent(_done, _total, _what):
    pass


@pytest.fixture
def calibration(tmp_path):
    return made.write_trace(tmp_path / "calibration", 100, tokens=400, passages=["a" * 16])


@pytest.mark.parametrize("scheme", ["balanced", "oscar-layer", "balanced-attention", "centred"])
def test_the_file_has_what_a_layer_is_fitted_to(calibration, tmp_path, capsys, scheme):
    output = tmp_path / "fitted.safetensors"
    arguments = ["fit", "--calibration", str(calibration), "--scheme", scheme, "-o", str(output)]
    assert main([*arguments, "--processes", "2"]) == 0
    assert capsys.readouterr().out == f"{scheme} for made: 2 layers, 2 KV heads\n"
    trace = read_trace(calibration)
    found, layers, sequences = read_fitted(output, trace.model)
    assert (found, sequences) == (SCHEMES[scheme], trace.sequences)
    x = made.layer(7, tokens=400)
    for index in range(2):
        expected = fit_layer(SCHEMES[scheme], [trace.layer(index, part) for part in range(2)])
        assert layers[index].rotations.key_clips == expected.rotations.key_clips
        assert (
            layers[index].store_side("key", x.k).restored() == expected.store_side("key", x.k).restored()
        ).all()
        assert (
            layers[index].store_side("value", x.v).restored() == expected.store_side("value", x.v).restored()
        ).all()
    written = output.read_bytes()
    assert main([*arguments, "--processes", "1"]) == 0
    assert output.read_bytes() == written


def test_heads_with_the_lowest_clip_are_named(calibration):
    fitted = fit_trace(SCHEMES["quarot-tuned"], read_trace(calibration), 1, silent)
    assert notes(fit_trace(SCHEMES["quarot"], read_trace(calibration), 1, silent)) == []
    fitted.layers[1] = type(fitted.layers[1])(
        fitted.scheme,
        type(fitted.layers[1].rotations)(
            *(fitted.layers[1].rotations.key,) * 2, None, (0.6, 0.4), (0.4, 1.0)
        ),
    )
    fitted.layers[0] = type(fitted.layers[1])(
        fitted.scheme,
        type(fitted.layers[1].rotations)(
            *(fitted.layers[0].rotations.key,) * 2, None, (0.6, 0.5), (0.9, 1.0)
        ),
    )
    assert notes(fitted) == [
        "layer 1, KV head 1: the key clip is the lowest that was tried",
        "layer 1, KV head 0: the value clip is the lowest that was tried",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "best"], "scheme 'best' is not allowed: one of int2"),
        (["--processes", "0"], "processes 0 is not allowed: at least 1"),
        (["--calibration", "nowhere"], "nowhere: not a trace"),
        (["-o", "nowhere/x"], "there is no folder nowhere"),
    ],
)
def test_wrong_use_of_fit_ends_with_2_and_one_line(
    calibration, tmp_path, arguments, message, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--calibration", str(calibration), "-o", "out", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_calibration_without_a_quantized_token_is_refused(tmp_path, capsys):
    folder = made.write_trace(tmp_path / "short", 1, tokens=320)
    for scheme, message in (
        ("balanced-plain", "with tuned clips"),
        ("balanced-attention", "with attention weights"),
    ):
        assert (
            main(["fit", "--calibration", str(folder), "--scheme", scheme, "-o", str(tmp_path / "out")]) == 2
        )
        assert f"sequences of at most 320 tokens are not allowed {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scheme", "side", "message"),
    [
        (
            "balanced-uncentred-clip",
            "key",
            "key transforms of kind balanced are not allowed in an OSCAR file",
        ),
        ("balanced-clip", "value", "value transforms of kind balanced are not allowed in an OSCAR file"),
        (
            "oscar-centred",
            "key",
            "centred keys are not allowed in an OSCAR file: it has no place for the mean",
        ),
        ("quarot-tuned", "value", "value clips by head are not allowed in an OSCAR file"),
    ],
)
def test_what_an_oscar_file_cannot_hold_is_refused(calibration, tmp_path, capsys, scheme, side, message):
    fitted, output = tmp_path / "f.safetensors", tmp_path / "x.pt"
    assert main(["fit", "--calibration", str(calibration), "--scheme", scheme, "-o", str(fitted)]) == 0
    capsys.readouterr()
    assert main(["export", str(fitted), "--side", side, "-o", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_wrong_use_of_export_ends_with_2_and_one_line(tmp_path, capsys, monkeypatch, calibration):
    output = ["--side", "key", "-o", str(tmp_path / "x.pt")]
    text = tmp_path / "text"
    text.write_text("no tensors", encoding="utf-8")
    for path, message in ((tmp_path / "none", "none"), (text, "not a safetensors file")):
        assert main(["export", str(path), *output]) == 2
        assert message in capsys.readouterr().err
    fitted = tmp_path / "f.safetensors"
    assert main(["fit", "--calibration", str(calibration), "--scheme", "oscar", "-o", str(fitted)]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["export", str(fitted), *output]) == 2
    assert "pip install 'kvint2eval[trace]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "side"), [("oscar", "key"), ("oscar", "value"), ("quarot", "key"), ("oscar-centred", "value")]
)
def test_exported_rotations_are_those_that_were_fitted(calibration, tmp_path, scheme, side):
    pytest.importorskip("torch", reason="the extra `trace` is not installed")
    fitted, output = tmp_path / "f.safetensors", tmp_path / "x.pt"
    assert main(["fit", "--calibration", str(calibration), "--scheme", scheme, "-o", str(fitted)]) == 0
    assert main(["export", str(fitted), "--side", side, "-o", str(output)]) == 0
    written = read_oscar_rotations(output, side, 32, 2, range(2))
    for index, layer in read_fitted_file(fitted).layers.items():
        assert np.array_equal(written[index].matrices, getattr(layer.rotations, side).matrices)


def test_a_mixed_export_is_refused_before_a_file_is_there(calibration, tmp_path):
    fitted = fit_trace(SCHEMES["balanced"], read_trace(calibration), 1, silent)
    with pytest.raises(SpecError, match="of kind balanced are not allowed"):
        export_oscar(tmp_path / "x.pt", fitted, "key")
