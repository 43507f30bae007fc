"""Decode attention: the kernels against exact attention in float64, within the bound of docs/methods/kernels.md."""

import numpy as np
import pytest

from producer.backend.cuda import launch
from producer.errors import SpecError
from producer.quantize.packing import unpack
from producer.quantize.symmetric_absmax_clip import dequantize

UNIT = 2.0**-24  # half an ulp of 1 in float32


def exact(queries, k, v):
    """Attention in float64, (queries, num_heads, head_dim), with scores and weights by head."""
    group = queries.shape[1] // len(k)
    k, v, q = (np.asarray(a, np.float64) for a in (k, v, queries))
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    scores = np.einsum("qhd,htd->qht", q, k)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("qht,htd->qhd", weights, v), scores, weights, v


def bound(queries, size, scores, weights, v):
    """The bound of docs/methods/kernels.md, "What equal means", one value an output.

    `size` is the largest absolute value of every key, (num_heads, tokens): the scale where keys are quantized.
    """
    head_dim = queries.shape[2]
    norm = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=2))
    score_error = UNIT * (np.sqrt(head_dim) * norm[..., None] * size + 2 * np.abs(scores))
    top = scores.max(axis=2, keepdims=True)
    share = weights * (score_error + UNIT * (top - scores + 4))
    mean = np.einsum("qht,htd->qhd", weights, np.abs(v))
    return np.einsum("qht,htd->qhd", share, np.abs(v)) + (share.sum(axis=2)[..., None] + 8 * UNIT) * mean


def packed_attention(device, queries, x, change=None):
    """Output of the packed kernels, and the keys and values that the packed cache stands for.

    `change` is called with the packed keys before the kernels read them.
    """
    heads, seq_len = x.shape[1:3]
    k, v = (launch.empty_packed(device, (heads, seq_len)) for _ in "kv")
    for rows, values in ((k, x[0]), (v, x[1])):
        launch.rotate_quantize_pack(device, device.upload(values), 0.9, rows)
    values = [dequantize(unpack(device.download(r.packed)), device.download(r.scales)) for r in (k, v)]
    if change is not None:
        change(k.packed)
    buffers = launch.attention_buffers(device, queries.shape[:2], heads, seq_len)
    launch.attend_packed(device, device.upload(queries), k, v, buffers)
    return device.download(buffers.outputs), *values


def largest(k, num_heads):
    """Largest absolute value of every key, for every query head."""
    return np.repeat(np.abs(k).max(axis=2), num_heads // len(k), axis=0).astype(np.float64)


CASES = [
    # head_dim, group_size, KV heads, query heads, queries, tokens
    (128, 128, 2, 2, 1, 1),
    (128, 128, 1, 1, 1, 257),
    (128, 128, 2, 2, 3, 700),
    (128, 128, 1, 4, 2, 300),
    (128, 128, 2, 6, 1, 256),
    (128, 32, 1, 2, 3, 300),
    (16, 16, 2, 2, 1, 513),
    (512, 128, 1, 2, 1, 290),
]


@pytest.mark.parametrize(("head_dim", "group_size", "kv_heads", "heads", "count", "tokens"), CASES)
def test_packed_attention_is_within_the_bound(
    device_of, head_dim, group_size, kv_heads, heads, count, tokens
):
    rng = np.random.default_rng(31 + tokens)
    x = rng.standard_normal((2, kv_heads, tokens, head_dim)).astype(np.float32)
    x.reshape(-1)[::997] *= 30
    queries = (rng.standard_normal((count, heads, head_dim)) / np.sqrt(head_dim)).astype(np.float32)
    found, k, v = packed_attention(device_of(head_dim, group_size), queries, x)
    wanted, scores, weights, wide = exact(queries, k, v)
    assert found.dtype == np.float32
    assert (np.abs(found - wanted) <= bound(queries, largest(k, heads), scores, weights, wide)).all()


def test_one_wrong_code_is_outside_the_bound(device_of):
    rng = np.random.default_rng(36)
    x = rng.standard_normal((2, 1, 600, 128)).astype(np.float32)
    queries = (rng.standard_normal((1, 1, 128)) / np.sqrt(128)).astype(np.float32)
    byte = (0, 300, int(np.abs(queries[0, 0]).argmax()) // 4)

    def change(packed):
        packed[byte] ^= 1 << 2 * (int(np.abs(queries[0, 0]).argmax()) % 4)

    found, k, v = packed_attention(device_of(128, 128), queries, x, change)
    wanted, scores, weights, wide = exact(queries, k, v)
    assert (np.abs(found - wanted) > bound(queries, largest(k, 1), scores, weights, wide)).any()


@pytest.mark.parametrize(("head_dim", "group_size", "kv_heads", "heads", "count", "tokens"), CASES)
def test_float_attention_is_within_the_bound(device_of, head_dim, group_size, kv_heads, heads, count, tokens):
    device = device_of(head_dim, group_size)
    rng = np.random.default_rng(32 + tokens)
    k, v = rng.standard_normal((2, kv_heads, tokens, head_dim)).astype(np.float32)
    queries = (rng.standard_normal((count, heads, head_dim)) / np.sqrt(head_dim)).astype(np.float32)
    buffers = launch.attention_buffers(device, queries.shape[:2], kv_heads, tokens)
    launch.attend_float(device, *(device.upload(a) for a in (queries, k, v)), buffers)
    wanted, scores, weights, wide = exact(queries, k, v)
    limit = bound(queries, largest(k, heads), scores, weights, wide)
    assert (np.abs(device.download(buffers.outputs) - wanted) <= limit).all()


def test_sharp_scores_do_not_overflow(device_of):
    """One token takes all the weight: its value comes out, whatever the size of the scores."""
    rng = np.random.default_rng(33)
    x = rng.standard_normal((2, 1, 600, 128)).astype(np.float32)
    x[0, 0, 411] *= 40
    queries = x[0, :, 411][None] * np.float32(0.5)
    found, _, v = packed_attention(device_of(128, 128), queries, x)
    np.testing.assert_allclose(found[0, 0], v[0, 411], rtol=1e-6)


def test_many_splits_are_merged_in_order(device_of):
    """1024 tokens or more a split, and more splits than threads of the merging block."""
    device = device_of(16, 16)
    rng = np.random.default_rng(34)
    splits = 600
    top = (3 * rng.standard_normal((2, 3, splits))).astype(np.float32)
    total = rng.lognormal(0, 1, (2, 3, splits)).astype(np.float32)
    sums = rng.standard_normal((2, 3, splits, 16)).astype(np.float32)
    out = device.empty((3, 2, 16), np.float32)
    arguments = [device.upload(a) for a in (top, total, sums)]
    device.launch("merge_partials", (3, 2, 1), (*arguments, np.int32(splits), np.int32(1), out))
    factor = np.exp((top - top.max(axis=2, keepdims=True)).astype(np.float64))
    wanted = np.einsum("hrs,hrsd->rhd", factor, sums) / np.einsum("hrs,hrs->rh", factor, total)[..., None]
    np.testing.assert_allclose(device.download(out), wanted, rtol=2 * UNIT, atol=1e-9)


def test_order_of_threads_changes_no_bit(device_of):
    device = device_of(128, 128)
    rng = np.random.default_rng(35)
    x = rng.standard_normal((2, 1, 333, 128)).astype(np.float32)
    queries = rng.standard_normal((3, 1, 128)).astype(np.float32)
    wanted = packed_attention(device, queries, x)[0]
    device.seed = 99
    try:
        np.testing.assert_array_equal(packed_attention(device, queries, x)[0], wanted)
    finally:
        device.seed = 0


@pytest.mark.parametrize(
    ("seq_len", "tokens"),
    [(1, 256), (4096, 256), (65_536, 256), (131_072, 512), (200_000, 512), (1_048_576, 1024), (10**7, 1024)],
)
def test_splits_depend_on_the_tokens_alone(seq_len, tokens):
    assert launch.split_tokens(seq_len) == tokens


def test_query_heads_must_be_a_multiple(device_of):
    with pytest.raises(SpecError, match="6 query heads on 4 KV heads are not allowed"):
        launch.attention_buffers(device_of(128, 128), (1, 6), 4, 100)
