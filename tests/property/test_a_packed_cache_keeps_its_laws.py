"""Laws of the packed cache on random models of six families: chunks, windows, rows, drafts, padding, bytes."""

import importlib.util
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.producer.cache import made_models as made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.matrix,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: `make slow` installs it"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

#: Rounding of float64 through three layers; a wrong token moves logits by more than 1e-2.
ROUNDING = 1e-9
KINDS = ("fitted", "int2-clip", "quarot-native", "turboquant-3bit", "kivi")
_MODELS = {}


def model_of(family, **changes):
    key = (family, *sorted(changes.items()))
    if key not in _MODELS:
        _MODELS[key] = made.tiny_model(family, **changes)
    return _MODELS[key]


def cache_of(model, kind="fitted", attention="packed", **options):
    from producer.cache import PackedCache  # noqa: PLC0415

    windows = {"group_size": 16, "sink": 16} if kind == "kivi" else {}
    layers = made.made_layers(kind, model.config.num_hidden_layers, **windows)
    flush = 16 if kind == "kivi" else made.FLUSH
    return PackedCache.for_model(model, layers, attention=attention, **{"flush": flush} | options)


@st.composite
def chunks(draw, total):
    """Chunk lengths that add up to at most `total`."""
    sizes = draw(st.lists(st.integers(1, total), max_size=12))
    kept = []
    for size in sizes:
        if sum(kept) + size > total:
            break
        kept.append(size)
    return kept


@pytest.mark.parametrize("attention", ["packed", "dequantize"])
@pytest.mark.parametrize("family", made.FAMILIES)
def test_law_1_windows_as_long_as_the_text_give_the_ordinary_cache_bit_for_bit(family, attention):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    model = model_of(family)
    ids = made.tokens(2, 40)
    model.set_attn_implementation("sdpa")
    ordinary = made.logits_of(model, ids, transformers.DynamicCache(config=model.config), [25, 1, 1])
    layers = made.made_layers("fitted", 3, sink=8, recent=32)
    cache = PackedCache.for_model(model, layers, attention=attention)
    found = made.logits_of(model, ids, cache, [25, 1, 1])
    assert torch.equal(found, ordinary)
    cache.reset()
    greedy = [
        model.generate(ids[:, :12], max_new_tokens=20, do_sample=False, past_key_values=held)
        for held in (cache, transformers.DynamicCache(config=model.config))
    ]
    assert torch.equal(*greedy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", made.FAMILIES)
@settings(max_examples=4)
@given(sizes=chunks(70))
def test_law_2_any_chunks_give_the_same_codes_and_tokens(family, kind, sizes):
    model = model_of(family)
    ids = made.tokens(1, 70)
    one, many = cache_of(model, kind), cache_of(model, kind)
    whole = made.logits_of(model, ids, one)
    found = made.logits_of(model, ids, many, sizes)
    assert made.apart(found, whole) <= ROUNDING
    assert (found.argmax(-1) == whole.argmax(-1)).all()
    assert made.equal(made.body(many), made.body(one))
    assert all(layer.groups[0][2].body > 0 for layer in many.packed_layers)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(sizes=chunks(90), rows=st.integers(1, 3), seed=st.integers(0, 9))
def test_law_2_the_same_rows_in_any_chunks_give_the_same_bytes_in_any_attention(kind, sizes, rows, seed):
    import torch  # noqa: PLC0415

    model = model_of("Llama")
    states = torch.randn((2, rows, 2, 90, 16), generator=torch.Generator().manual_seed(seed))
    found = []
    for split in ([90], [*sizes, 90 - sum(sizes)]):
        cache = cache_of(model, kind, "dequantize")
        first = 0
        for size in split:
            cache.packed_layers[0].update(*states[:, :, :, first : first + size])
            first += size
        found.append(cache)
    assert made.equal(made.body(found[0]), made.body(found[1]))
    # A row is stored as it is alone.
    alone = cache_of(model, kind)
    alone.packed_layers[0].update(*states[:, rows - 1 :])
    assert made.equal(made.body(alone), [held[rows - 1 :] for held in made.body(found[1])])


@given(
    length=st.integers(0, 80),
    sink=st.integers(0, 20),
    recent=st.integers(1, 20),
    flush=st.sampled_from([1, 2, 4, 7, 16]),
)
@settings(max_examples=60)
def test_law_3_a_token_is_exact_in_a_window_and_stored_once_outside(length, sink, recent, flush):
    import torch  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    model = model_of("Llama")
    layers = made.made_layers("fitted", 3, sink=sink, recent=recent)
    cache = PackedCache.for_model(model, layers, attention="dequantize", flush=flush)
    layer = cache.packed_layers[0]
    states = torch.randn((2, 1, 2, length, 16), generator=torch.Generator().manual_seed(length))
    history = None
    for place in range(length):
        read, _ = layer.update(*states[:, :, :, place : place + 1])
        body = layer.groups[0][2].codes.get("key")
        if history is not None:
            # What is stored stays as it is.
            assert torch.equal(body[:, :, : history.shape[2]], history)
        history = body
    if not length:
        return
    rows = layer.groups[0][2]
    is_exact = (read[0] == states[0, 0]).all(-1).all(0).numpy()
    must = np.arange(length)
    must = (must < sink) | (must >= length - recent)
    assert is_exact[must].all()
    quantized = np.arange(length)[~is_exact]
    assert rows.body == len(quantized)
    assert rows.sink + rows.body + rows.exact["key"].shape[2] - rows.sink == length
    assert length - recent - rows.body - sink < max(flush, recent + sink) or rows.body == 0
    if len(quantized):
        assert (quantized[-1] + 1) % flush == 0
        assert length - quantized[-1] - 1 < recent + flush
        exact = made.made_layers("fitted", 1, sink=0, recent=0)[0]
        stored, _ = exact.quantize_all(states[0, 0].numpy(), states[1, 0].numpy())
        assert np.abs(read[0].numpy()[:, quantized] - stored[:, quantized]).max() <= 1e-5


@pytest.mark.parametrize("kind", ["fitted", "kivi"])
@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
@settings(max_examples=6)
@given(
    picks=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=3), repeats=st.integers(1, 2)
)
def test_law_4_rows_are_a_list(family, kind, picks, repeats):
    import torch  # noqa: PLC0415

    model = model_of(family)
    ids = made.tokens(3, 45)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    cache = cache_of(model, kind)
    made.logits_of(model, ids, cache, attention_mask=mask)
    rows = [0, 1, 2]
    for pick in picks:
        chosen = [index % len(rows) for index in pick]
        if len(chosen) == len(rows):
            cache.reorder_cache(torch.tensor(chosen))
        else:
            cache.batch_select_indices(torch.tensor(chosen))
        rows = [rows[index] for index in chosen]
    cache.batch_repeat_interleave(repeats)
    rows = [row for row in rows for _ in range(repeats)]
    for layer in cache.layers:
        layer.offload()
        layer.prefetch()
    following = made.tokens(3, 20, seed=1)
    joined = torch.cat([mask, torch.ones_like(following)], dim=1)
    places = joined.cumsum(1)[:, 45:] - 1
    argument = {made_argument(): cache}
    with torch.no_grad():
        found = model(
            input_ids=following[rows], attention_mask=joined[rows], position_ids=places[rows], **argument
        ).logits
    for place, row in enumerate(rows):
        own = cache_of(model, kind)
        alone = torch.cat([ids[row : row + 1, mask[row].bool()], following[row : row + 1]], dim=1)
        expected = made.logits_of(model, alone, own, [int(mask[row].sum())])[:, -20:]
        assert made.apart(found[place : place + 1], expected) <= ROUNDING


def made_argument():
    from producer.cache.binding import CACHE_ARGUMENT  # noqa: PLC0415

    return CACHE_ARGUMENT


def test_law_4_reset_forgets_all():
    model = model_of("Qwen3")
    cache = cache_of(model)
    first = made.logits_of(model, made.tokens(2, 40), cache)
    cache.reset()
    assert cache.nbytes == 0
    assert cache.get_seq_length() == 0
    other = made.logits_of(model, made.tokens(1, 40, seed=3), cache)
    assert other.shape[0] == 1
    cache.reset()
    assert made.apart(made.logits_of(model, made.tokens(2, 40), cache), first) == 0


@pytest.mark.parametrize("kind", ["fitted", "kivi"])
@pytest.mark.parametrize("family", ["Llama", "Gemma3", "Phi3"])
@settings(max_examples=8)
@given(rounds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_law_5_drafts_leave_no_trace(family, kind, rounds):
    model = model_of(family)
    ids = made.tokens(1, 102)
    wrong = made.tokens(1, 102, seed=9)
    cache, plain = cache_of(model, kind), cache_of(model, kind)
    made.logits_of(model, ids[:, :30], cache)
    cache.activate_past_recording()
    place = 30
    for drafted, accepted in rounds:
        accepted = min(accepted, drafted)  # noqa: PLW2901
        draft = ids[:, place : place + drafted].clone()
        draft[:, accepted:] = wrong[:, place + accepted : place + drafted]
        made.logits_of(model, draft, cache)
        cache.crop(-(drafted - accepted))
        place += accepted
    assert cache.get_seq_length() == place
    found = made.logits_of(model, ids[:, place:], cache)
    expected = made.logits_of(model, ids, plain)[:, place:]
    assert made.apart(found, expected) <= ROUNDING
    cache.crop(0)
    assert made.equal(made.body(cache), made.body(plain))
    assert [layer.nbytes for layer in cache.packed_layers] == [layer.nbytes for layer in plain.packed_layers]


@pytest.mark.parametrize("kind", ["fitted", "kivi"])
@pytest.mark.parametrize("family", made.FAMILIES)
@settings(max_examples=3)
@given(pads=st.tuples(st.integers(0, 20), st.integers(0, 20)), sizes=chunks(60))
def test_law_6_a_padded_row_is_the_row_alone(family, kind, pads, sizes):
    import torch  # noqa: PLC0415

    model = model_of(family)
    ids, mask = made.tokens(2, 60), torch.ones((2, 60), dtype=torch.long)
    for row, count in enumerate(pads):
        mask[row, :count] = 0
    cache = cache_of(model, kind)
    cache.set_padding(mask)
    found = made.logits_of(model, ids, cache, sizes, attention_mask=mask)
    for row, count in enumerate(pads):
        alone = made.logits_of(model, ids[row : row + 1, count:], cache_of(model, kind))
        assert made.apart(found[row : row + 1, count:], alone) <= ROUNDING


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metadata", [None, "float16"])
@settings(max_examples=6)
@given(length=st.integers(1, 120), rows=st.integers(1, 3))
def test_law_9_bytes_are_those_of_the_tensors_and_of_the_formula(kind, metadata, length, rows):
    import torch  # noqa: PLC0415

    from producer.quantize.storage import bits_per_element_of  # noqa: PLC0415
    from producer.quantize.windows import TokenCounts  # noqa: PLC0415

    if metadata and kind not in {"fitted", "int2-clip"}:
        return
    model = model_of("Llama")
    cache = cache_of(model, kind, "dequantize", metadata=metadata)
    states = torch.randn((2, rows, 2, length, 16), dtype=torch.float16)
    for layer in cache.packed_layers:
        layer.update(*states)
    expected = Fraction(0)
    for layer in cache.packed_layers:
        sink, recent, flush = layer.windows.sink, layer.windows.recent, layer.windows.flush
        end = max(sink, (length - recent) // flush * flush)
        counts = TokenCounts(min(length, sink), end - sink, length - min(length, sink) - (end - sink))
        for side in ("key", "value"):
            encoder = layer.encoders[side]
            bits = bits_per_element_of(encoder.dialect.numerics, encoder.group_size, counts)
            expected += bits * rows * length * 2 * 16 / 8
    assert cache.nbytes == expected
