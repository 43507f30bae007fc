"""What a dialect reads back lies within half a step of what it was given, wherever it does not clip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DegenerateGroupError
from producer.quantize import DIALECTS
from tests.property.strategies import normal, rows, seeds

AFFINE = ["oscar-prefill", "quarot-head-wise", "quarot-group", "rotatekv", "affine-midpoint"]
UNCLIPPED = {"oscar-prefill": 0.0}


@pytest.mark.parametrize("name", AFFINE)
@given(x=rows(), offset=st.sampled_from([0.0, 3.0, -7.0]))
def test_error_is_half_a_step_without_a_clip(name, x, offset):
    x = x + np.float32(offset)
    dialect = DIALECTS[name]
    try:
        quantized = dialect.quantize(x, UNCLIPPED.get(name, 1.0), 128)
    except DegenerateGroupError:
        return
    back = dialect.dequantize(quantized).astype(float)
    scale, zero = (values.astype(float) for values in quantized.metadata)
    # Half a step for the code, another half where the zero point is rounded; x/scale + zero is rounded to
    # float32 at the size of its terms, each of which is at most |zero| + 3 steps.
    steps = (1.0 if dialect.numerics.zero_point == "integer" else 0.5) + 3e-7 * (np.abs(zero) + 4)
    assert (np.abs(back - x) <= steps * scale).all()


@pytest.mark.parametrize("name", ["kivi-float32-value", "turboquant-3bit-value"])
@given(seed=seeds, exponent=st.integers(-3, 3))
def test_error_is_half_a_step_above_a_stored_minimum(name, seed, exponent):
    x = normal(seed, 4, 128) * np.float32(10.0**exponent)
    dialect = DIALECTS[name]
    quantized = dialect.quantize(x, 1.0, 128)
    scale, low = (values.astype(float) for values in quantized.metadata)
    # float16 keeps 11 bits of scale and minimum, or a multiple of 2⁻²⁴ when they are small.
    top = 2**dialect.numerics.bits - 1
    slack = 2.0**-11 * (np.abs(low) + top * scale) + (top + 1) * 2.0**-25
    assert (np.abs(dialect.dequantize(quantized) - x) <= scale / 2 + 1.01 * slack).all()


@given(seed=seeds, exponent=st.integers(-2, 3))
def test_the_error_of_kivi_is_half_a_step_and_the_roundings_of_its_encoder(seed, exponent):
    x = normal(seed, 4, 128) * np.float32(10.0**exponent)
    kivi = DIALECTS["kivi-value"]
    quantized = kivi.quantize(x, 1.0, 128)
    scale, low = (values.astype(float) for values in quantized.metadata)
    # Beside scale and minimum the value, its difference and the quotient, at most 3, are rounded to 11 bits.
    slack = 2.0**-11 * (2 * np.abs(low) + 14 * scale) + 6 * 2.0**-25
    assert (np.abs(kivi.dequantize(quantized) - x) <= scale / 2 + slack).all()


@given(seed=seeds)
def test_a_token_of_all_heads_is_quantized_by_itself(seed):
    x = normal(seed, 2, 3, 6, 32)
    dialect = DIALECTS["quarot-token-wise"]
    whole = dialect.quantize(x, 0.9, 96)
    part = dialect.quantize(np.ascontiguousarray(x[1, :, 2:5]), 0.9, 96)
    assert (whole.codes[1, :, 2:5] == part.codes).all()
    # The heads one after the other are a row of the head-wise setting.
    rows = np.ascontiguousarray(x[0].swapaxes(0, 1).reshape(6, 96))
    assert (
        DIALECTS["quarot-head-wise"].quantize(rows, 0.9, 96).codes
        == whole.codes[0].swapaxes(0, 1).reshape(6, 96)
    ).all()


@pytest.mark.parametrize(
    "name", [name for name, one in DIALECTS.items() if one.numerics.group_axis == "channels"]
)
@given(seed=seeds)
def test_tokens_are_quantized_by_themselves(name, seed):
    x = normal(seed, 2, 6, 64)
    dialect = DIALECTS[name]
    whole = dialect.quantize(x, 1.0, 64)
    part = dialect.quantize(np.ascontiguousarray(x[1:, 2:5]), 1.0, 64)
    assert (whole.codes[1:, 2:5] == part.codes).all()
    for values, alone in zip(whole.metadata, part.metadata, strict=True):
        assert (values[1:, 2:5] == alone).all()


@given(seed=seeds)
def test_keys_of_kivi_are_quantized_block_by_block(seed):
    x = normal(seed, 2, 96, 8)
    kivi = DIALECTS["kivi-key"]
    whole, part = kivi.quantize(x, 1.0, 32), kivi.quantize(np.ascontiguousarray(x[:, 32:64]), 1.0, 32)
    assert (whole.codes[:, 32:64] == part.codes).all()


@given(seed=seeds, power=st.integers(-10, 10))
def test_a_power_of_two_passes_through_oscars_codes(seed, power):
    x = normal(seed, 4, 128)
    oscar = DIALECTS["oscar-prefill"]
    plain, scaled = oscar.quantize(x, 0.92, 32), oscar.quantize(x * np.float32(2.0**power), 0.92, 32)
    assert (plain.codes == scaled.codes).all()
    assert (plain.metadata[0] * np.float32(2.0**power) == scaled.metadata[0]).all()
    assert (plain.metadata[1] == scaled.metadata[1]).all()


@given(seed=seeds)
def test_the_order_of_channels_does_not_matter_in_one_group(seed):
    x = normal(seed, 4, 64)
    order = np.random.default_rng(seed).permutation(64)
    for name in ("oscar-prefill", "oscar-flush", "quarot-head-wise", "kivi-value"):
        plain, mixed = (
            DIALECTS[name].quantize(each, 1.0, 64) for each in (x, np.ascontiguousarray(x[:, order]))
        )
        assert (plain.codes[:, order] == mixed.codes).all()
