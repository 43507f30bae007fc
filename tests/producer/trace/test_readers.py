"""Dumps of OSCAR, the project's traces, texts: right values, and every fault named."""

import json

import numpy as np
import pytest

from producer.errors import FileFormatError, NonFiniteError, SpecError
from producer.trace.files import read_trace, write_arrays
from producer.trace.layer import LayerTrace
from producer.trace.oscar_dump import read_oscar_layer
from producer.trace.texts import passages, require_disjoint
from tests.producer import made_traces as made

F = np.float32


# --- OSCAR dumps ---


def test_chunks_are_joined_in_the_order_of_their_numbers_without_the_warm_up(tmp_path):
    arrays = made.write_dump(tmp_path)
    dump = read_oscar_layer(tmp_path, 0)
    # 10 comes after 2, and chunk 0 is the warm-up.
    joined = np.concatenate([arrays[chunk]["k"] for chunk in (1, 2, 10)])
    assert (dump.layer.k == joined.swapaxes(0, 1)).all()
    assert dump.layer.q.shape == (4, 28, 8)
    assert dump.layer.w_o is None
    assert dump.layer.scaling == pytest.approx(8**-0.5)
    assert dump.seq_lens == (3, 3, 3, 4, 3, 12)


def spoil(change):
    def apply(folder):
        change(folder / "layer_0")

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "k/2.pt").unlink(), r"k: chunks \[2\] are missing"),
        (lambda root: (root / "rank_0").mkdir(), "found folders of ranks, allowed: all heads gathered"),
        (lambda root: (root / "v/2.pt").rename(root / "v/two.pt"), "chunk 'two' is not allowed: a number"),
        (
            lambda root: made.write_pt(root / "seq_lens/2.pt", np.array([3, 5], np.int32)),
            r"seq_lens \[3, 5\] of chunk 2",
        ),
        (lambda root: made.write_pt(root / "v/2.pt", np.ones((7, 2, 4), F)), "layer_0: "),
        (lambda root: made.write_pt(root / "v/2.pt", np.ones((7, 2), F)), "found no tensor of 3 axes"),
        (lambda root: made.write_pt(root / "q/2.pt", np.full((7, 4, 8), np.nan, F)), "layer 0: q.* is nan"),
        (lambda root: made.write_pt(root / "q/2.pt", np.ones((6, 4, 8), F)), "the same tokens"),
    ],
)
def test_faults_of_a_dump_are_named(tmp_path, change, message):
    made.write_dump(tmp_path)
    change(tmp_path / "layer_0")
    with pytest.raises(FileFormatError, match=message):
        read_oscar_layer(tmp_path, 0)


def test_a_missing_layer_or_only_a_warm_up_is_refused(tmp_path):
    made.write_dump(tmp_path, chunks=(0,))
    with pytest.raises(FileFormatError, match="found no chunk but the warm-up"):
        read_oscar_layer(tmp_path, 0)
    with pytest.raises(FileFormatError, match="layer_1 is missing; a missing layer is never made up"):
        read_oscar_layer(tmp_path, 1)


# --- layers ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": np.ones((3, 5, 8), F)}, "3 query heads are not allowed: a multiple of the 2 KV heads"),
        ({"k": np.ones((2, 5, 8))}, "k of dtype float64"),
        ({"v": np.ones((2, 5, 4), F)}, ".*as many keys as values"),
        ({"w_o": np.ones((4, 4, 3), F)}, r"w_o of shape \(4, 4, 3\) is not allowed: \(4, 8, hidden_size\)"),
        ({"scaling": 0.0}, "scaling 0.0 is not allowed: above 0"),
    ],
)
def test_layers_that_do_not_fit_are_refused(change, message):
    right = {
        "q": np.ones((4, 5, 8), F),
        "k": np.ones((2, 5, 8), F),
        "v": np.ones((2, 5, 8), F),
        "w_o": None,
        "scaling": 1.0,
    }
    LayerTrace(layer_idx=7, **right)
    with pytest.raises(SpecError, match=f"layer 7: {message}"):
        LayerTrace(layer_idx=7, **{**right, **change})
    with pytest.raises(NonFiniteError, match=r"layer 7: v\[0, 0, 0\] is inf"):
        LayerTrace(layer_idx=7, **{**right, "v": np.full((2, 5, 8), np.inf, F)})


# --- our traces ---


def test_a_trace_comes_back(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    trace = read_trace(made.write_trace(tmp_path / "t", 5))
    assert trace.model == made.INFO
    assert [sequence.name for sequence in trace.sequences] == ["t-0.txt", "t-1.txt"]
    layer = trace.layer(1, 1)
    expected = made.layer_arrays(5 + 10 + 1, 400)
    for name in ("q", "k", "v"):
        assert (getattr(layer, name) == expected[name]).all()
    assert (layer.w_o == made.weights(1)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format="x"), "format 'x' is not allowed: kvint2eval-trace-v2"),
        (lambda c: c["model"].pop("head_dim"), "not a manifest of kvint2eval-trace-v2"),
        (lambda c: c["model"].update(num_layers=0), "each at least 1"),
        (lambda c: c.update(sequences=[]), "0 sequences are not allowed"),
        (lambda c: c.update(sequences=3), "not a manifest"),
        (
            lambda c: c["sequences"][0].update(tokens=399),
            r"layer 0: q of shape \(4, 400, 32\) is not allowed: \(4, 399, 32\)",
        ),
    ],
)
def test_faults_of_a_manifest_are_named(tmp_path, change, message):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    folder = made.write_trace(tmp_path / "t", 0)
    content = json.loads((folder / "trace.json").read_text())
    change(content)
    (folder / "trace.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=message):
        read_trace(folder).layer(0, 0)


def test_a_trace_of_an_earlier_version_is_refused(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    folder = made.write_trace(tmp_path / "t", 0)
    path = folder / "trace.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"format": "kvint2eval-trace-v1"}))
    with pytest.raises(
        FileFormatError, match=r"a trace of an earlier version, which names its model .* capture it again"
    ):
        read_trace(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].pop("config_sha256"), "KeyError"),
        (
            lambda c: c["model"].update(layer_scaling=[0.1]),
            "1 scalings are not allowed: one for each of 2 layers",
        ),
        (lambda c: c["sequences"][0].pop("word_shingles"), "KeyError"),
        (lambda c: c["sequences"][0].update({"token_shingles": "abc"}), "not a manifest"),
        (
            lambda c: c["sequences"][0].update(special_tokens="1"),
            "special_tokens '1' of a sequence is no int",
        ),
    ],
)
def test_identity_and_shingles_are_part_of_a_manifest(tmp_path, change, message):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    folder = made.write_trace(tmp_path / "t", 0)
    content = json.loads((folder / "trace.json").read_text())
    change(content)
    (folder / "trace.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=message):
        read_trace(folder)


def test_missing_and_wrong_files_are_named(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    with pytest.raises(FileFormatError, match=r"not a trace, trace.json cannot be read: No such file"):
        read_trace(tmp_path)
    folder = made.write_trace(tmp_path / "t", 0)
    trace = read_trace(folder)
    write_arrays(
        folder, 0, 0, {name: values.astype(np.float16) for name, values in made.layer_arrays(0, 400).items()}
    )
    with pytest.raises(FileFormatError, match="q of dtype float16 is not allowed: float32"):
        trace.layer(0, 0)
    (folder / "layer-001.sequence-000.safetensors").unlink()
    with pytest.raises(
        FileFormatError, match=r"layer-001.sequence-000.safetensors: tensors q, k, v cannot be read"
    ):
        trace.layer(1, 0)


# --- texts ---


def test_one_shared_question_is_contamination():
    question = "What is the airspeed velocity of an unladen swallow?"
    fitted = made.sequence("a", 10, passages(f"another prompt, long enough to count\n{question}\n"))
    judged = made.sequence("b", 10, passages("  what is   the airspeed VELOCITY\tof an unladen swallow?\n"))
    with pytest.raises(
        SpecError,
        match=r"contaminated: evaluation text 'b' shares .* 100 % of the lines with calibration text 'a'",
    ):
        require_disjoint([fitted], [judged])
    require_disjoint([fitted], [made.sequence("c", 10, passages("quite another text, of the same length"))])


def test_the_same_tokens_are_the_same_text():
    with pytest.raises(SpecError, match="contaminated"):
        require_disjoint([made.sequence("a", 10)], [made.sequence("a", 10)])


def test_short_lines_are_no_passages():
    assert passages("}\n\nreturn 0;\n") == ()
    assert passages("=" * 80 + "\n" + "-- " * 30) == ()
    assert len(passages("= " * 12 + "a 12345678901 of 3 letters")) == 1
