"""R Rᵀ = I, in float32 to a few units in the last place."""

import numpy as np
from hypothesis import given

from producer.transform import SignedHadamard
from producer.transform.fast_hadamard import hadamard_transform
from producer.transform.signs import draw_signs
from tests.property.strategies import normal, powers, seeds


@given(seeds, powers)
def test_rotations_are_orthogonal(seed, d):
    matrix = SignedHadamard(draw_signs(seed, 1, d)[0]).rotate(np.eye(d, dtype=np.float32))
    assert np.abs(matrix.astype(float) @ matrix.T.astype(float) - np.eye(d)).max() <= 5e-7


@given(seeds, powers)
def test_the_transform_undoes_itself(seed, d):
    x = normal(seed, 3, d)
    assert np.abs(hadamard_transform(hadamard_transform(x.copy())) - x).max() <= 5e-6


@given(seeds, powers)
def test_a_rotation_keeps_lengths(seed, d):
    x = normal(seed, 5, d)
    rotated = SignedHadamard(draw_signs(seed, 1, d)[0]).rotate(x)
    lengths = [np.linalg.norm(each.astype(float), axis=1) for each in (x, rotated)]
    assert np.abs(lengths[1] - lengths[0]).max() <= 1e-5 * lengths[0].max()
