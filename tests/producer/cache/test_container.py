"""The packed cache in use: generation, save and load, what is refused."""

import errno
import json

import pytest

from producer.errors import ExtraMissingError, FileFormatError, NonFiniteError, SpecError
from tests.producer.cache import made_models as made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.matrix,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

_MODELS = {}


@pytest.fixture(autouse=True)
def _libraries(transformers):
    return transformers


def model_of(family="Llama", **changes):
    key = (family, *sorted(changes.items()))
    if key not in _MODELS:
        _MODELS[key] = made.tiny_model(family, **changes)
    return _MODELS[key]


def cache_of(model, kind="fitted", attention="packed", **options):
    from producer.cache import PackedCache  # noqa: PLC0415

    layers = made.made_layers(kind, model.config.num_hidden_layers)
    return PackedCache.for_model(model, layers, attention=attention, **{"flush": made.FLUSH} | options)


def longer(model, ids, cache, **options):
    return model.generate(ids, max_new_tokens=30, do_sample=False, past_key_values=cache, **options)


def greedy(model, ids, make, steps=30):
    """Greedy tokens by one pass over all tokens so far at every step: no cache is carried along."""
    import torch  # noqa: PLC0415

    for _ in range(steps):
        ids = torch.cat([ids, made.logits_of(model, ids, make())[:, -1:].argmax(-1)], dim=1)
    return ids


@pytest.mark.parametrize("family", made.FAMILIES)
def test_generate_decodes_what_one_pass_says(family):
    import torch  # noqa: PLC0415

    model = model_of(family)
    ids = made.tokens(1, 30)
    found = longer(model, ids, cache_of(model))
    assert torch.equal(found, greedy(model, ids, lambda: cache_of(model)))
    model.set_attn_implementation("sdpa")
    assert not torch.equal(found, model.generate(ids, max_new_tokens=30, do_sample=False))


def test_a_padded_batch_generates_what_its_rows_do_alone():
    import torch  # noqa: PLC0415

    model = model_of("Qwen3")
    ids, mask = made.tokens(2, 30), torch.ones((2, 30), dtype=torch.long)
    mask[0, :7] = 0
    for attention in ("packed", "dequantize"):
        found = longer(model, ids, cache_of(model, attention=attention), attention_mask=mask)
        alone = longer(model, ids[:1, 7:], cache_of(model, attention=attention))
        assert torch.equal(found[:1, 7:], alone)
        assert torch.equal(found[1:], longer(model, ids[1:], cache_of(model, attention=attention)))


def test_beams_are_those_of_rows_that_were_never_moved(monkeypatch):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from producer.cache.layer import PackedLayer  # noqa: PLC0415

    model = model_of()
    ids = made.tokens(2, 30)
    found = longer(model, ids, cache_of(model), num_beams=3)
    # Against beams whose cache holds everything: windows longer than the text.
    exact = made.made_layers("fitted", sink=4, recent=100)
    from producer.cache import PackedCache  # noqa: PLC0415

    wide = PackedCache.for_model(model, exact)
    plain = transformers.DynamicCache(config=model.config)
    assert torch.equal(longer(model, ids, wide, num_beams=3), longer(model, ids, plain, num_beams=3))
    monkeypatch.setattr(PackedLayer, "reorder_cache", lambda *_: None)
    assert not torch.equal(found, longer(model, ids, cache_of(model), num_beams=3))


def test_prompt_lookup_and_an_assistant_change_nothing():
    import torch  # noqa: PLC0415

    model = model_of()
    ids = made.tokens(1, 12).repeat(1, 3)
    expected = longer(model, ids, cache_of(model))
    assert torch.equal(longer(model, ids, cache_of(model), prompt_lookup_num_tokens=5), expected)
    assistant = made.tiny_model("Llama", layers=1)
    assert torch.equal(longer(model, ids, cache_of(model), assistant_model=assistant), expected)


def test_use_cache_reaches_callers_that_pass_none():
    import torch  # noqa: PLC0415

    from producer.cache import use_cache  # noqa: PLC0415

    model = model_of()
    ids, made_caches = made.tokens(1, 30), []
    expected = longer(model, ids, cache_of(model))
    with use_cache(model, lambda: made_caches.append(cache_of(model)) or made_caches[-1]):
        found = model.generate(ids, max_new_tokens=30, do_sample=False)
        assert torch.equal(found, expected)
        longer(model, ids, cache_of(model))
    assert len(made_caches) == 1
    assert made_caches[0].get_seq_length() == 59
    assert "_prepare_cache_for_generation" not in vars(model)


@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_law_7_saved_and_loaded_is_equal(family, tmp_path):
    import torch  # noqa: PLC0415

    model = model_of(family)
    ids, mask = made.tokens(2, 50), torch.ones((2, 50), dtype=torch.long)
    mask[0, :9] = 0
    cache = cache_of(model)
    made.logits_of(model, ids[:, :40], cache, attention_mask=mask[:, :40])
    cache.save(tmp_path / "prompt.safetensors")
    again = cache_of(model)
    again.load(tmp_path / "prompt.safetensors")
    assert made.equal(made.body(again), made.body(cache))
    assert [layer.nbytes for layer in again.packed_layers] == [layer.nbytes for layer in cache.packed_layers]
    places = mask.cumsum(1)[:, 40:] - 1
    found = []
    for held in (cache, again):
        with torch.no_grad():
            options = {"attention_mask": mask, "position_ids": places, "past_key_values": held}
            found.append(model(input_ids=ids[:, 40:], **options).logits)
    assert torch.equal(*found)
    with pytest.raises(SpecError, match="the cache holds tokens"):
        again.load(tmp_path / "prompt.safetensors")


def test_law_7_another_identity_is_refused(tmp_path, monkeypatch):
    model = model_of()
    cache = cache_of(model)
    made.logits_of(model, made.tokens(1, 40), cache)
    path = tmp_path / "prompt.safetensors"
    cache.save(path)
    from producer.cache import PackedCache, saved  # noqa: PLC0415

    other = made.tiny_model("Llama")
    other.model.layers[0].mlp.up_proj.weight.data[0] += 1
    turned = made.made_layers()
    turned[2].rotations.key.matrices.setflags(write=True)
    turned[2].rotations.key.matrices[0, 0, 0] += 1e-4
    for changed in (
        cache_of(model, "int2-clip"),
        cache_of(model, flush=8),
        cache_of(model, metadata="float16"),
        cache_of(model, window_dtype="float16"),
        cache_of(other),
        PackedCache.for_model(model, turned, flush=made.FLUSH),
        PackedCache.for_model(model, made.made_layers(recent=12), flush=made.FLUSH),
    ):
        with pytest.raises(FileFormatError, match="saved under the identity"):
            changed.load(path)
    monkeypatch.setattr(saved, "FORMAT", "kvint2eval-cache-v2")
    with pytest.raises(FileFormatError, match="format 'kvint2eval-cache-v1' is not allowed"):
        cache_of(model).load(path)


def test_law_7_a_damaged_file_is_refused(tmp_path):
    import safetensors.torch  # noqa: PLC0415

    model = model_of()
    cache = cache_of(model)
    made.logits_of(model, made.tokens(1, 40), cache)
    path = tmp_path / "prompt.safetensors"
    cache.save(path)
    data = path.read_bytes()
    for count in (0, 5, 100, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:count])
        with pytest.raises(FileFormatError, match="no whole safetensors file"):
            cache_of(model).load(tmp_path / "cut")
    for place in range(len(data) - 1, len(data) // 2, -997):
        (tmp_path / "edited").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(FileFormatError, match=r"edited or damaged|no whole"):
            cache_of(model).load(tmp_path / "edited")
    with safetensors.safe_open(path, "pt") as opened:
        header = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    state = json.loads(header["state"])
    state[0]["groups"][0][2] += 1
    safetensors.torch.save_file(tensors, path, header | {"state": json.dumps(state)})
    with pytest.raises(FileFormatError, match="edited or damaged"):
        cache_of(model).load(path)
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(FileFormatError, match="format None is not allowed"):
        cache_of(model).load(path)
    with pytest.raises(FileNotFoundError):
        cache_of(model).load(tmp_path / "nothing")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    import safetensors.torch  # noqa: PLC0415

    model = model_of()
    cache = cache_of(model)
    made.logits_of(model, made.tokens(1, 40), cache)

    def full(_tensors, path, _header):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match=r"cannot be saved to .*No space left.*nothing is written: free space"):
        cache.save(tmp_path / "prompt.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(SpecError, match="there is no folder"):
        cache.save(tmp_path / "missing" / "prompt.safetensors")


def test_another_model_may_not_use_the_cache():
    from producer.cache import PackedCache  # noqa: PLC0415

    model, other = model_of(), made.tiny_model("Llama")
    cache = cache_of(model)
    with pytest.raises(SpecError, match="something else writes to it: a second model"):
        made.logits_of(other, made.tokens(1, 5), cache)
    cache_of(other)
    with pytest.raises(SpecError, match="for one LlamaForCausalLM, not for another model"):
        made.logits_of(other, made.tokens(1, 5), cache)
    with pytest.raises(SpecError, match="fitted to 2 layers is not allowed: the model has 3"):
        PackedCache.for_model(model, made.made_layers(layers=2))
    with pytest.raises(SpecError, match="the model has 2 KV heads of 16 channels"):
        PackedCache.for_model(model, made.made_layers(kv_heads=4))
    with pytest.raises(SpecError, match="the model has 2 KV heads of 16 channels"):
        PackedCache.for_model(model, made.made_layers(head_dim=32))
    # Unbound, by its shapes alone.
    free = PackedCache(model.config, made.made_layers())
    with pytest.raises(SpecError, match=r"states of shape .* are not allowed: \(batch, 2, tokens, 16\)"):
        made.logits_of(made.tiny_model("Llama", kv_heads=4), made.tokens(1, 5), free)


def test_left_padding_that_nobody_told_is_refused():
    import torch  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    model = model_of("Qwen2")
    model.set_attn_implementation("kvint2eval_packed")
    ids, mask = made.tokens(2, 12), torch.ones((2, 12), dtype=torch.long)
    mask[1, :3] = 0
    plain = made.tiny_model("Qwen2")  # its forward tells nothing
    plain.set_attn_implementation("kvint2eval_packed")
    cache = PackedCache(plain.config, made.made_layers())
    with pytest.raises(SpecError, match=r"cache\.set_padding\(attention_mask\)"):
        made.logits_of(plain, ids, cache, attention_mask=mask)
    told = PackedCache(plain.config, made.made_layers())
    told.set_padding(mask)
    made.logits_of(plain, ids, told, attention_mask=mask)
    for wrong, message in (
        (torch.flip(mask, [1]), "on the left of a row alone"),
        (torch.zeros_like(mask), "a row is padding alone"),
    ):
        with pytest.raises(SpecError, match=message):
            PackedCache(plain.config, made.made_layers()).set_padding(wrong)
    with pytest.raises(SpecError, match="not allowed to change"):
        told.set_padding(torch.ones_like(mask))


def test_what_cannot_be_packed_is_refused_with_a_sentence():
    import torch  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    model = model_of()
    cases = [
        ({"scheme": "oscar"}, "key_rotation, value_rotation come from a calibration"),
        ({"scheme": "quarot-feedback"}, "center_keys, clips, rounding come from a calibration"),
        ({"scheme": "nothing"}, "scheme 'nothing' is not allowed"),
        ({"scheme": "kivi"}, "groups of 32 and units of 16 codes"),
        ({"scheme": "int2", "flush": 0}, "flush 0 is not allowed"),
        ({"scheme": "int2", "metadata": "int8"}, "metadata 'int8' is not allowed"),
        ({"scheme": "int2", "window_dtype": "int8"}, "window_dtype 'int8' is not allowed"),
        ({"scheme": "quarot-native", "metadata": "float16"}, "it stores float32"),
        ({"scheme": "int2", "attention": "fast"}, "attention 'fast' is not allowed"),
    ]
    for options, message in cases:
        with pytest.raises(SpecError, match=message):
            PackedCache.for_model(model, **options)
    kivi = made.made_layers("kivi", group_size=16, sink=16)
    with pytest.raises(SpecError, match="flush 8 and sink 16 are not allowed: multiples of 16"):
        PackedCache.for_model(model, kivi, flush=8)
    with pytest.raises(SpecError, match="no layer with full attention"):
        PackedCache.for_model(made.tiny_model("Mistral", sliding_window=32), "int2")
    with pytest.raises(SpecError, match="recent 0 is not allowed"):
        PackedCache.for_model(model, made.made_layers(recent=0))
    cache = PackedCache(model.config, made.made_layers(), window_dtype="float16")
    with pytest.raises(NonFiniteError, match=r"does not fit a window in torch\.float16"):
        cache.update(torch.full((1, 2, 3, 16), 1e6), torch.zeros((1, 2, 3, 16)), 0)
    cache = PackedCache(model.config, made.made_layers())
    with pytest.raises(SpecError, match=r"states of torch\.int32 are not allowed"):
        cache.update(*torch.zeros((2, 1, 2, 3, 16), dtype=torch.int32), 0)
    with pytest.raises(SpecError, match="layer 3 is not allowed"):
        cache.update(*torch.zeros((2, 1, 2, 3, 16)), 3)
    with pytest.raises(SpecError, match="keys and values of a packed layer cannot be set"):
        cache.packed_layers[0].keys = torch.zeros(1)


def test_crop_without_a_recorded_past_is_refused_where_it_cannot_be_exact():
    model = model_of()
    cache = cache_of(model)
    made.logits_of(model, made.tokens(1, 41), cache)
    with pytest.raises(
        SpecError, match=r"tokens 28 to 31 would be exact again .* activate_past_recording\(\)"
    ):
        cache.crop(-3)
    cache.crop(-1)
    assert cache.get_seq_length() == 40
    with pytest.raises(SpecError, match="crop by 2 is not allowed: minus the number"):
        cache.crop(2)


def test_keys_and_values_are_what_attention_reads():
    import torch  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    model = model_of()
    model.set_attn_implementation("sdpa")
    cache = PackedCache(model.config, made.made_layers(), flush=made.FLUSH)
    states = torch.randn((2, 2, 2, 50, 16))
    for place in range(50):
        keys, values = cache.update(*states[:, :, :, place : place + 1], 0)
    assert torch.equal(cache.layers[0].keys, keys)
    assert torch.equal(cache.layers[0].values, values)
    assert float((keys - states[0]).abs().max()) > 0.1  # it is quantized


def test_masks_that_are_not_causal_are_refused():
    import torch  # noqa: PLC0415

    model = model_of("Qwen3")
    cache = cache_of(model)
    mask = torch.ones((1, 1, 20, 20), dtype=torch.bool)
    with pytest.raises(SpecError, match="this attention mask is not allowed with a packed cache"):
        model(input_ids=made.tokens(1, 20), attention_mask=mask, past_key_values=cache)


@pytest.mark.parametrize("family", ["Gemma2", "GptOss"])
def test_soft_caps_and_learned_sinks_are_computed(family):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    types = ["sliding_attention", "full_attention", "sliding_attention"]
    changes = {"layer_types": types, "sliding_window": 24, "dtype": "float32"}
    if family == "GptOss":
        changes |= {"num_local_experts": 2, "num_experts_per_tok": 1}
    model = made.tiny_model(family, **changes)
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter, mean=2.0)
    ids = made.tokens(2, 70)
    model.set_attn_implementation("eager")
    expected = made.logits_of(model, ids, transformers.DynamicCache(config=model.config), [40, 1])
    wide = PackedCache.for_model(model, made.made_layers(recent=100))
    assert made.apart(made.logits_of(model, ids, wide, [40, 1]), expected) <= 1e-4
    # Where tokens are quantized, as its own attention reads them dequantized, token by token.
    model.set_attn_implementation("eager")
    read = PackedCache.for_model(model, made.made_layers(), attention="dequantize", flush=made.FLUSH)
    by_token = made.logits_of(model, ids, read, [1] * 69)
    packed = PackedCache.for_model(model, made.made_layers(), flush=made.FLUSH)
    found = made.logits_of(model, ids, packed, [1] * 69)
    near = (found - by_token).abs().amax(-1) / by_token.abs().max()
    assert float(near.median()) <= 1e-4  # a flipped code moves few tokens
    assert float((by_token - expected).abs().max() / expected.abs().max()) > 1e-2


def test_versions_outside_the_range_are_refused():
    from producer.cache.libraries import require_version  # noqa: PLC0415

    for version in ("5.16.0", "5.20.2", "5.24.9"):
        require_version(version)
    for version in ("4.57.1", "5.15.9", "5.25.0.dev0", "6.0.0", "unknown"):
        with pytest.raises(ExtraMissingError, match=r"knows the cache interface of 5\.16 to 5\.24"):
            require_version(version)
