"""`fit --refine`: the file has what was learned, and what does not fit is refused before any work."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from producer.cli import main
from producer.errors import SpecError
from producer.scheme.clip_tuning import tune_clips
from producer.scheme.fitted_file import read_fitted_file
from producer.scheme.optr.refine import PAPER_SCHEME, require_papers_scheme
from producer.scheme.registry import SCHEMES
from producer.trace.files import read_trace
from tests.producer import made_traces as made
from tests.producer.scheme.optr import made_optr

pytest.importorskip("safetensors", reason="the extra `trace` is not installed")


@pytest.fixture
def folders(tmp_path):
    return [
        str(made_optr.trace(tmp_path / name, seed, (360, 350), made.INFO).folder)
        for name, seed in (("training", 1), ("held", 700))
    ]


def command(folders, tmp_path, *words, scheme="quarot-centred", refine="optr"):
    fixed = ["fit", "--calibration", folders[0], "--scheme", scheme, "-o", str(tmp_path / "out.safetensors")]
    return main([*fixed, "--processes", "1", *(["--refine", refine] if refine else []), *words])


@pytest.mark.parametrize(
    ("refine", "words", "message"),
    [
        (None, ["--steps", "3"], "--steps is not allowed without --refine"),
        (None, ["--held-out", "x"], "--held-out is not allowed without --refine"),
        (None, ["--start", "x"], "--start is not allowed without --refine"),
        (None, ["--seed", "1"], "--seed is not allowed without --refine"),
        (None, ["--chunk-bytes", "1M"], "--chunk-bytes is not allowed without --refine"),
        ("optr", ["--seed", "-1"], "seed -1 is not allowed: an integer, 0 or above"),
        (
            "optr-paper",
            ["--learning-rate", "0.001"],
            "--learning-rate is not allowed with --refine optr-paper",
        ),
        ("optr", ["--learning-rate", "-1"], "learning_rate -1.0 is not allowed: 0 or above"),
        ("optr", [], "--refine needs --held-out DIR, or --selection last"),
        ("optr", ["--losses", "/none/x.json"], "output /none/x.json is not allowed"),
    ],
)
def test_options_that_do_not_fit_are_refused(folders, tmp_path, capsys, refine, words, message):
    assert command(folders, tmp_path, *words, refine=refine) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()


def test_the_papers_name_is_for_the_papers_schemes():
    """Table A: group-wise affine INT2, clips 0.96 and 0.92, windows of 64 and 256; section 4.1: centred keys."""
    assert [PAPER_SCHEME[name] for name in ("key_clip", "value_clip", "sink", "recent")] == [
        0.96,
        0.92,
        64,
        256,
    ]
    allowed = []
    for name, scheme in SCHEMES.items():
        try:
            require_papers_scheme(scheme)
        except SpecError as error:
            assert f"scheme {name!r} is not allowed with optr-paper: " in str(error)  # noqa: PT017 - each has its own
        else:
            allowed.append(name)
    assert {"quarot-centred", "oscar-centred"} <= set(allowed)
    assert not {"quarot", "oscar", "centred", "balanced", "quarot-centred-midpoint"} & set(allowed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "refine", "kind"),
    [("quarot-centred", "optr", "optr"), ("balanced", "optr-general", "optr-general")],
)
def test_the_file_has_what_was_learned(torch, folders, tmp_path, capsys, scheme, refine, kind):  # noqa: ARG001
    losses = tmp_path / "losses.json"
    words = ["--held-out", folders[1], "--steps", "4", "--learning-rate", "0.01", "--losses", str(losses)]
    words += ["--state", str(tmp_path / "state")]
    assert command(folders, tmp_path, *words, scheme=scheme, refine=refine) == 0
    out = capsys.readouterr().out
    assert f"{scheme}+{kind} for made: 2 layers, 2 KV heads\n" in out
    fitted = read_fitted_file(tmp_path / "out.safetensors")
    assert fitted.scheme.name == f"{scheme}+{kind}"
    # What was chosen by counts as seen.
    assert [sequence.name for sequence in fitted.calibration] == [
        f"{folder}-{place}" for folder in ("training", "held") for place in (0, 1)
    ]
    found = json.loads(losses.read_text())
    assert np.array(found["key"]["training"]).shape == (2, 2, 5)
    assert found["key"]["checkpoints"] == [0, 4]
    moved = int((np.array(found["key"]["chosen_step"]) > 0).sum())
    assert f"keys: {moved} of 4 heads moved" in out
    for layer in fitted.layers.values():
        assert layer.rotations.key.kind == kind
        assert layer.rotations.key_mean is not None
    written = (tmp_path / "out.safetensors").read_bytes()
    assert command(folders, tmp_path, *words, scheme=scheme, refine=refine) == 0
    assert (tmp_path / "out.safetensors").read_bytes() == written


@pytest.mark.slow
def test_a_start_comes_from_a_file_and_clips_are_chosen_again(torch, folders, tmp_path, capsys):  # noqa: ARG001
    whole = str(made_optr.trace(tmp_path / "whole", 1, (360, 350, 340), made.INFO).folder)
    start, out = str(tmp_path / "start.safetensors"), str(tmp_path / "out.safetensors")
    assert main(["fit", "--calibration", whole, "--scheme", "quarot-centred-tuned", "-o", start]) == 0
    words = [
        "fit",
        "--calibration",
        folders[0],
        "--held-out",
        folders[1],
        "--start",
        start,
        "--refine",
        "optr",
    ]
    words += ["--steps", "4", "--learning-rate", "0.05", "-o", out]
    assert main(words) == 0
    begun, learned = (read_fitted_file(Path(file)) for file in (start, out))
    assert learned.scheme.name == "quarot-centred-tuned+optr"
    sequences = [trace.layer(0, place) for trace in map(read_trace, map(Path, folders)) for place in (0, 1)]
    rotations = learned.layers[0].rotations
    assert rotations.key.sha256 != begun.layers[0].rotations.key.sha256
    assert np.array_equal(rotations.key_mean, begun.layers[0].rotations.key_mean)
    assert (rotations.key_clips, rotations.value_clips) == tune_clips(learned.scheme, rotations, sequences)
    # Not those of the start, which would be the best for other transforms.
    assert [layer.rotations.key_clips for layer in learned.layers.values()] != [
        layer.rotations.key_clips for layer in begun.layers.values()
    ]
    export = ["export", out, "--side", "value", "-o", str(tmp_path / "v.pt")]
    assert main(export) == 2
    assert "value clips by head are not allowed in an OSCAR file" in capsys.readouterr().err
    names = [sequence.name for sequence in learned.calibration]
    assert names == ["whole-0", "whole-1", "whole-2", "training-0", "training-1", "held-0", "held-1"]
    capsys.readouterr()
    assert main([*words, "--scheme", "quarot"]) == 2
    assert "--scheme is not allowed with --start: the file has its own" in capsys.readouterr().err
    other = dataclasses.replace(made.INFO, weights_sha256="0" * 64)
    foreign = str(made_optr.trace(tmp_path / "foreign", 1, (360,), other).folder)
    assert main([*words, "--calibration", foreign]) == 2
    assert (
        "fitted to 'made', not to 'made': weights abababababab… instead of 000000000000…"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_what_was_too_short_to_learn_from_tunes_no_clips(torch, folders, tmp_path, capsys):  # noqa: ARG001
    short = str(made_optr.trace(tmp_path / "short", 700, (360, 200), made.INFO).folder)
    words = ["--held-out", short, "--steps", "2"]
    assert command(folders, tmp_path, *words, scheme="quarot-centred-tuned") == 0
    assert "note: " in capsys.readouterr().err
    learned = read_fitted_file(tmp_path / "out.safetensors")
    sequences = [read_trace(Path(folders[0])).layer(1, place) for place in (0, 1)]
    sequences.append(read_trace(Path(short)).layer(1, 0))
    rotations = learned.layers[1].rotations
    assert (rotations.key_clips, rotations.value_clips) == tune_clips(learned.scheme, rotations, sequences)


@pytest.mark.slow
def test_the_papers_recipe_takes_its_80_steps(torch, folders, tmp_path):  # noqa: ARG001
    losses = tmp_path / "losses.json"
    words = ["--held-out", folders[1], "--losses", str(losses)]
    assert command(folders, tmp_path, *words, refine="optr-paper") == 0
    assert read_fitted_file(tmp_path / "out.safetensors").scheme.name == "quarot-centred+optr"
    found = json.loads(losses.read_text())
    for side in ("key", "value"):
        assert np.array(found[side]["training"]).shape == (2, 2, 81)
        assert found[side]["checkpoints"] == [0, 20, 40, 60, 80]
        assert set(np.ravel(found[side]["chosen_step"])) <= {0, 20, 40, 60, 80}


@pytest.mark.slow
def test_learned_rotations_are_exported_where_a_file_can_hold_them(torch, folders, tmp_path, capsys):
    words = ["--held-out", folders[1], "--steps", "4"]
    assert command(folders, tmp_path, *words, scheme="oscar-centred") == 0
    fitted, output = tmp_path / "out.safetensors", tmp_path / "r.pt"
    export = ["export", str(fitted), "-o", str(output)]
    assert main([*export, "--side", "key"]) == 2
    assert "centred keys are not allowed in an OSCAR file" in capsys.readouterr().err
    assert main([*export, "--side", "value"]) == 0
    written = torch.load(output, weights_only=True)["layers"]
    for index, layer in read_fitted_file(fitted).layers.items():
        assert layer.rotations.value.kind == "optr"
        assert np.array_equal(written[index]["rotation"].numpy(), layer.rotations.value.matrices)


@pytest.mark.slow
def test_a_device_that_is_not_there_is_a_delegation(torch, folders, tmp_path, capsys):  # noqa: ARG001
    assert command(folders, tmp_path, "--selection", "last", "--device", "cuda:77") == 3
    assert capsys.readouterr().out.startswith("delegate")
    assert command(folders, tmp_path, "--selection", "last", "--device", "tpu") == 2
    assert "device 'tpu' is not allowed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_rotation_is_needed_for_rotations(torch, folders, tmp_path, capsys):  # noqa: ARG001
    assert command(folders, tmp_path, "--selection", "last", scheme="balanced") == 2
    assert "it takes the option transform 'general'" in capsys.readouterr().err
