"""All backends against the textbook formula in float64, and the kernels against NumPy bit for bit."""

import numpy as np
import pytest

from producer.backend.cpu import NumpyBackend
from producer.backend.cuda.backend import DeviceBackend
from producer.backend.cuda.errors import DeviceMemoryError
from producer.backend.cuda.shim import ShimDevice
from producer.backend.kv_blocks import ArraySource
from producer.errors import NonFiniteError, SpecError
from producer.numerics.nmse import nmse
from producer.quantize.packing import pack
from producer.quantize.symmetric_absmax_clip import dequantize, quantize
from producer.transform import Identity, SignedHadamard
from producer.transform.signs import draw_signs
from tests.producer import reference
from tests.producer.backend.cuda.kernels.conftest import require_shim

HEADS, TOKENS, D, OUT, QUERIES = 2, 1100, 128, 24, 3


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(42)
    k, v = generator.standard_normal((2, HEADS, TOKENS, D)).astype(np.float32)
    k.reshape(-1)[::997] *= 30
    queries = generator.standard_normal((QUERIES, HEADS, D)).astype(np.float32)
    w_o = generator.standard_normal((HEADS, D, OUT)).astype(np.float32) / 16
    return k, v, queries, w_o


def rotations():
    return [Identity(D), SignedHadamard(draw_signs(3, 1, D)[0])]


by_rotation = pytest.mark.parametrize("rotation", rotations(), ids=lambda rotation: rotation.kind)


def expected(k, v, queries, w_o):
    keys, values = k.transpose(1, 0, 2).astype(float), v.transpose(1, 0, 2).astype(float)
    return np.array([reference.attention(query, keys, values, w_o) for query in queries.astype(float)])


@by_rotation
def test_float_attention_is_the_formula_whatever_the_rotation(backend, arrays, rotation):
    k, v, queries, w_o = arrays
    cache = backend.rotate(ArraySource(k, v), rotation)
    found = backend.project(backend.attend_float(cache, queries), rotation.rotate_output(w_o))
    assert nmse(found, expected(k, v, queries, w_o)).max() <= 1e-9


@pytest.mark.parametrize("group_size", [128, 32])
@pytest.mark.parametrize("ratio", [1.0, 0.7])
def test_packed_attention_is_the_formula_on_dequantized_values(backend, arrays, ratio, group_size):
    k, v, queries, w_o = arrays
    packed = backend.quantize_pack(backend.rotate(ArraySource(k, v), Identity(D)), ratio, group_size)
    found = backend.project(backend.attend_packed(packed, queries), w_o)
    stored = [dequantize(*quantize(x, ratio, group_size)) for x in (k, v)]
    assert nmse(found, expected(*stored, queries, w_o)).max() <= 1e-9
    assert packed.code_bytes == HEADS * TOKENS * D * 2 * 2 // 8
    assert packed.scale_bytes == HEADS * TOKENS * (D // group_size) * 2 * 4


@by_rotation
def test_the_packed_cache_is_the_numpy_one_bit_for_bit(kernel_backend, arrays, rotation):
    k, v, _, _ = arrays
    packed = kernel_backend.quantize_pack(kernel_backend.rotate(ArraySource(k, v), rotation), 0.8, D)
    device = kernel_backend.device(D, D)
    codes, scale = quantize(rotation.rotate(np.stack([k, v])), 0.8, D)
    assert device.download(packed.rows.packed).tobytes() == pack(codes).tobytes()
    assert device.download(packed.rows.scales).tobytes() == scale.tobytes()


@by_rotation
def test_the_search_sees_what_the_packed_cache_gives_bit_for_bit(backend, arrays, rotation):
    k, v, queries, _ = arrays
    cache = backend.rotate(ArraySource(k, v), rotation)
    ratios = (1.0, 0.85, 0.4)
    found = backend.search_clips(cache, queries, ratios, D)
    assert found.shape == (3, QUERIES, HEADS, D)
    for ratio, heads in zip(ratios, found, strict=True):
        packed = backend.quantize_pack(cache, ratio, D)
        assert heads.tobytes() == backend.attend_packed(packed, queries).tobytes()
        # A query's result does not depend on the queries beside it.
        assert heads[1:2].tobytes() == backend.attend_packed(packed, queries[1:2]).tobytes()


def test_outputs_are_those_of_numpy(kernel_backend, arrays):
    k, v, queries, w_o = arrays
    outputs = []
    for each in (NumpyBackend(1), kernel_backend):
        packed = each.quantize_pack(each.rotate(ArraySource(k, v), rotations()[1]), 0.9, D)
        decoded = [each.decode(packed, query[None], w_o) for query in queries]
        assert all(step.decode_us > 0 and step.host_us > 0 for step in decoded)
        outputs.append(np.concatenate([step.outputs for step in decoded]))
    assert nmse(outputs[1], outputs[0]).max() <= 1e-10


def test_nmse_is_that_of_numpy(backend):
    a, b = np.random.default_rng(5).standard_normal((2, 4, OUT)).astype(np.float32)
    b[3] = 0
    np.testing.assert_allclose(backend.nmse(a, b), nmse(a, b), rtol=1e-13)


def test_another_source_and_another_w_o_are_not_mixed_up(backend, arrays):
    """The device keeps copies of the last ones; a new object of the same shape must replace them."""
    k, v, queries, w_o = arrays
    for factor in (1, 2):
        source = ArraySource(k * np.float32(factor), v)
        heads = backend.attend_float(backend.rotate(source, Identity(D)), queries)
        found = backend.project(heads, w_o * np.float32(factor))
        assert nmse(found, factor * expected(k * factor, v, queries, w_o)).max() <= 1e-9


def test_a_source_of_several_blocks_is_read_in_order(kernel_backend):
    rng = np.random.default_rng(6)
    # More tokens than a block of the CPU's sources holds.
    k, v = rng.standard_normal((2, 1, 2100, D)).astype(np.float32)
    source = ArraySource(k, v)
    assert source.num_blocks > 1
    cache = kernel_backend.rotate(source, Identity(D))
    assert kernel_backend.device(D, D).download(cache.values).tobytes() == np.stack([k, v]).tobytes()


def test_nan_in_queries_is_refused(backend, arrays):
    k, v, queries, _ = arrays
    cache = backend.rotate(ArraySource(k, v), Identity(D))
    bad = queries.copy()
    bad[1, 0, 7] = np.nan
    with pytest.raises(NonFiniteError, match=r"queries\[1, 0, 7\] is nan"):
        backend.attend_float(cache, bad)


class Overflowing:
    """A rotation's rows may be infinite although its input is finite."""

    def __init__(self):
        k = np.full((1, 300, D), 3e38, np.float32)
        self.source = ArraySource(k, k)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid:RuntimeWarning")
def test_rows_that_overflow_are_refused(backend):
    cache = backend.rotate(Overflowing().source, SignedHadamard(np.ones(D, np.float32)))
    with pytest.raises(NonFiniteError, match="a row of the cache holds NaN or infinity"):
        backend.quantize_pack(cache, 1.0, D)
    with pytest.raises(NonFiniteError, match="a row of the cache holds NaN or infinity"):
        backend.search_clips(cache, np.ones((1, 1, D), np.float32), [1.0], D)
    # The next cache is judged by itself.
    good = backend.rotate(
        ArraySource(np.ones((1, 300, D), np.float32), np.ones((1, 300, D), np.float32)), Identity(D)
    )
    assert backend.quantize_pack(good, 1.0, D).code_bytes == 2 * 300 * D // 4


@pytest.mark.parametrize(("head_dim", "group_size"), [(96, 96), (128, 8), (1024, 128)])
def test_sizes_without_a_kernel_are_refused(kernel_backend, head_dim, group_size):
    ones = np.ones((1, 4, head_dim), np.float32)

    def quantize_ones():
        cache = kernel_backend.rotate(ArraySource(ones, ones), Identity(head_dim))
        kernel_backend.quantize_pack(cache, 1.0, group_size)

    with pytest.raises(SpecError, match="is not allowed on a GPU: a power of two"):
        quantize_ones()


def test_a_cache_that_does_not_fit_is_refused_with_its_bytes(arrays):
    require_shim()
    k, v, _, _ = arrays
    small = DeviceBackend(lambda variant: ShimDevice(variant, memory_bytes=2**20))
    with pytest.raises(DeviceMemoryError, match="a cache of 1100 tokens needs 4787200 bytes") as caught:
        small.rotate(ArraySource(k, v), Identity(D))
    # Float32 values and their rotation, codes, and at most as many bytes of scales as of codes.
    elements = 2 * HEADS * TOKENS * D
    assert caught.value.needed_bytes == 8 * elements + elements // 2 == 4_787_200
    assert caught.value.limit_bytes == 2**20
