"""Masks of the straight-through estimator, worked out by hand; values are compared with NumPy's as a law."""

import numpy as np
import pytest

from producer.errors import SpecError
from producer.scheme.optr.quantizer import TorchQuantizer

pytestmark = pytest.mark.slow

ROW = (0.11, -0.23, 0.3, -0.12, 0.17, -0.3, 0.16, 100.0)


def apply(torch, quantizer, *rows):
    z = torch.tensor(rows, dtype=torch.float32)[:, None, :]
    values, mask = quantizer.apply(z)
    return values[:, 0].numpy(), mask[:, 0].numpy()


def test_what_the_order_statistic_clips_has_no_gradient(torch):
    """Ratio 0.75 of 8 channels: τ = 0.3, only the 100 is above; what lies on τ is not clipped."""
    values, mask = apply(torch, TorchQuantizer("oscar-prefill", 8, (0.75,)), ROW)
    assert np.allclose(values, [[0.1, -0.3, 0.3, -0.1, 0.1, -0.3, 0.1, 0.3]], atol=1e-6)
    assert mask.tolist() == [[True] * 7 + [False]]


def test_without_a_clip_all_has_a_gradient(torch):
    values, mask = apply(torch, TorchQuantizer("oscar-prefill", 8, (0.0, 0.5)), ROW, ROW)
    assert np.allclose(values[0], [-0.3] * 7 + [100], atol=1e-4)
    # Of the second head ⌊0.5·8⌋ = 4: τ = 0.23, and -0.23 is on it.
    assert mask.tolist() == [[True] * 8, [True, True, False, True, True, False, True, False]]


def test_a_shrunk_range_clips_both_ends(torch):
    """From -1 to 3 with the ratio 0.5: 0 to 2."""
    row = (-1.0, 0.0, -0.1, 3.0, 2.0, 2.1, 1.0, 1.3)
    values, mask = apply(torch, TorchQuantizer("affine-midpoint", 8, (0.5, 1.0)), row, row)
    # Codes in steps of 2/3 from 0; the second head keeps the range, in steps of 4/3 from -1.
    assert np.allclose(values[0], np.array([0, 0, 0, 3, 3, 3, 2, 2]) * 2 / 3, atol=1e-6)
    assert np.allclose(values[1], np.array([0, 1, 1, 3, 2, 2, 2, 2]) * 4 / 3 - 1, atol=1e-6)
    assert mask.tolist() == [[False, True, False, False, True, False, True, True], [True] * 8]


def test_groups_must_divide(torch):
    with pytest.raises(SpecError, match="group_size 3 is not allowed: a divisor of the 8 channels"):
        apply(torch, TorchQuantizer("oscar-prefill", 3, (0.5,)), ROW)
