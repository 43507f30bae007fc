"""Bits per element against the published figures, windows against their description, bytes against arrays."""

from itertools import islice

import numpy as np
import pytest

from producer.errors import SpecError
from producer.quantize import DIALECTS
from producer.quantize.packing import LAYOUTS
from producer.quantize.storage import bits_per_element, bits_per_element_of, load_quantized, store_quantized
from producer.quantize.windows import TokenCounts, static_split
from tests.producer.quantize.serving_windows import (
    decode_windows,
    kivi_key_split,
    kivi_value_split,
    prefill_windows,
)

OSCAR = DIALECTS["oscar-prefill"]


def bpe(seq_len, m, sink=64, recent=256, **changes):
    sizes = {"bits": 2, "group_size": 128, "metadata_scalars": 2, "metadata_bits": m, **changes}
    return float(bits_per_element(static_split(seq_len, sink, recent), **sizes))


@pytest.mark.parametrize(
    ("seq_len", "papers", "code"),
    [
        (1024, 6.5469, 6.7188),
        (4096, 3.3242, 3.5547),
        (32_768, 2.3843, 2.6318),
        (65_536, 2.3171, 2.5659),
        (131_072, 2.2836, 2.5330),
    ],
)
def test_published_bits_per_element(seq_len, papers, code):
    assert round(bpe(seq_len, 16), 4) == papers
    assert round(bpe(seq_len, 32), 4) == code


def test_16_bit_metadata_were_assumed():
    assert round(bpe(65_536, 16), 6) == 2.317139
    assert round(bpe(65_536, 32), 6) == 2.565918
    assert bpe(65_536, 16) == 151_856 / 65_536
    # "About 8 times smaller" is 6.9 times, or 6.2 as stored.
    assert [round(16 / bpe(65_536, m), 1) for m in (16, 32)] == [6.9, 6.2]
    assert float(bits_per_element_of(OSCAR.numerics, 128, static_split(65_536, 64, 256))) == bpe(65_536, 32)
    narrow = bits_per_element_of(
        OSCAR.numerics, 128, static_split(65_536, 64, 256), metadata_dtype="bfloat16"
    )
    assert float(narrow) == bpe(65_536, 16)


def test_other_schemes_without_windows():
    whole = static_split(1000, 0, 0)
    assert [
        float(bits_per_element_of(OSCAR.numerics, 128, whole, metadata_dtype=m))
        for m in ("float16", "float32")
    ] == [
        2.25,
        2.5,
    ]
    kivi = [float(bits_per_element_of(DIALECTS["kivi-key"].numerics, size, whole)) for size in (32, 128)]
    assert kivi == [3.0, 2.25]
    key, value = (
        float(bits_per_element_of(DIALECTS[f"turboquant-3bit-{s}"].numerics, 128, whole))
        for s in ("key", "value")
    )
    assert (key + value) / 2 == 3.1875
    assert 128 * key / 8 + 128 * value / 8 == 102


def test_no_token_has_no_bits():
    with pytest.raises(SpecError, match="0 tokens in groups of 128 at 2 bits are not allowed"):
        bits_per_element(
            static_split(0, 64, 256), bits=2, group_size=128, metadata_scalars=2, metadata_bits=16
        )


# --- windows ---


def test_the_recent_window_is_a_saw_tooth():
    start = prefill_windows(1000, 64, 256)
    assert start == TokenCounts(64, 680, 256)
    sizes = [counts.recent for counts in islice(decode_windows(start, 256), 32)]
    assert sizes == [*range(257, 264), *list(range(256, 264)) * 3, 256]
    assert np.mean(sizes[7:31]) == 259.5


def test_quantized_tokens_about_the_first_flush():
    start = prefill_windows(320, 64, 256)
    by_length = {counts.total: counts for counts in islice(decode_windows(start, 256), 12)}
    assert [by_length[length].quantized for length in (327, 328, 329)] == [0, 8, 8]
    assert [static_split(length, 64, 256).quantized for length in (327, 328, 329)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("prompt", "chunk", "recent"), [(1025, 512, 1), (1200, 512, 176), (1200, None, 256), (1024, 512, 256)]
)
def test_a_chunked_prefill_leaves_the_last_chunk_only(prompt, chunk, recent):
    counts = prefill_windows(prompt, 64, 256, chunk)
    assert counts == TokenCounts(64, prompt - 64 - recent, recent)
    later = list(islice(decode_windows(counts, 256), 600))
    # Once the window is full it never falls below its size.
    full = next(index for index, step in enumerate(later) if step.recent >= 256)
    assert all(256 <= step.recent <= 263 for step in later[full:])


@pytest.mark.parametrize("prompt", [0, 1, 63, 64, 65, 320, 321])
def test_short_prompts(prompt):
    counts = prefill_windows(prompt, 64, 256)
    assert counts == static_split(prompt, 64, 256)
    assert counts.sink == min(prompt, 64)
    for step, later in enumerate(islice(decode_windows(counts, 256), 400), start=1):
        assert later.total == prompt + step
        assert later.sink == min(prompt, 64)  # generated tokens never become sinks


def test_windows_that_are_not_allowed():
    with pytest.raises(
        SpecError, match="recent window 100 is not allowed: a multiple of the page of 8 tokens"
    ):
        next(decode_windows(static_split(10, 1, 1), 100))
    with pytest.raises(SpecError, match="sink -1 is not allowed"):
        static_split(10, -1, 0)
    with pytest.raises(SpecError, match="chunk 0 is not allowed"):
        prefill_windows(10, 0, 0, 0)
    with pytest.raises(SpecError, match="residual 0 is not allowed"):
        kivi_key_split(10, 0)


def test_kivi_keeps_a_remainder_of_keys_and_the_last_values():
    assert kivi_key_split(300, 128) == TokenCounts(0, 256, 44)
    assert kivi_value_split(300, 128) == TokenCounts(0, 172, 128)
    assert kivi_value_split(100, 128) == TokenCounts(0, 0, 100)


# --- stored arrays ---


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_stored_bytes_are_the_formulas(dialect):
    x = np.random.default_rng(1).standard_normal((3, 64, 128)).astype(np.float32)
    size = {"tokens": 32, "channels": 128, "heads": 3 * 128}[dialect.numerics.group_axis]
    quantized = dialect.quantize(x, 1.0, size)
    stored = store_quantized(dialect, quantized)
    bits = 8 * (stored.code_bytes + stored.metadata_bytes) / x.size
    assert bits == float(bits_per_element_of(dialect.numerics, size, static_split(64, 0, 0)))
    back = load_quantized(dialect, stored)
    assert (back.codes == quantized.codes).all()
    assert len(back.metadata) == dialect.numerics.metadata_scalars
    for one, other in zip(back.metadata, quantized.metadata, strict=True):
        assert (one == other).all()
    assert (dialect.dequantize(back) == dialect.dequantize(quantized)).all()


def test_oscar_stores_scale_and_zero_of_a_group_side_by_side_and_quarters_of_a_row():
    x = np.random.default_rng(2).standard_normal((1, 2, 64)).astype(np.float32)
    quantized = OSCAR.quantize(x, 0.96, 32)
    stored = store_quantized(OSCAR, quantized)
    scale, zero = quantized.metadata
    assert stored.metadata[0, 1].tolist() == [scale[0, 1, 0], zero[0, 1, 0], scale[0, 1, 1], zero[0, 1, 1]]
    codes = quantized.codes[0, 1]
    assert int(stored.codes[0, 1, 3]) == codes[3] | codes[19] << 2 | codes[35] << 4 | codes[51] << 6


def test_kivi_packs_sixteen_tokens_of_a_channel_in_a_word():
    x = np.random.default_rng(3).standard_normal((1, 32, 4)).astype(np.float32)
    kivi = DIALECTS["kivi-key"]
    quantized = kivi.quantize(x, 1.0, 32)
    stored = store_quantized(kivi, quantized)
    assert stored.codes.shape == (1, 4, 2)
    assert (LAYOUTS["int32"].unpack(stored.codes[0, 2]) == quantized.codes[0, :, 2]).all()
