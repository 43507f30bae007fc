"""Inside the clip the quantizer's error is at most half a step, and codes rise with values."""

import numpy as np
from hypothesis import given

from producer.quantize.symmetric_absmax_clip import dequantize, quantize
from tests.property.strategies import clips, rows


@given(rows(), clips)
def test_error_is_half_a_step_inside_the_clip(x, clip):
    codes, scale = quantize(x, clip, 128)
    values = dequantize(codes, scale).astype(float)
    limit = scale.astype(float)
    inside = np.abs(x) <= limit
    # A step is 2·scale/3; the rest is the rounding of z and of the value itself.
    assert (np.abs(values - x) <= limit * (1 / 3 + 1e-6))[inside].all()
    # Outside, the error is what the clip cuts off.
    outside = ~inside
    assert np.allclose(np.abs(values)[outside], np.broadcast_to(limit, x.shape)[outside], rtol=1e-6)
    assert int(codes.max()) <= 3


@given(rows(), clips)
def test_codes_rise_with_values(x, clip):
    codes, _ = quantize(x, clip, 128)
    order = np.argsort(x, axis=1)
    assert (np.diff(np.take_along_axis(codes.astype(int), order, axis=1), axis=1) >= 0).all()


@given(rows(groups=2), clips)
def test_groups_are_quantized_by_themselves(x, clip):
    codes, scale = quantize(x, clip, 128)
    for group in range(2):
        part = slice(128 * group, 128 * (group + 1))
        alone, alone_scale = quantize(np.ascontiguousarray(x[:, part]), clip, 128)
        assert (codes[:, part] == alone).all()
        assert (scale[:, group : group + 1] == alone_scale).all()


@given(rows())
def test_values_that_are_levels_are_kept(x):
    codes, scale = quantize(x, 1.0, 128)
    values = dequantize(codes, scale)
    again, again_scale = quantize(values, 1.0, 128)
    # The largest |x| of a row is a level, so a second pass finds the same scale.
    assert (again == codes).all() or not (scale > 1e-11).all()
    assert np.allclose(again_scale, scale, rtol=1e-6)
