"""Rotations as matrices: Hadamard orders, OSCAR's covariances and compositions, witnesses."""

import hashlib
import math

import numpy as np
import pytest

from producer.errors import NonFiniteError, SpecError
from producer.quantize import DIALECTS
from producer.transform import SignedHadamard
from producer.transform.centring import center_keys, key_mean
from producer.transform.covariance import covariance, queries_by_kv_head
from producer.transform.dense import (
    DenseRotation,
    InvertibleTransform,
    build_hadamard,
    build_identity,
    build_quarot,
    orthogonality_error,
    repeat_for_queries,
)
from producer.transform.digest import rotation_digest
from producer.transform.hadamard_matrix import hadamard_matrix, has_hadamard_matrix
from producer.transform.oscar import COMPOSITIONS, bit_reversal_order, build_oscar, oscar_from_covariance
from producer.transform.probe import diagonal_defect
from tests.producer import reference
from tests.producer.transform.rotatekv import build_rotatekv

F = np.float32
OSCAR = DIALECTS["oscar-prefill"]


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def skewed(seed, heads, tokens, d):
    """Rows whose channels have variances of a wide spread, in a random basis of each head."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.standard_normal((heads, d, d)))[0]
    return (rng.standard_normal((heads, tokens, d)) * np.geomspace(4, 0.05, d) @ bases).astype(F)


# --- Hadamard matrices ---


@pytest.mark.parametrize("order", [1, 2, 4, 8, 64, 128])
def test_powers_of_two_are_sylvesters(order):
    assert (hadamard_matrix(order) == reference.sylvester(order)).all()


@pytest.mark.parametrize(
    "order", [12, 20, 24, 28, 36, 40, 44, 48, 60, 72, 76, 80, 84, 96, 112, 160, 192, 320, 576, 640]
)
def test_hadamard_matrices_of_four_times_odd(order):
    h = hadamard_matrix(order).astype(int)
    assert set(np.unique(h)) == {-1, 1}
    assert (h @ h.T == order * np.eye(order, dtype=int)).all()


@pytest.mark.parametrize("order", [0, 3, 6, 52, 92, 100, 116, 156, 188, 16384])
def test_orders_without_a_construction_are_refused(order):
    assert not has_hadamard_matrix(order)
    with pytest.raises(
        SpecError, match=f"order {order} has no Hadamard matrix here: .*nothing is padded or cut"
    ):
        hadamard_matrix(order)


def test_head_dim_80():
    h = hadamard_matrix(80).astype(int)
    assert np.abs(h @ h.T - 80 * np.eye(80, dtype=int)).max() == 0
    assert orthogonality_error(build_hadamard(80).matrices) < 1e-6
    # The two public faults: H of order 128 with 1/√80, and its 80-by-80 corner with 1/√128.
    large = reference.sylvester(128)
    assert np.abs(large @ large.T / 80 - np.eye(128)).max() == pytest.approx(0.6)
    corner = (large[:80, :80] / math.sqrt(128)).astype(F)
    assert np.abs(corner @ corner.T - np.eye(80)).max() == pytest.approx(0.375, abs=1e-6)
    assert np.linalg.svd(corner)[1][[0, -1]] == pytest.approx([1.0, 0.354], abs=1e-3)
    with pytest.raises(SpecError, match=r"max\|R Rᵀ - I\| = 0.38"):
        DenseRotation(kind="hadamard", matrices=corner[None])
    with pytest.raises(SpecError, match="quarot: head_dim 80 is not allowed: a power of two"):
        build_quarot(80)


def test_signs_after_the_transform_do_nothing():
    ones = np.ones((1, 1, 128), dtype=F)
    plain = build_quarot(128).rotate(ones)
    signs = np.where(np.random.default_rng(3).random(128) < 0.5, F(-1), F(1))
    assert np.sort(np.abs(plain * signs).ravel())[-2:].tolist() == pytest.approx([0, 11.3137], abs=1e-4)
    before = build_quarot(128).rotate(ones * signs)
    assert np.abs(before).max() < 4
    assert np.linalg.norm(before) == pytest.approx(math.sqrt(128))


# --- DenseRotation ---


def test_what_is_no_rotation_is_refused():
    eye = np.eye(4, dtype=F)[None]
    for matrices in (eye[0], eye.astype(float), eye[:, :3], np.empty((0, 4, 4), dtype=F)):
        with pytest.raises(
            SpecError, match=r"is not allowed: float32, \(1 or num_kv_heads, head_dim, head_dim\)"
        ):
            DenseRotation(kind="optr", matrices=matrices)
    with pytest.raises(SpecError, match=r"at most 0.0001; a matrix rounded to bfloat16 has about 2e-3"):
        DenseRotation(kind="optr", matrices=eye + F(2e-3))
    with pytest.raises(ValueError, match=r"rotation\[0, 1, 2\] is nan"):
        DenseRotation(kind="optr", matrices=np.where(np.arange(16).reshape(1, 4, 4) == 6, F(np.nan), eye))


def test_shapes_that_do_not_fit_are_refused():
    rotation = build_oscar("ktk", normal(0, 4, 9, 8), normal(1, 2, 9, 8), normal(2, 2, 9, 8))
    for shape in ((3, 9, 8), (2, 9, 4), (9, 8)):
        with pytest.raises(SpecError, match=r"is not allowed: \(…, 2, tokens, 8\) for this rotation"):
            rotation.rotate(np.ones(shape, dtype=F))
    with pytest.raises(SpecError, match="3 query heads are not allowed: a multiple of the 2 KV heads"):
        rotation.rotate_queries(np.ones((3, 9, 8), dtype=F))


def test_query_heads_repeat_their_kv_head():
    assert repeat_for_queries(np.arange(2, dtype=F), 4).tolist() == [0, 0, 1, 1]
    assert repeat_for_queries(np.arange(3, dtype=F), 6).tolist() == [0, 0, 1, 1, 2, 2]
    stacked = queries_by_kv_head(np.arange(4, dtype=F)[:, None, None], 2)
    assert stacked[:, :, 0].tolist() == [[0, 1], [2, 3]]


def test_the_digest_does_not_see_the_sign_of_a_matrix():
    matrices = np.array([np.eye(4), np.eye(4)[[1, 0, 2, 3]]], dtype=F)
    one, other, swapped = (
        DenseRotation(kind="optr", matrices=np.ascontiguousarray(each))
        for each in (matrices, matrices * np.array([-1, 1], dtype=F)[:, None, None], matrices[::-1])
    )
    assert one.sha256 == other.sha256 != swapped.sha256
    assert one.sha256 == hashlib.sha256(matrices.astype("<f4").tobytes()).hexdigest()


def test_the_digest_is_that_of_records():
    # Contract v2 digests what a rotation makes of the unit vectors, one a row.
    ones = np.ones(64, dtype=F)
    signs = np.where(np.arange(64) % 3, F(1), F(-1))
    assert build_quarot(64).sha256 == rotation_digest(SignedHadamard(ones))
    matrix = SignedHadamard(signs).rotate(np.eye(64, dtype=F))
    assert DenseRotation(kind="hadamard", matrices=matrix[None]).sha256 == rotation_digest(
        SignedHadamard(signs)
    )


def test_identity_changes_nothing():
    x = normal(4, 3, 5, 16)
    rotation = build_identity(16)
    assert (rotation.rotate(x) == x).all()
    weights = normal(4, 3, 16, 5)
    assert (rotation.fold_output(weights) == weights).all()


# --- OSCAR ---


def test_covariances_are_sums_of_outer_products():
    q, k, v = normal(5, 4, 7, 3), normal(6, 2, 7, 3), normal(7, 2, 7, 3)
    for head in range(2):
        moment = sum(np.outer(q[j, t], q[j, t]) for j in (2 * head, 2 * head + 1) for t in range(7)) / 14
        assert np.allclose(covariance("qqt", q, k, v)[head], moment, atol=1e-6)
        weights = np.array([k[head, t] @ moment @ k[head, t] for t in range(7)])
        weights *= 7 / weights.sum()
        weighted = sum(w * np.outer(row, row) for w, row in zip(weights, v[head], strict=True)) / 7
        assert np.allclose(covariance("sst", q, k, v)[head], weighted, atol=1e-6)
        assert np.allclose(covariance("ktk", q, k, v)[head], k[head].T @ k[head] / 7, atol=1e-6)
        assert np.allclose(covariance("vtv", q, k, v)[head], v[head].T @ v[head] / 7, atol=1e-6)


def test_weights_of_nothing_stay_finite():
    zero = np.zeros((1, 5, 4), dtype=F)
    assert (covariance("sst", zero, zero, zero) == 0).all()


@pytest.mark.parametrize(
    ("target", "q", "k", "v", "message"),
    [
        ("kkt", (2, 3, 4), (2, 3, 4), (2, 3, 4), "target 'kkt' is not allowed: one of qqt, sst, ktk, vtv"),
        ("ktk", (2, 3, 4), (2, 3, 4), (2, 3, 5), "are not allowed"),
        ("ktk", (2, 0, 4), (2, 0, 4), (2, 0, 4), "tokens above 0"),
        ("qqt", (3, 3, 4), (2, 3, 4), (2, 3, 4), "3 query heads are not allowed"),
    ],
)
def test_covariances_of_wrong_arrays_are_refused(target, q, k, v, message):
    with pytest.raises(SpecError, match=message):
        covariance(target, *(np.ones(shape, dtype=F) for shape in (q, k, v)))


def test_plain_r_makes_the_covariance_diagonal_and_r_h_equalizes_it():
    k = skewed(8, 2, 400, 64)
    sigma = covariance("ktk", k, k, k)
    plain, spread = oscar_from_covariance(sigma, "r"), oscar_from_covariance(sigma, "r_h")
    for head in range(2):
        turned = plain.matrices[head].T.astype(float) @ sigma[head] @ plain.matrices[head]
        assert np.abs(turned - np.diag(np.diag(turned))).max() <= 1e-6 * turned.max()
        assert (np.diff(np.diag(turned)) >= -1e-6).all()
        basis = np.linalg.eigh(sigma[head])[1] @ reference.sylvester(64) / 8
        diagonal = np.diag(basis.T @ sigma[head] @ basis)
        assert np.ptp(diagonal) <= 1e-13 * np.trace(sigma[head])
        equal = np.diag(spread.matrices[head].T.astype(float) @ sigma[head] @ spread.matrices[head])
        assert equal == pytest.approx(np.full(64, np.trace(sigma[head]) / 64), rel=1e-5)


def test_bit_reversal_puts_the_largest_eigenvalues_apart():
    p = bit_reversal_order(np.arange(8.0))
    # perm[bitrev(i)] is the place of the i-th largest: 0, 4, 2, 6, … hold the largest, next, …
    assert (np.arange(8) @ p).astype(int).tolist() == [7, 3, 5, 1, 6, 2, 4, 0]
    with pytest.raises(SpecError, match="head_dim 12 has no bit reversal"):
        bit_reversal_order(np.arange(12.0))


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_compositions_are_products_in_the_order_of_their_names(composition):
    sigma = covariance("ktk", *[skewed(9, 1, 300, 16)] * 3)
    values, r = np.linalg.eigh(sigma[0])
    factors = {"r": r, "h": reference.sylvester(16) / 4, "pbr": bit_reversal_order(values)}
    product = np.linalg.multi_dot(
        [np.eye(16), np.eye(16), *(factors[name] for name in composition.split("_"))]
    )
    assert np.abs(oscar_from_covariance(sigma, composition).matrices[0] - product).max() <= 1e-6


def test_an_unknown_composition_is_refused_and_a_size_without_bit_reversal_too():
    sigma = np.eye(12)[None]
    with pytest.raises(SpecError, match="composition 'br' is not allowed: one of r, r_pbr"):
        oscar_from_covariance(sigma, "br")
    with pytest.raises(SpecError, match="has no bit reversal"):
        oscar_from_covariance(sigma)
    assert oscar_from_covariance(sigma, "r_h").head_dim == 12


def error(rotation, x, group_size):
    quantized = OSCAR.quantize(rotation.rotate(x), 0.0, group_size)
    return float(np.square(rotation.undo(OSCAR.dequantize(quantized)) - x, dtype=float).mean())


def test_the_order_is_inert_when_a_group_is_the_whole_head_and_matters_below():
    x = skewed(10, 1, 600, 128)
    sigma = covariance("ktk", x, x, x)
    plain, ordered = oscar_from_covariance(sigma, "r_h"), oscar_from_covariance(sigma, "r_h_pbr")
    assert error(ordered, x, 128) == pytest.approx(error(plain, x, 128), rel=1e-5)
    assert error(ordered, x, 32) < 0.97 * error(plain, x, 32)


def test_a_changed_sign_of_an_eigenvector_is_another_rotation():
    x = skewed(11, 1, 600, 64)
    sigma = covariance("ktk", x, x, x)
    r = np.linalg.eigh(sigma[0])[1]
    h = reference.sylvester(64) / 8
    one, other = (
        DenseRotation(kind="oscar", matrices=(r * signs @ h).astype(F)[None])
        for signs in (np.ones(64), np.where(np.arange(64) % 3, 1, -1))
    )
    assert error(one, x, 64) != error(other, x, 64)
    assert error(one, x, 64) == pytest.approx(error(other, x, 64), rel=0.05)


def test_one_rotation_for_heads_that_want_their_own():
    # Every head varies along a direction of its own, all alike strong: the shared covariance is nearly degenerate
    # there, and its eigenvectors suit none of the heads.
    rng = np.random.default_rng(12)
    heads, d, tokens = 32, 64, 200
    directions = rng.standard_normal((heads, 1, d))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)

    def keys():
        strength = 8 * rng.standard_normal((heads, tokens, 1))
        return (strength * directions + 0.3 * rng.standard_normal((heads, tokens, d))).astype(F)

    fit, held_out = keys(), keys()
    junk = rng.standard_normal((heads, tokens, d)).astype(F)
    per_head, shared = (build_oscar("ktk", fit, fit, fit, is_per_head=flag) for flag in (True, False))
    random_fit = build_oscar("ktk", junk, junk, junk, is_per_head=False)
    errors = {
        name: error(r, held_out, d)
        for name, r in (("own", per_head), ("shared", shared), ("junk", random_fit))
    }
    assert errors["own"] < 0.6 * errors["shared"]
    # A shared fit of real data is about as bad as one of noise: calibration is not the problem.
    assert errors["shared"] == pytest.approx(errors["junk"], rel=0.15)


def test_the_covariance_tells_what_orthogonality_does_not():
    q, k, v = skewed(13, 4, 500, 32), skewed(14, 2, 500, 32), skewed(15, 2, 500, 32)
    sigma = covariance("qqt", q, k, v)
    for composition in ("r", "r_h", "r_h_pbr"):
        right = oscar_from_covariance(sigma, composition)
        transposed = DenseRotation(
            kind="oscar",
            matrices=np.ascontiguousarray(right.matrices.swapaxes(1, 2)),
            composition=composition,
            eigenvalues=right.eigenvalues,
        )
        assert orthogonality_error(transposed.matrices) < 1e-5
        assert diagonal_defect(right, sigma) < 1e-5
        assert diagonal_defect(transposed, sigma) > 0.05
        assert diagonal_defect(build_oscar("sst", q, k, v, composition=composition), sigma) > 0.05
        swapped_heads = DenseRotation(
            kind="oscar",
            matrices=right.matrices[::-1].copy(),
            composition=composition,
            eigenvalues=right.eigenvalues[::-1],
        )
        assert diagonal_defect(swapped_heads, sigma) > 0.05


def test_a_rotation_before_rope_is_another_computation():
    def rope(x, angle):
        c, s = math.cos(angle), math.sin(angle)
        return np.array([c * x[0] - s * x[1], s * x[0] + c * x[1]])

    q, k, r = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.diag([1.0, -1.0])
    assert rope(q, 1) @ rope(k, 0) == pytest.approx(0.8415, abs=5e-5)
    rotation = DenseRotation(kind="oscar", matrices=r.astype(F)[None])
    after = (
        rotation.rotate_queries(rope(q, 1).astype(F)[None, None])[0, 0]
        @ rotation.rotate(k.astype(F)[None, None])[0, 0]
    )
    assert after == pytest.approx(0.8415, abs=5e-5)
    assert rope(q @ r, 1) @ rope(k @ r, 0) == pytest.approx(-0.8415, abs=5e-5)


# --- centring ---


def test_centring_needs_tokens_and_fitting_shapes():
    with pytest.raises(SpecError, match="tokens above 0"):
        key_mean(np.empty((2, 0, 4), dtype=F))
    with pytest.raises(SpecError, match=r"mean of shape \(3, 4\) is not allowed: \(2, 4\)"):
        center_keys(np.ones((2, 5, 4), dtype=F), np.ones((3, 4), dtype=F))


def test_the_larger_error_can_be_the_better_quantizer():
    # Keys with a large common mean; queries orthogonal to it. What a quantizer loses along the mean costs no score.
    rng = np.random.default_rng(16)
    d = 16
    mean = np.zeros(d)
    mean[0] = 100
    k = (mean + rng.standard_normal((200, d))).astype(F)
    q = rng.standard_normal((50, d)).astype(F)
    q[:, 0] = 0
    along = k.copy()
    along[:, 0] = 50  # loses 50 a key, all of it where no query looks
    across = k + np.where(np.arange(d) == 3, F(2), F(0)) * rng.standard_normal((200, 1)).astype(F)

    def divergence(kept):
        def log_softmax(scores):
            scores = scores - scores.max(axis=1, keepdims=True)
            return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

        p, other = log_softmax(q @ k.T / 4), log_softmax(q @ kept.T / 4)
        return float((np.exp(p) * (p - other)).sum(axis=1).mean())

    assert np.square(along - k).mean() > 100 * np.square(across - k).mean()
    assert divergence(along) < 1e-6 < divergence(across)


# --- RotateKV ---


def test_rotatekv_joins_four_heads_and_is_undone():
    k = normal(17, 8, 20, 16)
    grouped = build_rotatekv(k)
    rows = grouped.rotate(k)
    assert rows.shape == (2, 20, 64)
    sums = rows.sum(axis=1, dtype=float)
    assert (np.diff(sums, axis=1) >= -1e-4).all()
    assert np.abs(grouped.undo(rows) - k).max() <= 2e-6
    # One group of four heads, by an explicit matrix.
    joined = np.concatenate(list(k[:4]), axis=1) @ reference.sylvester(64) / 8
    assert np.abs(rows[0] - joined[:, grouped.order[0]]).max() <= 3e-6


def test_rotatekv_does_not_fit_three_heads():
    with pytest.raises(SpecError, match="3 KV heads are not allowed: RotateKV transforms 4 heads together"):
        build_rotatekv(normal(18, 3, 5, 64))


# --- InvertibleTransform ---


def test_an_invertible_transform_leaves_scores_and_outputs_alone() -> None:
    rng = np.random.default_rng(5)
    matrices = rng.normal(size=(2, 8, 8))
    transform = InvertibleTransform(
        kind="balanced", matrices=matrices.astype(F), inverses=np.linalg.inv(matrices).astype(F)
    )
    q, k = rng.normal(size=(4, 5, 8)).astype(F), rng.normal(size=(2, 5, 8)).astype(F)
    exact = q.astype(np.float64) @ np.repeat(k, 2, axis=0).swapaxes(-1, -2)
    scores = transform.rotate_queries(q) @ np.repeat(transform.rotate(k), 2, axis=0).swapaxes(-1, -2)
    np.testing.assert_allclose(scores, exact, atol=1e-3)
    w_o = rng.normal(size=(4, 8, 3)).astype(F)
    outputs = np.repeat(transform.rotate(k), 2, axis=0) @ transform.fold_output(w_o)
    np.testing.assert_allclose(outputs, np.repeat(k, 2, axis=0).astype(np.float64) @ w_o, atol=1e-3)
    np.testing.assert_allclose(transform.undo(transform.rotate(k)), k, atol=1e-3)
    assert (transform.rotate(k) != transform.rotate_queries(q)[::2]).any()
    np.testing.assert_allclose(
        transform.condition,
        [np.divide(*np.linalg.svd(m, compute_uv=False)[[0, -1]]) for m in matrices],
        rtol=1e-4,
    )


def test_a_transform_whose_inverse_is_another_ones_is_refused() -> None:
    rng = np.random.default_rng(5)
    matrices = rng.normal(size=(2, 8, 8)).astype(F)
    inverses = np.linalg.inv(matrices)
    for wrong in (inverses[::-1].copy(), inverses.swapaxes(-1, -2).copy(), inverses * F(1.01)):
        with pytest.raises(SpecError, match=r"max\|M M⁻¹ - I\|"):
            InvertibleTransform(kind="balanced", matrices=matrices, inverses=wrong)
    with pytest.raises(SpecError, match="inverse of dtype float64"):
        InvertibleTransform(kind="balanced", matrices=matrices, inverses=inverses.astype(np.float64))
    with pytest.raises(NonFiniteError, match="inverse"):
        InvertibleTransform(kind="balanced", matrices=matrices, inverses=inverses * F(np.inf))
