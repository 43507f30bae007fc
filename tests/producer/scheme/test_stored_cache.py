"""A layer's cache as it is stored: the same values as the schemes give, counted bytes, windows, and decode steps."""

from dataclasses import replace

import numpy as np
import pytest

from producer.errors import NonFiniteError, SpecError
from producer.experiment.trace.output_error import OutputErrors, last_outputs
from producer.quantize import DIALECTS, PAIRS, get_pair
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import Scheme
from producer.scheme.stored_cache import CacheFormat, store_layer
from producer.transform.dense import InvertibleTransform, build_hadamard, build_identity
from producer.transform.transform_file import LayerTransforms
from tests.producer import dialect_reference
from tests.producer import made_traces as made

F = np.float32
TWO_BIT = [
    name
    for name, dialect in DIALECTS.items()
    # A group of all heads has no form in a record, which is what this store is for.
    if dialect.numerics.bits == 2
    and dialect.numerics.group_axis == "channels"
    and not name.startswith("kivi-")
] + [*PAIRS]
# The trace's 80 quantized tokens are five groups of 16.
SIZES = {"kivi": 16, "kivi-float32": 16}
CALIBRATION = [made.layer(20), made.layer(21)]


def cache(name="affine-midpoint", **changes):
    key, value = get_pair(name)
    fields = {"group_size": SIZES.get(name, 32), "sink": 64, "recent": 256, "window_dtype": "float32"}
    return CacheFormat(**{"key_dialect": key, "value_dialect": value, **fields, **changes})


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


@pytest.mark.parametrize("name", TWO_BIT)
def test_what_is_read_from_the_store_is_what_the_scheme_gives(name):
    layer, scheme = made.layer(22), fitted(name)
    stored = store_layer(cache(name), scheme.rotations, 1.0, layer.k, layer.v)
    keys, values = scheme.keys(layer.k), scheme.values(layer.v)
    assert (stored.key.restored() == keys.values).all()
    assert (stored.value.restored() == values.values).all()
    # The scheme counts windows in 16 bits.
    bytes_16 = replace(stored, window_dtype="bfloat16")
    assert (
        bytes_16.code_bytes + bytes_16.metadata_bytes + bytes_16.window_bytes
        == keys.stored_bytes + values.stored_bytes
    )
    assert stored.window_bytes == 2 * bytes_16.window_bytes == 2 * 2 * 320 * 32 * 4


def test_clip_ratios_by_head_are_not_looked_at():
    layer, scheme = made.layer(22), fitted()
    other = replace(scheme.rotations, key_clips=(0.5, 0.6), value_clips=(0.5, 0.6))
    one, two = (store_layer(cache(), each, 0.8, layer.k, layer.v) for each in (scheme.rotations, other))
    assert (one.key.restored() == two.key.restored()).all()
    clipped = FittedLayer(replace(scheme.scheme, key_clip=0.8, value_clip=0.8), scheme.rotations)
    assert (one.key.restored() == clipped.keys(layer.k).values).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_windows_are_rounded_to_their_type_and_nothing_else_is(dtype):
    layer, rotations = made.layer(23), fitted().rotations
    exact, rounded = (
        store_layer(cache(window_dtype=one), rotations, 0.8, layer.k, layer.v) for one in ("float32", dtype)
    )
    narrow = np.float16 if dtype == "float16" else np.vectorize(dialect_reference.bfloat16, otypes=[F])
    assert (rounded.key.sink == narrow(layer.k[:, :64])).all()
    assert (rounded.value.recent == narrow(layer.v[:, -256:])).all()
    assert (rounded.key.quantized() == exact.key.quantized()).all()
    assert rounded.window_bytes * 2 == exact.window_bytes


def test_a_window_that_its_type_cannot_hold_is_refused():
    layer = made.layer(23)
    k = layer.k.copy()
    k[0, 0, 0] = 1e6
    with pytest.raises(NonFiniteError, match="window in float16"):
        store_layer(cache(window_dtype="float16"), fitted().rotations, 0.8, k, layer.v)


def test_groups_along_tokens_have_to_be_filled():
    layer = made.layer(23)
    with pytest.raises(SpecError, match="kivi-key: group_size 32 is not allowed: a divisor of the 80 tokens"):
        store_layer(cache("kivi", group_size=32), fitted("kivi").rotations, 1.0, layer.k, layer.v)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("window", ["float32", "bfloat16"])
def test_a_decode_step_is_attention_over_what_is_stored(centred, window):
    layer = made.layer(24)
    mean = fitted().rotations.key_mean if centred else None
    for transform in (build_identity(32), build_hadamard(32), balanced()):
        rotations = LayerTransforms(transform, transform, mean)
        stored = store_layer(cache(window_dtype=window), rotations, 0.7, layer.k, layer.v)
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
