"""Rotations against explicit matrices; sign vectors."""

import numpy as np
import pytest

from producer.errors import SpecError
from producer.experiment.slice.rotations import build_candidates, rotated_output
from producer.experiment.slice.spec import PAIRED, PUBLISHED
from producer.transform import Identity, SignedHadamard
from producer.transform.fast_hadamard import hadamard_transform
from producer.transform.signs import draw_signs, index_parity_signs
from tests.producer import reference

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("d", [1, 2, 4, 64, 128, 256])
def test_the_transform_is_sylvesters_matrix(d):
    x = RNG.standard_normal((5, d)).astype(np.float32)
    expected = x.astype(float) @ reference.sylvester(d) / np.sqrt(d)
    assert np.abs(hadamard_transform(x.copy()) - expected).max() <= 3e-6


def test_the_transform_is_exact_on_small_integers():
    # 1/√16 is a power of two: nothing is rounded, so the order of the rows must be Sylvester's.
    x = RNG.integers(-8, 8, (3, 16)).astype(np.float32)
    assert (hadamard_transform(x.copy()) == x @ reference.sylvester(16).astype(np.float32) / 4).all()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_any_axis_is_the_last_axis_moved(axis):
    x = RNG.standard_normal((16, 16, 16)).astype(np.float32)
    last = np.array(np.moveaxis(x, axis, -1), order="C")
    expected = np.moveaxis(hadamard_transform(last), -1, axis)
    assert (hadamard_transform(x.copy(), axis) == expected).all()


@pytest.mark.parametrize("d", [3, 80, 96, 100])
def test_no_power_of_two_is_refused_not_padded(d):
    with pytest.raises(SpecError, match=f"head_dim {d} has no .* power of two .* nothing is padded"):
        SignedHadamard(np.ones(d, dtype=np.float32))


def test_a_sign_must_be_a_sign():
    with pytest.raises(SpecError, match=r"signs\[2\] is 0.5: a sign is \+1 or -1"):
        SignedHadamard(np.array([1, -1, 0.5, 1], dtype=np.float32))


def test_signs_come_before_the_transform():
    # Of an all-ones row H alone leaves one coefficient √d, whatever signs follow; signs first spread it.
    ones = np.ones(128, dtype=np.float32)
    signs = draw_signs(6260, 1, 128)[0]
    rotated = SignedHadamard(signs).rotate(ones)
    assert np.abs(rotated).max() < 4
    assert np.abs(hadamard_transform(ones.copy())).max() == pytest.approx(np.sqrt(128), rel=1e-6)


def test_the_published_signs_are_one_vector_up_to_sign():
    vectors = [index_parity_signs(index, 128) for index in range(1, 9)]
    for index, vector in enumerate(vectors, start=1):
        assert vector.tolist() == reference.published_signs(index, 128).tolist()
        assert (vector == vectors[0] * (1 if index % 2 else -1)).all()


@pytest.mark.parametrize(("count", "d"), [(8, 128), (8, 4), (255, 64)])
def test_drawn_signs_are_distinct_up_to_sign(count, d):
    vectors = draw_signs(6260, count, d)
    products = np.abs(np.array(vectors) @ np.array(vectors).T)
    np.fill_diagonal(products, 0)
    # Equal up to sign is the inner product ±d.
    assert products.max() < d


def test_more_signs_than_there_are_is_refused():
    with pytest.raises(SpecError, match="9 rotations of head_dim 4 are not allowed: only 8 sign vectors"):
        draw_signs(1, 9, 4)


def test_signs_do_not_come_from_the_stream_of_the_values():
    assert draw_signs(6260, 8, 128)[0].tolist() != draw_signs(6261, 8, 128)[0].tolist()


@pytest.mark.parametrize("protocol", [PAIRED, PUBLISHED])
def test_candidates_are_the_identity_and_eight_rotations(protocol):
    first, *rest = build_candidates(protocol, 6260, 128)
    assert isinstance(first, Identity)
    assert [rotation.kind for rotation in rest] == ["signed-hadamard"] * 8


def test_the_identity_gives_its_argument_or_a_copy():
    x = RNG.standard_normal((2, 4)).astype(np.float32)
    out = np.zeros_like(x)
    assert Identity(4).rotate(x) is x
    assert Identity(4).rotate(x, out=out) is out
    assert (out == x).all()


def test_output_weights_follow_the_values_only_by_the_inverse():
    rotation = SignedHadamard(index_parity_signs(1, 64))
    v, w = (RNG.standard_normal((1, 64, 64)).astype(np.float32) for _ in "vw")
    plain = v[0] @ w[0]
    inverse = rotation.rotate(v)[0] @ rotated_output(rotation, w, "inverse")[0]
    signs_last = rotation.rotate(v)[0] @ rotated_output(rotation, w, "signs-last")[0]
    assert np.abs(inverse - plain).max() <= 1e-4
    assert np.abs(signs_last - plain).max() > 1
    # s∘(H w) is the transpose of v → H(s∘v), applied to the columns.
    matrix = reference.sylvester(64) / 8 * reference.published_signs(1, 64)
    assert np.abs(rotated_output(rotation, w, "signs-last")[0] - matrix.T @ w[0]).max() <= 1e-5
