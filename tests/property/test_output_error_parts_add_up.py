"""The key and value parts of an output error add up to it (OptR, equation 8), whatever cache is read."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.producer import made_traces as made
from tests.producer.cache_errors import head_errors
from tests.property.strategies import seeds


@given(seed=seeds, key_noise=st.sampled_from([0.0, 0.1, 3.0]), value_noise=st.sampled_from([0.0, 0.1, 3.0]))
def test_output_error_parts_add_up(seed, key_noise, value_noise):
    layer = made.layer(seed, tokens=24)
    rng = np.random.default_rng(seed)
    keys = layer.k + np.float32(key_noise) * rng.standard_normal(layer.k.shape).astype(np.float32)
    values = layer.v + np.float32(value_noise) * rng.standard_normal(layer.v.shape).astype(np.float32)
    found = head_errors(layer, keys, values, 6)
    whole = found.key_part + found.value_part + found.cross_part
    assert np.allclose(found.error, whole, rtol=1e-9, atol=1e-9 * found.reference)
    # With exact keys the value part is all there is, with exact values the key part.
    if not key_noise:
        assert np.allclose(found.error, found.value_part, rtol=1e-12)
        assert np.abs(found.divergence).max() <= 1e-9
    if not value_noise:
        assert np.allclose(found.error, found.key_part, rtol=1e-12)
    assert (found.divergence >= -1e-9).all()
    # |a + b|² is between (|a| - |b|)² and (|a| + |b|)².
    a, b = np.sqrt(found.key_part), np.sqrt(found.value_part)
    assert (found.error <= (a + b) ** 2 * (1 + 1e-9)).all()
    assert (found.error >= (a - b) ** 2 * (1 - 1e-9) - 1e-9).all()


@given(seed=seeds)
def test_a_constant_in_all_keys_is_no_error(seed):
    layer = made.layer(seed, tokens=24)
    shifted = layer.k + np.float32(4) * np.random.default_rng(seed).standard_normal((2, 1, 32)).astype(
        np.float32
    )
    found = head_errors(layer, shifted, layer.v, 6)
    # float32 keys round at the size of the shift.
    assert (found.error <= 1e-8 * found.reference).all()
