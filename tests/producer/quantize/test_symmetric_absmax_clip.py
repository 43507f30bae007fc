"""The quantizer on its edge set, each value worked out by hand or in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from producer.errors import NonFiniteError, SpecError
from producer.numerics.arrays import require_finite
from producer.quantize.steps import require_group_size
from producer.quantize.symmetric_absmax_clip import dequantize, quantize

F = np.float32


def codes_of(values, clip=1.0):
    x = np.array(values, dtype=F)
    codes, _ = quantize(x, clip, x.size)
    return codes.tolist()


def test_zeros_stay_finite_and_small():
    codes, scale = quantize(np.zeros(128, dtype=F), 1.0, 128)
    # z = 0 is (0 + 1)·1.5 = 1.5, which rounds half to even, to 2.
    assert codes.tolist() == [2] * 128
    assert scale.tolist() == [F(1e-12)]
    assert np.abs(dequantize(codes, scale)).max() <= 1e-12


def test_levels_of_the_four_codes():
    assert dequantize(
        np.array([0, 1, 2, 3], dtype=np.uint8), np.array([3], dtype=F)
    ).tolist() == pytest.approx([-3, -1, 1, 3], rel=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-5, -5, -5, -5], [0, 0, 0, 0]),  # all negative, one value
        ([7, 7, 7, 7], [3, 3, 3, 3]),
        ([1, -1, 0.5, -0.5], [3, 0, 2, 1]),
        ([100, 1, -1, 0], [3, 2, 1, 2]),  # one outlier; (1 + 0)·1.5 is half way, to even
        ([1e-40, -1e-40, 0, 0], [2, 2, 2, 2]),  # subnormal: the floor 1e-12 is the scale
        ([3, 1, -1, -3], [3, 2, 1, 0]),
        ([2.0, 2.0 / 3, -2.0 / 3, -2.0], [3, 2, 1, 0]),
    ],
)
def test_codes(values, expected):
    assert codes_of(values) == expected


def test_ties_go_to_the_even_code():
    # scale 3: x = ±2 is z = ±2/3, (z + 1)·1.5 = 2.5 or 0.5 up to the rounding of z itself.
    x = np.array([3, 2, -2, 0], dtype=F)
    z = F(2) / F(3)
    upper = Fraction(float((z + F(1)) * F(1.5)))
    lower = Fraction(float((-z + F(1)) * F(1.5)))
    assert codes_of(x) == [3, round(upper), round(lower), 2]


@pytest.mark.parametrize("clip", [1.0, 0.8, 0.3])
def test_clipped_values_take_the_outer_codes(clip):
    codes, scale = quantize(np.array([1, -1, 0.1, -0.1], dtype=F), clip, 4)
    assert codes[:2].tolist() == [3, 0]
    assert scale.tolist() == [F(clip) + F(1e-12)]


def test_a_clip_on_a_code_edge():
    # clip 0.5: the scale is 0.5, so 0.5 is z = 1 exactly and everything above it is the same.
    assert codes_of([1, 0.5, 0.75, -0.5], 0.5) == [3, 3, 3, 0]


def test_groups_have_scales_of_their_own():
    x = np.array([[4, 1, -2, 0.5], [1, 1, 8, -8]], dtype=F)
    codes, scale = quantize(x, 1.0, 2)
    assert scale.tolist() == [[4, 2], [1, 8]]
    assert codes.shape == x.shape
    assert dequantize(codes, scale).shape == x.shape


def test_any_axis():
    x = np.random.default_rng(3).standard_normal((8, 5)).astype(F)
    codes, scale = quantize(x, 0.9, 4, axis=0)
    along, along_scale = quantize(np.ascontiguousarray(x.T), 0.9, 4)
    assert (codes == along.T).all()
    assert (scale == along_scale.T).all()


@pytest.mark.parametrize("group_size", [0, 3, 256])
def test_a_group_size_that_does_not_divide_is_refused(group_size):
    with pytest.raises(
        SpecError, match=f"group_size {group_size} is not allowed: it must divide head_dim 128"
    ):
        require_group_size(128, group_size)


@pytest.mark.parametrize("clip", [0, -1, 1.01, float("nan")])
def test_a_clip_outside_its_range_is_refused(clip):
    with pytest.raises(SpecError, match="above 0, at most 1"):
        quantize(np.ones(4, dtype=F), clip, 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_with_its_first_index(bad):
    x = np.ones((2, 4), dtype=F)
    x[1, 2] = x[1, 3] = bad
    with pytest.raises(NonFiniteError, match=rf"x\[1, 2\] is {bad}: every value must be finite"):
        quantize(x, 1.0, 4)
    require_finite(x[:1], "x")
