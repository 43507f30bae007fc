"""The NumPy backend against the textbook formula in float64, and against itself in other shapes."""

import numpy as np
import pytest

from producer.backend import select_backend
from producer.backend.cpu import NumpyBackend
from producer.backend.kv_blocks import ArraySource
from producer.errors import BackendUnavailableError, NonFiniteError, SpecError
from producer.experiment.slice.spec import SliceSpec
from producer.experiment.slice.synthetic import build_slice
from producer.numerics.nmse import nmse
from producer.quantize.symmetric_absmax_clip import dequantize, quantize
from producer.transform import Identity, SignedHadamard
from producer.transform.signs import draw_signs
from tests.producer import reference

HEADS, TOKENS, D, OUT, QUERIES = 2, 1100, 128, 24, 3  # two blocks of 1024 and 76 tokens


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


def expected(k, v, queries, w_o):
    return np.array(
        [
            reference.attention(query, k.transpose(1, 0, 2), v.transpose(1, 0, 2), w_o)
            for query in queries.astype(float)
        ]
    )


@pytest.mark.parametrize("rotation", rotations(), ids=lambda rotation: rotation.kind)
@pytest.mark.parametrize("threads", [1, 2])
def test_float_attention_is_the_formula_whatever_the_rotation(arrays, rotation, threads):
    k, v, queries, w_o = arrays
    backend = NumpyBackend(threads)
    cache = backend.rotate(ArraySource(k, v), rotation)
    found = backend.project(backend.attend_float(cache, queries), rotation.rotate_output(w_o))
    assert nmse(found, expected(k.astype(float), v.astype(float), queries, w_o)).max() <= 1e-9


@pytest.mark.parametrize("group_size", [128, 32])
@pytest.mark.parametrize("ratio", [1.0, 0.7])
def test_packed_attention_is_the_formula_on_dequantized_values(arrays, ratio, group_size):
    k, v, queries, w_o = arrays
    backend = NumpyBackend(1)
    packed = backend.quantize_pack(backend.rotate(ArraySource(k, v), Identity(D)), ratio, group_size)
    found = backend.project(backend.attend_packed(packed, queries), w_o)
    stored = [dequantize(*quantize(x, ratio, group_size)).astype(float) for x in (k, v)]
    assert nmse(found, expected(*stored, queries, w_o)).max() <= 1e-9
    assert packed.code_bytes == HEADS * TOKENS * D * 2 * 2 // 8
    assert packed.scale_bytes == HEADS * TOKENS * (D // group_size) * 2 * 4


@pytest.mark.parametrize("group_size", [128, 64])
@pytest.mark.parametrize("rotation", rotations(), ids=lambda rotation: rotation.kind)
def test_the_search_sees_what_the_packed_cache_gives_bit_for_bit(arrays, rotation, group_size):
    k, v, queries, _ = arrays
    backend = NumpyBackend(1)
    cache = backend.rotate(ArraySource(k, v), rotation)
    ratios = (1.0, 0.85, 0.4)
    found = backend.search_clips(cache, queries, ratios, group_size)
    for ratio, heads in zip(ratios, found, strict=True):
        packed = backend.quantize_pack(cache, ratio, group_size)
        assert heads.tobytes() == backend.attend_packed(packed, queries).tobytes()
        # A query's result does not depend on the queries beside it.
        assert heads[1:2].tobytes() == backend.attend_packed(packed, queries[1:2]).tobytes()


def test_the_number_of_threads_changes_no_bit(arrays):
    k, v, queries, _ = arrays
    rotation = rotations()[1]
    results = []
    for threads in (1, 2, 3):
        backend = NumpyBackend(threads)
        cache = backend.rotate(ArraySource(k, v), rotation)
        packed = backend.quantize_pack(cache, 0.7, 128)
        results.append(
            (
                backend.attend_float(cache, queries).tobytes(),
                backend.search_clips(cache, queries, (1.0, 0.7), 128).tobytes(),
                backend.attend_packed(packed, queries).tobytes(),
                b"".join(block.packed.tobytes() for block in packed.blocks),
            )
        )
    assert results[0] == results[1] == results[2]


def test_the_cache_holds_the_codes_of_the_quantizer(arrays):
    k, v, _, _ = arrays
    backend = NumpyBackend(1)
    packed = backend.quantize_pack(backend.rotate(ArraySource(k, v), Identity(D)), 0.8, 128)
    # Written out: bytes hold four consecutive channels, tokens run along the last axis.
    bits = np.concatenate([block.packed for block in packed.blocks], axis=3)
    lanes = np.stack([bits >> shift & 3 for shift in (0, 2, 4, 6)], axis=3).reshape(HEADS, 2, D, TOKENS)
    for part, values in enumerate((k, v)):
        codes, _ = quantize(values, 0.8, 128)
        assert (lanes[:, part].transpose(0, 2, 1) == codes).all()


def test_a_regenerated_cache_is_the_kept_one_bit_for_bit():
    spec = SliceSpec(seq_len=2500, num_kv_heads=3, head_dim=64, output_dim=8, seed=9)
    kept, streamed = build_slice(spec), build_slice(spec, resident_bytes=0)
    assert kept.w_o.tobytes() == streamed.w_o.tobytes()
    queries = kept.draw_queries(2)
    assert queries.tobytes() == streamed.draw_queries(2).tobytes()
    rotation = SignedHadamard(draw_signs(1, 1, 64)[0])
    results = []
    for source in (kept.source, streamed.source):
        backend = NumpyBackend(2)
        cache = backend.rotate(source, rotation)
        packed = backend.quantize_pack(cache, 0.7, 64)
        results.append(
            (
                backend.search_clips(cache, queries, (0.9, 0.7), 64).tobytes(),
                backend.attend_packed(packed, queries).tobytes(),
            )
        )
    assert results[0] == results[1]


def test_the_slice_is_the_plain_stream_with_outliers():
    spec = SliceSpec(seq_len=90, num_kv_heads=2, head_dim=64, output_dim=3, seed=5)
    stream = reference.normals(5)
    k, v = np.array([[next(stream) for _ in range(90 * 128)] for _ in "kv"], dtype=np.float32)
    for flat in (k, v):
        flat[[0, 9973]] *= np.float32(30)
    block = build_slice(spec).source.block(0)
    for part, values in enumerate((k, v)):
        assert (block[:, part] == values.reshape(90, 2, 64).transpose(1, 2, 0)).all()


@pytest.mark.parametrize("name", ["k", "v"])
def test_a_cache_that_is_not_finite_is_refused_with_its_first_index(name):
    values = {part: np.ones((2, 5, 4), dtype=np.float32) for part in "kv"}
    values[name][1, 3, 2] = np.nan
    with pytest.raises(NonFiniteError, match=rf"{name}\[1, 3, 2\] is nan"):
        ArraySource(**values)


def test_queries_that_are_not_finite_are_refused(arrays):
    k, v, queries, _ = arrays
    backend = NumpyBackend(1)
    bad = queries.copy()
    bad[2, 0, 7] = np.inf
    with pytest.raises(NonFiniteError, match=r"queries\[2, 0, 7\] is inf"):
        backend.attend_float(backend.rotate(ArraySource(k, v), Identity(D)), bad)


def test_a_block_that_turned_bad_is_refused_by_the_quantizer(arrays):
    k, v, queries, _ = arrays
    source = ArraySource(k, v)
    source.block(0)[0, 0, 3, 4] = np.nan
    backend = NumpyBackend(1)
    cache = backend.rotate(source, Identity(D))
    with pytest.raises(NonFiniteError, match="a row of the cache holds NaN or infinity"):
        backend.search_clips(cache, queries, (1.0,), 128)


def test_shapes_that_do_not_fit_are_refused():
    k = np.ones((2, 5, 4), dtype=np.float32)
    with pytest.raises(SpecError, match=r"k \(2, 5, 4\) and v \(2, 4, 4\) are not allowed"):
        ArraySource(k, k[:, :4])


def test_backends_by_name(monkeypatch):
    assert isinstance(select_backend("auto"), NumpyBackend)
    assert select_backend("numpy", 3).workers == 3
    with pytest.raises(SpecError, match="backend 'cuda' is not allowed: one of auto, numpy, cupy"):
        select_backend("cuda")
    with pytest.raises(SpecError, match="threads 0 is not allowed: an integer 1 … 256"):
        select_backend("numpy", 0)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(BackendUnavailableError, match="backend cupy cannot run here: CuPy is not installed"):
        select_backend("cupy")
