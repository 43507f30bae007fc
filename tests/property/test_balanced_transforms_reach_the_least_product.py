"""No invertible M has a smaller tr(Mᵀ Σ_k M)·tr(M⁻¹ Σ_q M⁻ᵀ) than the balancing one, which has the value of E32."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from producer.transform.balanced import balanced_from_covariances, balancing, with_ridge
from tests.property.strategies import seeds

spreads = st.floats(0, 3)
orders = st.sampled_from([1, 2, 4, 8, 12])


def positive(rng, d, spread):
    """A positive definite matrix with eigenvalues over `spread` decades."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (basis * 10 ** rng.uniform(-spread, spread, d)) @ basis.T


def pair(seed, d, spread):
    rng = np.random.default_rng(seed)
    return rng, *((sigma + sigma.T) / 2 for sigma in (positive(rng, d, spread), positive(rng, d, spread)))


def root(sigma):
    values, vectors = np.linalg.eigh(sigma)
    return (vectors * np.sqrt(values)) @ vectors.T


def product(sigma_k, sigma_q, m):
    inverse = np.linalg.inv(m)
    return np.trace(m.T @ sigma_k @ m) * np.trace(inverse @ sigma_q @ inverse.T)


def least_product(sigma_k, sigma_q):
    """E32: (tr (Σ_q^½ Σ_k Σ_q^½)^½)²."""
    half = root(sigma_q)
    return float(np.trace(root(half @ sigma_k @ half)) ** 2)


@given(seed=seeds, d=orders, spread=spreads)
def test_both_sides_have_one_diagonal_covariance(seed, d, spread):
    _, sigma_k, sigma_q = pair(seed, d, spread)
    (m,), (inverse,), (s,) = balancing(sigma_k[None], sigma_q[None])
    scale = s.max() * 1e-7
    assert np.abs(m.T @ sigma_k @ m - np.diag(s)).max() <= scale
    assert np.abs(inverse @ sigma_q @ inverse.T - np.diag(s)).max() <= scale
    assert np.abs(m @ inverse - np.eye(d)).max() <= 1e-7
    assert (np.diff(s) <= 0).all()


@given(seed=seeds, d=orders, spread=spreads)
def test_it_is_the_geometric_mean(seed, d, spread):
    _, sigma_k, sigma_q = pair(seed, d, spread)
    (m,), _, (s,) = balancing(sigma_k[None], sigma_q[None])
    half = root(sigma_k)
    back = np.linalg.inv(half)
    mean = back @ root(half @ sigma_q @ half) @ back
    assert np.abs(m @ m.T - mean).max() <= 1e-6 * np.abs(mean).max()
    assert np.isclose(s.sum(), np.trace(root(root(sigma_q) @ sigma_k @ root(sigma_q))), rtol=1e-7)


@given(seed=seeds, d=orders, spread=spreads, far=st.floats(-3, 1))
def test_none_goes_below_it(seed, d, spread, far):
    rng, sigma_k, sigma_q = pair(seed, d, spread)
    (m,), _, (s,) = balancing(sigma_k[None], sigma_q[None])
    least = least_product(sigma_k, sigma_q)
    assert np.isclose(least, s.sum() ** 2, rtol=1e-7)
    assert np.isclose(product(sigma_k, sigma_q, m), least, rtol=1e-7)
    # Any other, and one that is `far` from the best.
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    near = np.eye(d) + 10**far * rng.standard_normal((d, d))
    for other in (rng.standard_normal((d, d)), turn, m @ near):
        if np.linalg.cond(other) < 1e7:
            assert product(sigma_k, sigma_q, other) >= least * (1 - 1e-7)


@given(seed=seeds, d=orders, spread=spreads)
def test_a_rotation_cannot_change_the_product(seed, d, spread):
    rng, sigma_k, sigma_q = pair(seed, d, spread)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    apart = np.trace(sigma_k) * np.trace(sigma_q)
    assert np.isclose(product(sigma_k, sigma_q, turn), apart, rtol=1e-9)
    assert apart >= least_product(sigma_k, sigma_q) * (1 - 1e-7)


@given(seed=seeds, d=orders, spread=st.floats(0, 1), scale=st.floats(-9, 9))
def test_the_units_of_queries_do_not_matter(seed, d, spread, scale):
    _, sigma_k, sigma_q = pair(seed, d, spread)
    one = balanced_from_covariances(sigma_k[None], sigma_q[None])
    other = balanced_from_covariances(sigma_k[None], 10**scale * sigma_q[None])
    gram = one.matrices @ one.matrices.swapaxes(1, 2)
    assert np.abs(other.matrices @ other.matrices.swapaxes(1, 2) - gram).max() <= 1e-5 * np.abs(gram).max()
    # Nor do those of keys: they stay what they were.
    raised = with_ridge(sigma_k[None], 1e-3)[0]
    wide = one.matrices[0].astype(float)
    assert np.isclose(np.trace(wide.T @ raised @ wide), np.trace(raised), rtol=1e-5)


def with_feedback(sigma_k, sigma_q, m):
    """What error feedback is left with at best: the range times the geometric mean of the readers' spectrum (E39)."""
    inverse = np.linalg.inv(m)
    d = len(m)
    return np.trace(m.T @ sigma_k @ m) / d * np.exp(np.linalg.slogdet(inverse @ sigma_q @ inverse.T)[1] / d)


@given(seed=seeds, d=orders, spread=st.floats(0, 1.5), balance=st.floats(0, 1))
def test_whitening_what_is_stored_is_least_with_feedback(seed, d, spread, balance):
    rng, sigma_k, sigma_q = pair(seed, d, spread)

    def transform(t):
        return balanced_from_covariances(sigma_k[None], sigma_q[None], 0.0, "b", t).matrices[0].astype(float)

    least = np.exp((np.linalg.slogdet(sigma_k)[1] + np.linalg.slogdet(sigma_q)[1]) / d)
    white = transform(0.0)
    stored = white.T @ sigma_k @ white
    assert np.abs(stored - np.trace(stored) / d * np.eye(d)).max() <= 1e-3 * stored.max()
    assert np.isclose(with_feedback(sigma_k, sigma_q, white), least, rtol=1e-3)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    for other in (transform(balance), turn, rng.standard_normal((d, d)) + 2 * np.eye(d)):
        if np.linalg.cond(other) < 1e5:
            assert with_feedback(sigma_k, sigma_q, other) >= least * (1 - 1e-3)


@given(seed=seeds, d=orders, spread=st.floats(0, 1.5), balance=st.floats(0, 1))
def test_the_balance_is_a_place_on_the_geodesic(seed, d, spread, balance):
    _, sigma_k, sigma_q = pair(seed, d, spread)
    found = balanced_from_covariances(sigma_k[None], sigma_q[None], 0.0, "b", balance)
    m = found.matrices[0].astype(float)
    # From A = Σ_k⁻¹ to B = Σ_q, t of the way: A^½ (A^-½ B A^-½)ᵗ A^½, but for the scale.
    half = root(np.linalg.inv(sigma_k))
    back = np.linalg.inv(half)
    values, vectors = np.linalg.eigh(back @ sigma_q @ back)
    between = half @ (vectors * values**balance) @ vectors.T @ half
    between *= np.trace(m @ m.T) / np.trace(between)
    assert np.abs(m @ m.T - between).max() <= 1e-3 * np.abs(between).max()
    assert np.isclose(np.trace(m.T @ sigma_k @ m), np.trace(sigma_k), rtol=1e-4)
