"""F(P) = Σ w (q P⁻¹ qᵀ)(k P kᵀ): its logarithm is convex along geodesics, so balancing repeatedly finds the least."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import SpecError
from producer.transform.attention_weighted import Pairs, weighted_balance
from producer.transform.balanced import balancing
from tests.property.strategies import normal, seeds
from tests.property.test_balanced_transforms_reach_the_least_product import positive

small = st.integers(2, 6)


def made(seed, d, readers=9, tokens=14):
    """Readers, rows and uneven weights."""
    rng = np.random.default_rng(seed)
    stretch = 10 ** rng.uniform(-1, 1, d)
    weights = rng.gamma(0.3, size=(readers, tokens)).astype(np.float32)
    return Pairs(normal(seed, readers, d).astype(float), normal(seed + 1, tokens, d) * stretch, weights)


def by_loops(pairs, p):
    """F in plain sums."""
    inverse = np.linalg.inv(p)
    return sum(
        float(w) * (q @ inverse @ q) * (k @ p @ k)
        for q, row in zip(pairs.readers, pairs.weights, strict=True)
        for k, w in zip(pairs.rows, row, strict=True)
    )


def middle(one, other):
    """The middle of the geodesic, by eigenvectors."""
    values, vectors = np.linalg.eigh(one)
    half, back = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(back @ other @ back)
    return half @ (vectors * np.sqrt(values)) @ vectors.T @ half


@given(seed=seeds.filter(lambda seed: seed < 2**31), d=small, spread=st.floats(0, 1.5))
def test_the_middle_is_below_the_geometric_mean_of_the_ends(seed, d, spread):
    rng, pairs = np.random.default_rng(seed), made(seed, d)
    one, other = positive(rng, d, spread), positive(rng, d, spread)
    between = by_loops(pairs, middle(one, other))
    assert between <= np.sqrt(by_loops(pairs, one) * by_loops(pairs, other)) * (1 + 1e-6)


@given(seed=seeds.filter(lambda seed: seed < 2**31), d=small)
def test_balancing_repeatedly_falls_to_where_both_sides_are_equal(seed, d):
    pairs = made(seed, d)
    start = (pairs.rows.T @ pairs.rows, pairs.readers.T @ pairs.readers)
    of_rows, of_readers, objectives = weighted_balance([pairs], start, ridge=0.0, steps=60)
    assert (np.diff(objectives) < 0).all()
    (m,), _, _ = balancing(of_rows[None], of_readers[None])
    p = m @ m.T
    assert np.isclose(by_loops(pairs, p), objectives[-1], rtol=1e-3)
    # Where F is least, the covariances weighted there are balanced by P itself: P Σ_k' P = Σ_q' (E35).
    inverse = np.linalg.inv(p)
    keys, queries = np.zeros((d, d)), np.zeros((d, d))
    for q, row in zip(pairs.readers, pairs.weights, strict=True):
        for k, w in zip(pairs.rows, row, strict=True):
            keys += float(w) * (q @ inverse @ q) * np.outer(k, k)
            queries += float(w) * (k @ p @ k) * np.outer(q, q)
    assert np.abs(p @ keys @ p - queries).max() <= 1e-2 * np.abs(queries).max()
    rng = np.random.default_rng(seed)
    for size in (0.01, 0.3):
        near = np.eye(d) + size * rng.standard_normal((d, d))
        assert by_loops(pairs, m @ near @ near.T @ m.T) >= by_loops(pairs, p) * (1 - 1e-4)


@given(seed=seeds.filter(lambda seed: seed < 2**31), d=small)
def test_equal_weights_are_no_weights(seed, d):
    pairs = made(seed, d)
    flat = Pairs(pairs.readers, pairs.rows, np.ones_like(pairs.weights))
    start = (pairs.rows.T @ pairs.rows, pairs.readers.T @ pairs.readers)
    of_rows, of_readers, objectives = weighted_balance([flat], start, ridge=0.0)
    for found, plain in ((of_rows, start[0]), (of_readers, start[1])):
        assert np.abs(found / np.trace(found) - plain / np.trace(plain)).max() <= 1e-5
    assert objectives[-1] >= objectives[0] * (1 - 1e-5)


@given(seed=seeds.filter(lambda seed: seed < 2**31), d=small, shrinkage=st.floats(0.05, 1))
def test_shrinkage_mixes_the_weighted_with_the_plain_objective(seed, d, shrinkage):
    pairs = made(seed, d)
    plain = Pairs(pairs.readers, pairs.rows, np.ones_like(pairs.weights))
    start = (pairs.rows.T @ pairs.rows, pairs.readers.T @ pairs.readers)
    *covariances, objectives = weighted_balance([pairs], start, ridge=0.0, steps=40, shrinkage=shrinkage)
    assert np.isclose(objectives[0], 1)
    assert (np.diff(objectives) < 0).all()
    (first,), _, _ = balancing(start[0][None], start[1][None])
    (last,), _, _ = balancing(covariances[0][None], covariances[1][None])
    mixed = sum(
        part * by_loops(one, last @ last.T) / by_loops(one, first @ first.T)
        for part, one in ((1 - shrinkage, pairs), (shrinkage, plain))
    )
    # The covariances are those at the last transform, and balancing them is one step more.
    assert mixed <= objectives[-1] * (1 + 1e-3)


def test_a_shrinkage_outside_0_to_1_is_refused():
    pairs = made(3, 4)
    start = (pairs.rows.T @ pairs.rows, pairs.readers.T @ pairs.readers)
    with pytest.raises(SpecError, match=r"shrinkage 1\.5 is not allowed: 0 … 1"):
        weighted_balance([pairs], start, shrinkage=1.5)
    # Nothing but the plain covariances is left, and those are balanced at the start already.
    of_rows, of_readers, objectives = weighted_balance([pairs], start, ridge=0.0, shrinkage=1.0)
    (one,), _, _ = balancing(of_rows[None], of_readers[None])
    (plain,), _, _ = balancing(start[0][None], start[1][None])
    assert objectives[-1] >= 1 - 1e-12
    np.testing.assert_allclose(
        one @ one.T / np.trace(one @ one.T), plain @ plain.T / np.trace(plain @ plain.T), atol=1e-9
    )
