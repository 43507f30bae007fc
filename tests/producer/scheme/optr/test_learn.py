"""Algorithm 1 from end to end on small traces: what it gains, what it may not lose, and how it is continued."""

import dataclasses

import numpy as np
import pytest

from producer.errors import BackendUnavailableError, NonFiniteError, SpecError
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.optr import OptrOptions, learn_optr
from producer.transform.dense import InvertibleTransform, build_identity, build_quarot
from producer.transform.transform_file import LayerTransforms
from tests.producer.cache_errors import head_errors
from tests.producer.scheme.optr import made_optr

pytestmark = pytest.mark.slow

OPTIONS = OptrOptions(queries=made_optr.QUERIES, steps=7, checkpoint_every=3, learning_rate=0.01)


@pytest.fixture
def traces(torch, tmp_path):  # noqa: ARG001 - the library first
    return made_optr.trace(tmp_path / "training", 1, (60, 45)), made_optr.trace(tmp_path / "held", 500, (70,))


def learn(traces, start=None, options=OPTIONS, progress=made_optr.silent, state=None):
    begin = made_optr.start() if start is None else start
    return learn_optr(begin, made_optr.SCHEME, *traces, options, progress, state)


def held_out_losses(trace, layers):
    """L_K and L_V of every layer and head on a trace, by the evaluation."""
    found = []
    for layer_idx, rotations in layers.items():
        layer, fitted = trace.layer(layer_idx, 0), FittedLayer(made_optr.SCHEME, rotations)
        error = head_errors(
            layer,
            *fitted.store(layer.k, layer.v).restored(),
            OPTIONS.queries,
        )
        hidden = trace.model.hidden_size
        found.append([(error.divergence + error.key_part / hidden), error.value_part / hidden])
    return np.array(found).swapaxes(0, 1) / (OPTIONS.queries * 3)


@pytest.mark.parametrize("learning_rate", [0.002, 0.2])
def test_no_head_loses_by_its_choice(traces, learning_rate):
    """The start may win; at a rate that is far too high it often does, and the loss is never above the start's."""
    start = made_optr.start()
    found = learn(traces, start, dataclasses.replace(OPTIONS, learning_rate=learning_rate))
    before, after = (held_out_losses(traces[1], layers) for layers in (start, found.layers))
    assert (after[0] <= before[0] * (1 + 1e-4)).all()
    assert (after[0] < before[0] * 0.999).any()
    for index, stage in enumerate((found.key, found.value)):
        assert stage.checkpoints == (0, 3, 6, 7)
        least = stage.held_out.min(axis=-1)
        assert np.allclose(after[index], least, rtol=2e-4)
        places = [stage.checkpoints.index(step) for step in stage.chosen.ravel()]
        picked = stage.held_out.reshape(-1, 4)[np.arange(4), places]
        assert (picked == least.ravel()).all()
    assert np.allclose(found.key.held_out[..., 0], before[0], rtol=2e-4)


def test_a_head_that_keeps_the_start_keeps_it_exactly(traces):
    start = made_optr.start()
    found = learn(traces, start, dataclasses.replace(OPTIONS, learning_rate=2.0))
    kept = [(layer, head) for layer in range(2) for head in range(2) if found.key.chosen[layer, head] == 0]
    assert kept
    for layer, head in kept:
        assert (found.layers[layer].key.matrices[head] == start[layer].key.matrices[head]).all()


def test_no_step_gives_the_start(traces):
    start = made_optr.start(key_clips=(0.9, 0.95))
    found = learn(traces, start, dataclasses.replace(OPTIONS, steps=0))
    for layer_idx, rotations in found.layers.items():
        for side in ("key", "value"):
            transform = getattr(rotations, side)
            assert (transform.kind, transform.composition) == ("optr", "oscar exp(A - A^T)")
            assert (transform.matrices == getattr(start[layer_idx], side).matrices).all()
        assert (rotations.key_mean == start[layer_idx].key_mean).all()
        assert (rotations.key_clips, rotations.value_clips) == ((0.9, 0.95), None)


def test_the_last_step_without_a_choice(traces):
    options = dataclasses.replace(OPTIONS, selection="last", learning_rate=0.5)
    found = learn((traces[0], None), options=options)
    assert (found.key.chosen == 7).all()
    assert np.isnan(found.key.held_out).all()
    assert found.key.to_json()["held_out"] == [[[None] * 4] * 2] * 2
    chosen = learn(traces, options=options)
    assert np.isfinite(chosen.key.held_out).all()
    for layer in range(2):
        assert (chosen.layers[layer].key.matrices == found.layers[layer].key.matrices).all()


def strong_channels(seed, tokens, info):
    """Keys and values with one strong channel each, which a group's scale has to reach or the clip to cut."""
    rng = np.random.default_rng(seed)
    found = {"q": 0.1 * rng.standard_normal((info.num_heads, tokens, 16)).astype(np.float32)}
    for name, channel in (("k", 2), ("v", 5)):
        found[name] = rng.standard_normal((2, tokens, 16)).astype(np.float32)
        found[name][..., channel] *= 6
    return found


def test_a_rotation_that_is_known_to_help_is_found(torch, tmp_path):  # noqa: ARG001 - the library first
    """From the identity; that H/√d spreads a strong channel is what rotations are for."""
    info = dataclasses.replace(made_optr.INFO, num_layers=1)
    traces = [
        made_optr.trace(tmp_path / name, seed, (200,), info, strong_channels)
        for name, seed in (("one", 1), ("two", 2))
    ]
    scheme = dataclasses.replace(made_optr.SCHEME, key_clip=0.9, value_clip=0.9)
    options = OptrOptions(queries=32, steps=80, checkpoint_every=10, learning_rate=0.02)
    plain, spread = (LayerTransforms(x, x) for x in (build_identity(16), build_quarot(16)))
    found = learn_optr({0: plain}, scheme, *traces, options, made_optr.silent)
    layer = traces[1].layer(0, 0)
    error = {}
    for name, rotations in (("plain", plain), ("spread", spread), ("found", found.layers[0])):
        fitted = FittedLayer(scheme, rotations)
        error[name] = head_errors(
            layer,
            *fitted.store(layer.k, layer.v).restored(),
            32,
        ).error
    assert (error["spread"] < 0.4 * error["plain"]).all()
    assert (error["found"] < 0.4 * error["plain"]).all()


def test_general_corrections_keep_their_inverses(traces):
    start = made_optr.start(is_general=True)
    options = dataclasses.replace(OPTIONS, transform="general", learning_rate=0.005)
    found = learn(traces, start, options)
    before, after = (held_out_losses(traces[1], layers) for layers in (start, found.layers))
    assert (after[0] <= before[0] * (1 + 1e-4)).all()
    assert (found.key.chosen > 0).any()
    for rotations in found.layers.values():
        assert isinstance(rotations.key, InvertibleTransform)
        assert (rotations.key.kind, rotations.key.composition) == ("optr-general", "balanced exp(B)")
    assert np.allclose(after[0], found.key.held_out.min(axis=-1), rtol=2e-4)


@pytest.mark.parametrize("objective", ["readout", "cache"])
def test_other_objectives_lower_their_own_losses(traces, objective):
    options = dataclasses.replace(OPTIONS, objective=objective, steps=20, learning_rate=0.005)
    found = learn(traces, options=options)
    assert (found.value.training[..., -1] < found.value.training[..., 0]).all()


def test_one_matrix_for_a_layer_becomes_one_a_head(traces):
    identity = build_identity(16)
    found = learn(traces, {1: LayerTransforms(identity, identity)})
    assert list(found.layers) == [1]
    assert found.layers[1].key.matrices.shape == (2, 16, 16)
    assert found.key.training.shape == (1, 2, 8)


def test_chunks_do_not_matter(traces):
    """Heads are learned by themselves, whichever are taken together."""
    whole = learn(traces)
    parts = learn(traces, options=dataclasses.replace(OPTIONS, chunk_bytes=1))
    same(whole, parts)


def test_a_seed_gives_other_first_corrections(traces):
    """Small ones: the loss moves, by less than training moves it; of each layer its own, whatever the chunks."""
    plain, one = learn(traces), learn(traces, options=dataclasses.replace(OPTIONS, seed=1))
    same(one, learn(traces, options=dataclasses.replace(OPTIONS, seed=1, chunk_bytes=1)))
    other = learn(traces, options=dataclasses.replace(OPTIONS, seed=2))
    for seeded in (one, other):
        shift = seeded.key.training[..., 0] / plain.key.training[..., 0] - 1
        assert (shift != 0).all()
        assert np.abs(shift).max() < 0.05
    assert (one.key.training != other.key.training).all()
    assert not np.array_equal(one.key.training[0], one.key.training[1])


class Interrupter:
    """Stops a run at a step, as a user does."""

    def __init__(self, at):
        self.at, self.told = at, []

    def __call__(self, done, total, what):
        self.told.append((done, total, what))
        if done == self.at:
            raise KeyboardInterrupt


def same(one, other):
    assert one.layers.keys() == other.layers.keys()
    for layer_idx, rotations in one.layers.items():
        for side in ("key", "value"):
            assert (
                getattr(rotations, side).matrices == getattr(other.layers[layer_idx], side).matrices
            ).all()
    for side in ("key", "value"):
        for name in ("training", "held_out", "chosen"):
            assert np.array_equal(getattr(getattr(one, side), name), getattr(getattr(other, side), name))


def test_a_run_is_continued_bit_for_bit(traces, tmp_path):
    """2 chunks of 2 stages of 8 losses: interrupted in each of them, and before the first checkpoint of the second."""
    options = dataclasses.replace(OPTIONS, chunk_bytes=1)
    watcher = Interrupter(None)
    whole = learn(traces, options=options, progress=watcher)
    assert [done for done, _, _ in watcher.told] == list(range(1, 33))
    assert {total for _, total, _ in watcher.told} == {32}
    assert watcher.told[3][2].startswith("optr, keys of layer 0, step 3: loss 0.")
    state = tmp_path / "state"
    for at in (5, 9, 15, 17, 31):
        with pytest.raises(KeyboardInterrupt):
            learn(traces, options=options, progress=Interrupter(at), state=state)
        assert all(path.suffix == ".safetensors" for path in state.iterdir())
    assert sorted(path.name for path in state.iterdir()) == ["chunk-000.safetensors", "chunk-001.safetensors"]
    same(learn(traces, options=options, state=state), whole)
    # And again, from a state that is complete.
    last = Interrupter(None)
    same(learn(traces, options=options, state=state, progress=last), whole)
    assert len(last.told) == 4
    start = made_optr.start()
    with pytest.raises(SpecError, match="another run, which differs in options:"):
        learn(traces, options=dataclasses.replace(options, learning_rate=0.02), state=state)
    with pytest.raises(SpecError, match="another run, which differs in start:"):
        learn(traces, {**start, 0: dataclasses.replace(start[0], key=start[1].key)}, options, state=state)
    with pytest.raises(SpecError, match="another run, which differs in calibration:"):
        learn((traces[0], made_optr.trace(tmp_path / "other", 7, (70,))), options=options, state=state)


def test_a_start_that_has_no_loss_is_named(traces):
    """A group far from 0 whose zero point is no float32; evaluation refuses it as a degenerate group."""
    start = made_optr.start()
    start[1] = dataclasses.replace(
        start[1], key_mean=np.full((2, 16), 1e33, np.float32), key=build_identity(16)
    )
    scheme = dataclasses.replace(made_optr.SCHEME, key_clip=0.0)
    with pytest.raises(NonFiniteError, match="layer 1, KV head 0: the key loss of the start is"):
        learn_optr(start, scheme, *traces, OPTIONS, made_optr.silent)


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("tpu", SpecError, "device 'tpu' is not allowed: cpu, cuda or cuda:N"),
        ("meta", SpecError, "device 'meta' is not allowed"),
        ("cuda:99", BackendUnavailableError, "torch cannot use cuda:99"),
    ],
)
def test_devices_that_are_not_there_are_refused(traces, device, error, message):
    with pytest.raises(error, match=message):
        learn(traces, options=dataclasses.replace(OPTIONS, device=device))
