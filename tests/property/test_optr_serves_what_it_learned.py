"""The forms in which OptR is served give the scores and outputs in which it was learned (paper, equations 20 to 31)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from producer.quantize import DIALECTS
from producer.scheme.fit import LayerTransforms
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import Scheme
from producer.transform.dense import DenseRotation
from tests.property.strategies import normal, seeds

HEADS, KV_HEADS, TOKENS, D = 6, 2, 40, 32
OSCAR = DIALECTS["oscar-prefill"]
SCHEME = Scheme(name="all", center_keys=True, sink=0, recent=0)


def rotation(seed):
    matrices = np.linalg.qr(normal(seed, KV_HEADS, D, D).astype(float))[0].astype(np.float32)
    return DenseRotation(kind="optr", matrices=matrices)


def learned(seed, offset):
    """Keys with a mean, queries, and what is learned of them."""
    k = normal(seed, KV_HEADS, TOKENS, D) + np.float32(offset) * normal(seed + 1, KV_HEADS, 1, D)
    return (
        normal(seed + 2, HEADS, 5, D),
        k,
        LayerTransforms(rotation(seed + 3), rotation(seed + 4), k.mean(axis=1)),
    )


def stored(z, clip):
    return OSCAR.dequantize(OSCAR.quantize(z, clip, D))


@given(seed=seeds, offset=st.floats(0, 10))
def test_rotated_queries_read_stored_keys(seed, offset):
    """Equations 21 to 26: (q R) Q(z)ᵀ = q (Q(z) Rᵀ)ᵀ, and centring moves all scores of a query by q·μ."""
    q, k, rotations = learned(seed, offset)
    mean = rotations.key_mean[:, None]
    codes = stored(rotations.key.rotate(k - mean), SCHEME.key_clip)
    served = rotations.key.rotate_queries(q) @ np.repeat(codes, HEADS // KV_HEADS, axis=0).swapaxes(1, 2)
    effective = FittedLayer(SCHEME, rotations).store_side("key", k).restored().astype(float)
    of_queries = np.repeat(effective, HEADS // KV_HEADS, axis=0)
    shift = (q * np.repeat(mean, HEADS // KV_HEADS, axis=0)).sum(axis=-1, dtype=float)
    difference = q @ of_queries.swapaxes(1, 2) - shift[..., None] - served
    assert np.abs(difference).max() <= 1e-4 * (1 + offset)


@given(seed=seeds, offset=st.floats(0, 10))
def test_the_rotated_mean_can_be_subtracted_after_the_rotation(seed, offset):
    """Equation 20: (k - μ) R = k R - μ R, to rounding at the size of the keys."""
    _, k, rotations = learned(seed, offset)
    mean = rotations.key_mean[:, None]
    before = rotations.key.rotate(k - mean)
    after = rotations.key.rotate(k) - rotations.key.rotate(np.ascontiguousarray(mean))
    assert np.abs(before - after).max() <= 2e-6 * np.sqrt(D) * (1 + np.abs(k).max())
    # The codes of what lies near the edge of one may differ, and no other.
    scale = OSCAR.quantize(before, SCHEME.key_clip, D).metadata[0][..., 0]
    changed = (
        np.abs(stored(before, SCHEME.key_clip) - stored(after, SCHEME.key_clip)) > 0.5 * scale[..., None]
    )
    assert changed.mean() <= 1e-2


@given(seed=seeds)
def test_value_rotations_are_folded_into_weights(seed):
    """Equations 27 to 31: R into W_V, and W_O R in the place of W_O, give the outputs of the explicit form."""
    weights = normal(seed, KV_HEADS, 24, D)
    w_o, x = normal(seed + 1, HEADS, D, 24), normal(seed + 2, TOKENS, 24)
    value = rotation(seed + 4)
    folded = weights @ value.matrices
    v, rotated = x @ weights, x @ folded
    assert np.abs(value.rotate(v) - rotated).max() <= 1e-4
    p = np.abs(normal(seed + 5, HEADS, 3, TOKENS))
    p /= p.sum(axis=-1, keepdims=True)
    # What the cache holds is read as it is stored, and undone by the folded output weights.
    codes = stored(rotated, SCHEME.value_clip)
    served = p @ np.repeat(codes, HEADS // KV_HEADS, axis=0) @ value.fold_output(w_o)
    explicit = p @ np.repeat(value.undo(codes), HEADS // KV_HEADS, axis=0) @ w_o
    assert np.abs(served - explicit).max() <= 1e-3
    assert np.abs(value.undo(rotated) - v).max() <= 1e-4
