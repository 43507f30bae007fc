"""Attention is unchanged when q and k, and v and W_O, are rotated together."""

import numpy as np
from hypothesis import given, settings

from producer.backend.cpu import NumpyBackend
from producer.backend.kv_blocks import ArraySource
from producer.numerics.nmse import nmse
from producer.transform import Identity, SignedHadamard
from producer.transform.signs import draw_signs
from tests.property.strategies import normal, powers, seeds

BACKEND = NumpyBackend(1)


@settings(max_examples=30)
@given(seeds, powers)
def test_attention_ignores_rotations(seed, d):
    k, v, w_o = normal(seed, 2, 40, d), normal(seed + 1, 2, 40, d), normal(seed + 2, 2, d, 6)
    queries = normal(seed + 3, 2, 2, d)
    rotation = SignedHadamard(draw_signs(seed, 1, d)[0])
    outputs = [
        BACKEND.project(
            BACKEND.attend_float(BACKEND.rotate(ArraySource(k, v), each), queries), each.rotate_output(w_o)
        )
        for each in (Identity(d), rotation)
    ]
    assert nmse(outputs[1], outputs[0]).max() <= 1e-9


@settings(max_examples=30)
@given(seeds)
def test_the_order_of_tokens_does_not_matter(seed):
    """Permuting tokens changes nothing but the last bits of the sums, quantized or not."""
    d, tokens = 16, 60
    k, v, queries = normal(seed, 2, tokens, d), normal(seed + 1, 2, tokens, d), normal(seed + 2, 2, 2, d)
    order = np.random.default_rng(seed).permutation(tokens)
    caches = [
        BACKEND.rotate(ArraySource(k[:, places], v[:, places]), Identity(d))
        for places in (np.arange(tokens), order)
    ]
    plain = [BACKEND.attend_float(cache, queries) for cache in caches]
    packed = [BACKEND.attend_packed(BACKEND.quantize_pack(cache, 0.8, d), queries) for cache in caches]
    for first, second in (plain, packed):
        assert nmse(second.reshape(2, -1), first.reshape(2, -1)).max() <= 1e-11
