"""A rotation of keys and queries, of values and W_O, and a constant taken from all keys, change no attention output."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.transform.centring import center_keys, key_mean
from producer.transform.dense import build_hadamard
from producer.transform.oscar import build_oscar
from tests.property.strategies import normal, seeds


def attend(q, k, v, w_o):
    """Causal attention after W_O, float64: q (H_q, T, d), k and v (H_kv, T, d), w_o (H_q, d, out)."""
    out = 0
    for head in range(q.shape[0]):
        kv = head * k.shape[0] // q.shape[0]
        scores = q[head].astype(float) @ k[kv].T.astype(float) / np.sqrt(q.shape[-1])
        scores[np.triu_indices(len(scores), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out = out + weights @ v[kv] @ w_o[head]
    return out


def slice_of(seed, heads=4, kv_heads=2, tokens=12, d=16):
    return (
        normal(seed, heads, tokens, d),
        normal(seed + 1, kv_heads, tokens, d),
        normal(seed + 2, kv_heads, tokens, d),
        normal(seed + 3, heads, d, 5),
    )


@pytest.mark.parametrize("kind", ["hadamard", "per-head", "per-layer"])
@given(seed=seeds.filter(lambda seed: seed < 2**31))
def test_rotated_attention_is_attention(kind, seed):
    q, k, v, w_o = slice_of(seed)
    if kind == "hadamard":
        key = value = build_hadamard(16)
    else:
        key, value = (build_oscar(t, q, k, v, is_per_head=kind == "per-head") for t in ("qqt", "sst"))
    rotated = attend(key.rotate_queries(q), key.rotate(k), value.rotate(v), value.fold_output(w_o))
    assert np.abs(rotated - attend(q, k, v, w_o)).max() <= 1e-4
    assert np.abs(key.undo(key.rotate(k)) - k).max() <= 1e-5


@given(seed=seeds.filter(lambda seed: seed < 2**31), offset=st.floats(-50, 50))
def test_centred_keys_give_the_same_softmax(seed, offset):
    q, k, v, w_o = slice_of(seed)
    k = k + np.float32(offset)
    centred = center_keys(k, key_mean(k))
    # The subtraction rounds at the size of the keys.
    assert np.abs(attend(q, centred, v, w_o) - attend(q, k, v, w_o)).max() <= 1e-3
    assert np.abs(centred.mean(axis=1)).max() <= 1e-5 * (1 + abs(offset))


@given(seed=seeds.filter(lambda seed: seed < 2**31))
def test_centring_only_the_old_keys_is_not_attention(seed):
    q, k, v, w_o = slice_of(seed)
    k = k + np.float32(3) * normal(seed, 1, 1, 16)
    centred = center_keys(k, key_mean(k))
    centred[:, 6:] = k[:, 6:]
    assert np.abs(attend(q, centred, v, w_o) - attend(q, k, v, w_o)).max() > 1e-2
