"""A layer's cache as it is stored: the same values as the schemes give, counted bytes, windows, and decode steps."""

from dataclasses import replace

import numpy as np
import pytest

from producer.errors import NonFiniteError, SpecError
from producer.experiment.trace.arm_protocol import TraceProtocol
from producer.experiment.trace.output_error import OutputErrors, last_outputs
from producer.quantize import DIALECTS, PAIRS, get_pair
from producer.quantize.storage import bits_per_element_of
from producer.quantize.windows import TokenCounts
from producer.scheme.encoder import RowEncoder
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import Scheme
from producer.scheme.stored_cache import WindowFormat, store_cache
from producer.transform.dense import InvertibleTransform, build_hadamard, build_identity
from producer.transform.transform_file import LayerTransforms
from tests.producer import dialect_reference
from tests.producer import made_traces as made

F = np.float32
TWO_BIT = [
    name for name, dialect in DIALECTS.items() if dialect.numerics.bits == 2 and not name.startswith("kivi-")
] + [*PAIRS]
# The trace's 80 quantized tokens are five groups of 16.
SIZES = {"kivi": 16}
CALIBRATION = [made.layer(20), made.layer(21)]


def store(rotations, clip, layer, name="affine-midpoint", group_size=None, **changes):
    """One clip ratio for all heads, and the windows of a record."""
    size = group_size or SIZES.get(name, 32)
    key, value = (
        RowEncoder(dialect=dialect, transform=transform, mean=mean, clips=(clip,), group_size=size)
        for dialect, transform, mean in zip(
            get_pair(name), (rotations.key, rotations.value), (rotations.key_mean, None), strict=True
        )
    )
    windows = WindowFormat(**{"sink": 64, "recent": 256, "dtype": "float32", **changes})
    return store_cache((key, value), windows, layer.k, layer.v)


def fitted(name="affine-midpoint", rotation="oscar", *, centred=True):
    key, value = get_pair(name)
    scheme = Scheme(
        name="x",
        key_rotation=rotation,
        value_rotation=rotation,
        center_keys=centred,
        key_dialect=key.name,
        value_dialect=value.name,
        key_clip=1.0,
        value_clip=1.0,
        group_size=SIZES.get(name, 32),
    )
    return fit_layer(scheme, CALIBRATION)


def balanced():
    """A transform that is far from orthogonal: its inverse is not its transpose."""
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.standard_normal((32, 32)))[0] for _ in "lr")
    matrix = left * np.geomspace(1, 20, 32) @ right
    parts = {"matrices": matrix.astype(F)[None], "inverses": np.linalg.inv(matrix).astype(F)[None]}
    return InvertibleTransform(kind="balanced", **parts)


def by_hand(side, scheme, x, clips):
    """Sink, recent window and the coded rows between them by the dialect alone, head by head."""
    rotations = scheme.rotations
    transform = getattr(rotations, side)
    dialect = DIALECTS[getattr(scheme.scheme, f"{side}_dialect")]
    mean = rotations.key_mean[:, None] if side == "key" and rotations.key_mean is not None else F(0)
    turned = transform.rotate(np.ascontiguousarray(x[:, 64:-256] - mean))
    heads = [
        dialect.dequantize(dialect.quantize(turned[head, None], clip, scheme.scheme.group_size))
        for head, clip in enumerate(clips)
    ]
    middle = transform.undo(np.concatenate(heads)) + mean
    return np.concatenate([x[:, :64], middle, x[:, -256:]], axis=1)


@pytest.mark.parametrize("name", TWO_BIT)
def test_what_is_read_from_the_store_is_what_the_dialect_gives(name):
    layer, scheme = made.layer(22), fitted(name)
    own, arm = scheme.store(layer.k, layer.v), store(scheme.rotations, 1.0, layer, name)
    for side, x in (("key", layer.k), ("value", layer.v)):
        expected = by_hand(side, scheme, x, (1.0, 1.0))
        assert (getattr(own, side).restored() == expected).all()
        assert (getattr(arm, side).restored() == expected).all()
    # The scheme counts windows in 16 bits, this arm in 32.
    assert arm.window_bytes == 2 * own.window_bytes == 2 * 2 * 2 * 320 * 32 * 2
    for one in (own, arm):
        assert one.code_bytes + one.metadata_bytes + one.window_bytes == one.stored_bytes
    assert own.code_bytes == arm.code_bytes == 2 * 2 * 80 * 32 * 2 // 8


def test_an_arm_has_one_clip_ratio_for_all_heads_and_a_scheme_one_a_head():
    layer, scheme = made.layer(22), fitted()
    clipped = FittedLayer(
        scheme.scheme, replace(scheme.rotations, key_clips=(0.5, 0.9), value_clips=(0.9, 0.5))
    )
    for side, x, clips in (("key", layer.k, (0.5, 0.9)), ("value", layer.v, (0.9, 0.5))):
        assert (clipped.store_side(side, x).restored() == by_hand(side, scheme, x, clips)).all()
    compared = TraceProtocol(arms=("a", "b"), dialect="affine-midpoint", clip_grid=(1.0, 0.8, 0.6))
    for encoder in compared.encoders(clipped.rotations, 0.8):
        assert (encoder.clips, encoder.feedback) == ((0.8,), None)


@pytest.mark.parametrize("name", TWO_BIT)
def test_blocks_of_rows_are_coded_on_their_own(name):
    layer, scheme = made.layer(22), fitted(name)
    for side, rows in (("key", layer.k[:, :96]), ("value", layer.v[:, :96])):
        encoder = scheme.encoder(side)
        assert encoder.block == (16 if encoder.dialect.numerics.group_axis == "tokens" else 1)
        whole = encoder.decode(encoder.encode(rows))
        blocks = [encoder.encode(rows[:, start : start + 16]) for start in range(0, 96, 16)]
        unpacked = [encoder.unpack(encoder.pack(block)) for block in blocks]
        for block, again in zip(blocks, unpacked, strict=True):
            assert (block.codes == again.codes).all()
            assert all((one == two).all() for one, two in zip(block.metadata, again.metadata, strict=True))
        parts = np.concatenate([encoder.decode(block) for block in unpacked], axis=1)
        # A matrix product of fewer rows may sum in another order, so a code on an edge may be its neighbour.
        assert (np.abs(parts - whole) <= 1e-5 * np.abs(rows).max()).mean() > 0.999


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_windows_are_rounded_to_their_type_and_nothing_else_is(dtype):
    layer, rotations = made.layer(23), fitted().rotations
    exact, rounded = (store(rotations, 0.8, layer, dtype=one) for one in ("float32", dtype))
    narrow = np.float16 if dtype == "float16" else np.vectorize(dialect_reference.bfloat16, otypes=[F])
    assert (rounded.key.sink == narrow(layer.k[:, :64])).all()
    assert (rounded.value.recent == narrow(layer.v[:, -256:])).all()
    assert (rounded.key.coded() == exact.key.coded()).all()
    assert rounded.window_bytes * 2 == exact.window_bytes


def test_exact_windows_count_their_type_and_keep_their_values():
    layer, rotations = made.layer(23), fitted().rotations
    exact, rounded = (
        store(rotations, 0.8, layer, dtype="bfloat16", values=values) for values in ("exact", "rounded")
    )
    assert (exact.key.sink == layer.k[:, :64]).all()
    assert (rounded.key.sink != layer.k[:, :64]).any()
    assert exact.stored_bytes == rounded.stored_bytes
    assert exact.key.bits_per_element == bits_per_element_of(
        DIALECTS["affine-midpoint"].numerics, 32, TokenCounts(64, 80, 256)
    )


def test_a_window_that_its_type_cannot_hold_is_refused():
    layer = made.layer(23)
    k = layer.k.copy()
    k[0, 0, 0] = 1e6
    with pytest.raises(NonFiniteError, match="window in float16"):
        store(fitted().rotations, 0.8, replace(layer, k=k), dtype="float16")


def test_groups_along_tokens_have_to_be_filled():
    layer = made.layer(23)
    with pytest.raises(SpecError, match="kivi-key: group_size 32 is not allowed: a divisor of the 80 tokens"):
        store(fitted("kivi").rotations, 1.0, layer, "kivi", group_size=32)
    kept = store(fitted("kivi").rotations, 1.0, layer, "kivi", group_size=32, leftover="recent")
    assert (kept.key.tokens, kept.value.tokens) == (TokenCounts(64, 64, 272), TokenCounts(64, 80, 256))
    assert (kept.key.recent == layer.k[:, 128:]).all()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("window", ["float32", "bfloat16"])
def test_a_decode_step_is_attention_over_what_is_stored(centred, window):
    layer = made.layer(24)
    mean = fitted().rotations.key_mean if centred else None
    for transform in (build_identity(32), build_hadamard(32), balanced()):
        rotations = LayerTransforms(transform, transform, mean)
        stored = store(rotations, 0.7, layer, dtype=window)
        read = replace(layer, k=stored.key.restored(), v=stored.value.restored())
        expected = last_outputs(read, np.float64, 1)[:, 0].sum(axis=0)
        found = stored.decode(layer.q[:, -1], layer.w_o, layer.scaling)
        assert found.dtype == F
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
        plain = last_outputs(layer, np.float64, 1)[:, 0].sum(axis=0)
        assert np.abs(found - plain).max() > 1e-3 * np.abs(expected).max()


def test_last_outputs_are_those_that_errors_are_relative_to():
    layer = made.layer(25)
    outputs = last_outputs(layer, np.float64, 9)
    assert outputs.shape == (4, 9, 24)
    by_head = np.square(outputs).sum(axis=(1, 2)).reshape(2, 2).sum(axis=1)
    assert by_head == pytest.approx(OutputErrors(layer, 9).measure(layer.k, layer.v).reference, rel=1e-12)
    assert np.abs(last_outputs(layer, np.float32, 9) - outputs).max() <= 1e-5 * np.abs(outputs).max()
