"""What a run of OptR may be made from; none of this needs torch."""

import dataclasses
import re

import numpy as np
import pytest

from producer.errors import FileFormatError, SpecError
from producer.scheme.optr.inputs import plan_chunks, read_inputs, side_quantizer
from producer.scheme.optr.options import PRESETS, OptrOptions
from producer.scheme.optr.state import FORMAT, prepare_folder, read_state, write_state
from producer.transform.dense import build_quarot
from producer.transform.transform_file import LayerTransforms
from tests.producer.scheme.optr import made_optr

OPTIONS = OptrOptions(queries=made_optr.QUERIES)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return made_optr.trace(folder / "training", 1, (40, 19, 60)), made_optr.trace(folder / "held", 500, (50,))


def test_the_preset_is_the_papers_recipe():
    """Table A and section 5 of the paper."""
    paper = PRESETS["optr-paper"]
    assert (paper.learning_rate, paper.steps, paper.key_weight, paper.queries) == (0.02, 80, 1.0, 64)
    assert paper.checkpoints == (0, 20, 40, 60, 80)
    assert (paper.objective, paper.transform, paper.selection) == ("output", "orthogonal", "held-out")


def test_the_last_step_is_a_checkpoint_too():
    assert OptrOptions(steps=45).checkpoints == (0, 20, 40, 45)
    assert OptrOptions(steps=0).checkpoints == (0,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": float("nan")}, "learning_rate nan is not allowed: 0 or above"),
        ({"key_weight": -1.0}, "key_weight -1.0 is not allowed: 0 or above"),
        ({"steps": 1.5}, "steps 1.5 is not allowed: an integer, 0 or above"),
        ({"checkpoint_every": 0}, "checkpoint_every 0 is not allowed: an integer, 1 or above"),
        ({"objective": "logits"}, "objective 'logits' is not allowed: one of output, readout, cache"),
        ({"transform": "any"}, "transform 'any' is not allowed: one of orthogonal, general"),
        ({"selection": "best"}, "selection 'best' is not allowed: one of held-out, last"),
    ],
)
def test_options_outside_what_is_allowed_are_refused(changes, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        OptrOptions(**changes)


def test_short_sequences_are_left_out_with_a_note(traces):
    """4 + 8 windows and 8 quantized tokens are 20; the sequence of 19 is short by one."""
    inputs, notes = read_inputs(made_optr.start(), made_optr.SCHEME, traces, OPTIONS)
    assert inputs.training_places == (0, 2)
    assert inputs.held_out_places == (0,)
    assert notes == ("training: sequence 1 is left out: 19 tokens, 20 are needed",)
    wider = dataclasses.replace(made_optr.SCHEME, recent=60)
    with pytest.raises(SpecError, match="no sequence has 72 tokens"):
        read_inputs(made_optr.start(), wider, traces, OPTIONS)


def test_the_papers_windows_need_328_tokens():
    scheme, options = made_optr.Scheme(name="paper"), PRESETS["optr-paper"]
    assert scheme.sink + scheme.recent + options.least_quantized == 328


def test_held_out_tokens_are_not_trained_on(traces):
    training, held_out = traces
    with pytest.raises(SpecError, match="'training-0' and held-out text 'training-0' share tokens"):
        read_inputs(made_optr.start(), made_optr.SCHEME, (training, training), OPTIONS)
    # The same text, from the token after the last on: not shared.
    first = training.sequences[0]
    for first_token, is_shared in ((40, False), (39, True)):
        later = dataclasses.replace(first, name="later", first_token=first_token, token_ids_sha256="ef" * 32)
        other = dataclasses.replace(held_out, sequences=(dataclasses.replace(later, tokens=50),))
        if is_shared:
            with pytest.raises(SpecError, match="share tokens"):
                read_inputs(made_optr.start(), made_optr.SCHEME, (training, other), OPTIONS)
        else:
            read_inputs(made_optr.start(), made_optr.SCHEME, (training, other), OPTIONS)


def test_a_start_that_does_not_fit_is_refused(traces):
    def refuse(message, start, options=OPTIONS, scheme=made_optr.SCHEME, pair=traces):
        with pytest.raises(SpecError, match=re.escape(message)):
            read_inputs(start, scheme, pair, options)

    fit = made_optr.start()
    refuse("start for layers [] is not allowed: at least one of 0 … 1", {})
    refuse("start for layers [2] is not allowed: at least one of 0 … 1", {2: fit[0]})
    wide = build_quarot(32)
    refuse("start of the keys of layer 1: head_dim 32 is not allowed: 16", {1: LayerTransforms(wide, wide)})
    one = made_optr.DenseRotation(kind="oscar", matrices=made_optr.orthogonal(0, 3, 16))
    refuse("3 matrices are not allowed: 1 or 2", {0: LayerTransforms(one, one)})
    refuse(
        "'balanced' is no rotation: it takes the option transform 'general'", made_optr.start(is_general=True)
    )
    refuse("no held-out trace", fit, pair=(traces[0], None))
    refuse("layer 0: 3 key clips are not allowed: 2", made_optr.start(key_clips=(0.9, 0.9, 0.9)))
    refuse("clip ratio 1.5 is not allowed: 0 (off) … 1", made_optr.start(value_clips=(0.9, 1.5)))
    refuse(
        "dialect 'kivi-key' is not allowed: OptR learns through oscar-prefill or affine-midpoint",
        fit,
        scheme=dataclasses.replace(made_optr.SCHEME, key_dialect="kivi-key"),
    )
    refuse(
        "affine-midpoint: clip ratio 0.0 is not allowed: above 0 … 1",
        fit,
        scheme=dataclasses.replace(made_optr.SCHEME, value_dialect="affine-midpoint", value_clip=0.0),
    )
    refuse(
        "group_size 5 is not allowed: a divisor of the 16 channels",
        fit,
        scheme=dataclasses.replace(made_optr.SCHEME, group_size=5),
    )
    other = dataclasses.replace(traces[1], model=dataclasses.replace(traces[1].model, config_sha256="other"))
    refuse("is of another model", fit, pair=(traces[0], other))


def test_clips_by_head_take_the_place_of_the_schemes(traces):
    start = made_optr.start(key_clips=(0.5, 0.75))
    inputs, _ = read_inputs(start, made_optr.SCHEME, traces, OPTIONS)
    assert side_quantizer("key", start, inputs).clips == (0.5, 0.75, 0.5, 0.75)
    assert side_quantizer("value", start, inputs).clips == (0.92,) * 4


def test_chunks_are_whole_layers_up_to_a_size(traces):
    start = made_optr.start()
    inputs, _ = read_inputs(start, made_optr.SCHEME, traces, OPTIONS)
    # 2 KV heads, 40 + 60 + 50 tokens, 18 rows of weights and 2·16 numbers of keys and values, float32.
    layer = 4 * 2 * 150 * (18 + 32)
    for size, chunks in ((1, [[0], [1]]), (2 * layer - 1, [[0], [1]]), (2 * layer, [[0, 1]])):
        options = dataclasses.replace(OPTIONS, chunk_bytes=size)
        assert plan_chunks(start, inputs, options) == chunks


def test_a_state_is_that_of_its_run(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "chunk-000.safetensors"
    assert read_state(path, {"a": 1}) is None
    arrays = {"x": np.arange(3.0), "taken": np.array([7])}
    write_state(path, arrays, {"a": (1, 2), "b": None})
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    found = read_state(path, {"a": (1, 2), "b": None})
    assert all((found[name] == arrays[name]).all() for name in arrays)
    with pytest.raises(SpecError, match="the state of another run, which differs in a, c"):
        read_state(path, {"a": (1, 3), "b": None, "c": 0})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match="no state of OptR"):
        read_state(path, {"a": (1, 2), "b": None})


def test_other_files_are_no_state(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "chunk-000.safetensors"
    library.save_file({"x": np.zeros(1)}, path)
    with pytest.raises(FileFormatError, match=f"format None is not allowed: {FORMAT}"):
        read_state(path, {})
    with pytest.raises(SpecError, match="the folder cannot be made: File exists"):
        prepare_folder(path)
    with pytest.raises(SpecError, match="No such file"):
        prepare_folder(tmp_path / "none" / "deep")
