"""Tiny models of many architectures: each is captured as what it is, or refused with the layer and the reason."""

import numpy as np
import pytest

from producer.errors import SpecError
from producer.trace.capture import capture_trace
from tests.producer import made_models as models
from tests.producer.trace.test_model import loaded_of, silent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the libraries, on their import
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

REFUSED = {
    "Gemma2": r"layer 0 \(Gemma2Attention\) asks its attention for a soft cap on its scores \(50\)",
    "Gemma3n": r"layer 2 \(Gemma3nTextAttention\) reads the keys and values of an earlier layer",
    "Gemma3n without sharing": r"layer 0 \(Gemma3nTextDecoderLayer\) gives hidden states of shape \(2, 1, 80, 64\)",
    "Gemma4": r"layer 1 \(Gemma4TextAttention\) has 4 query heads and 2 KV heads of 32 channels, layer 0 has",
    "DeepseekV2": r"layer 0 \(DeepseekV2Attention\) has multi-head latent attention",
    "DeepseekV3": r"layer 0 \(DeepseekV3Attention\) has multi-head latent attention",
    "MiniCPM3": r"layer 0 \(MiniCPM3Attention\) has multi-head latent attention",
    "GptOss": r"layer 0 \(GptOssAttention\) asks its attention for learned sinks",
    "Falcon": r"layer 0 \(FalconAttention\) computes its attention by itself",
    "Bloom": r"layer 0 \(BloomAttention\) computes its attention by itself",
    "Mpt": r"layer 0 \(MptAttention\) computes its attention by itself",
    "GPT2": r"layer 0 \(GPT2Attention\) of GPT2LMHeadModel has no linear output projection",
    "Llama4": r"layer 0 \(Llama4TextAttention\) .* as a window of 32 tokens does; take sequences of at most 32 tokens",
    "Qwen3Next": r"layer 0 \(Qwen3NextDecoderLayer\) of Qwen3NextForCausalLM has no attention module",
    "Mamba": r"layer 0 \(MambaBlock\) of MambaForCausalLM has no attention module",
    "BitNet": r"layer 0 \(BitNetAttention\) does something else between its attention and W_O",
    "DiffLlama": r"layer 0 \(DiffLlamaAttention\) attends more than once",
    "Doge": r"layer 0 \(DogeAttention\) adds a bias of its own to its scores",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n".join(f"line {index} of a text with many, {index * index}" for index in range(40)))
    return path


def reference(layer, q, k, v):
    """Causal attention row by row over the layer's own mask, float64, before W_O: (tokens, heads * head_dim)."""
    heads, tokens, _ = q.shape
    out = np.zeros((tokens, heads, v.shape[2]))
    for head in range(heads):
        kv = head // (heads // k.shape[0])
        for t in range(tokens):
            scores = k[kv, : t + 1].astype(float) @ q[head, t].astype(float) * layer.scaling
            weights = np.exp(scores - scores.max())
            out[t, head] = weights @ v[kv, : t + 1].astype(float) / weights.sum()
    return out.reshape(tokens, -1)


@pytest.mark.parametrize("name", [name for name in models.MODELS if name not in REFUSED])
def test_what_is_captured_is_the_models_own(transformers, name, text, tmp_path):
    """Keys and values as the model caches them, and its layers' outputs of the attention over what was captured."""
    import torch  # noqa: PLC0415

    from producer.trace.layers import attention_modules, output_projection  # noqa: PLC0415
    from producer.trace.model import logits_of, run_hidden  # noqa: PLC0415

    model = models.build(transformers, name)
    loaded = loaded_of(model)
    trace = capture_trace(loaded, [text], 90, 1, tmp_path / "trace", silent)
    assert trace.verification["perplexity_difference"] <= 1e-5
    assert trace.verification["attention_output_difference"] <= 1e-5
    outputs = {}
    handles = [
        output_projection(module).register_forward_hook(
            lambda m, _i, out, index=index: outputs.__setitem__(
                index, out[0] - (0 if m.bias is None else m.bias)
            )
        )
        for index, module in enumerate(attention_modules(model))
    ]
    ids = torch.from_numpy(trace.token_ids(0).astype("int64"))[None]
    with torch.no_grad():
        own = model(input_ids=ids, use_cache=True)
    for handle in handles:
        handle.remove()
    for index, cached in enumerate(own.past_key_values.layers):
        layer = trace.layer(index, 0)
        assert np.abs(layer.k - cached.keys[0].numpy()).max() <= 1e-5
        assert np.abs(layer.v - cached.values[0].numpy()).max() <= 1e-5
        w_o = layer.w_o.reshape(-1, layer.w_o.shape[2]).astype(float)
        ours = reference(layer, layer.q, layer.k, layer.v) @ w_o
        theirs = outputs[index].numpy()
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()
    # Whatever the model does behind its head, such as scaling logits or capping them, is done.
    hidden = run_hidden(loaded, trace.token_ids(0), lambda _index, _states: None)
    assert np.abs(logits_of(loaded, hidden) - own.logits[0].numpy()).max() <= 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused_by_layer_before_any_file(transformers, name, text, tmp_path):
    model = models.build(transformers, name)
    with pytest.raises(SpecError, match=REFUSED[name]):
        capture_trace(loaded_of(model), [text], 90, 1, tmp_path / "trace", silent)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Mistral", {"sliding_window": 85}),
        ("Phi3", {"sliding_window": 85}),
        ("Qwen2", {"sliding_window": 85, "use_sliding_window": True, "max_window_layers": 0}),
        ("Gemma3", {"sliding_window": 85}),
        ("Cohere2", {"sliding_window": 85}),
    ],
)
def test_a_window_shorter_than_the_sequence_is_refused_with_the_tokens_that_do(
    transformers, name, changes, text, tmp_path
):
    """The probe reads fewer tokens than the window has: the mask is evaluated for the sequence."""
    loaded = loaded_of(models.build(transformers, name, **changes))
    with pytest.raises(SpecError, match=r"layer \d .* take sequences of at most 85 tokens"):
        capture_trace(loaded, [text], 90, 1, tmp_path / "trace", silent)
    assert not (tmp_path / "trace").exists()
    trace = capture_trace(loaded, [text], 85, 1, tmp_path / "trace", silent)
    assert trace.verification["attention_output_difference"] <= 1e-5


def test_layers_with_other_scalings_keep_them(transformers, text, tmp_path):
    from producer.trace.layers import attention_modules  # noqa: PLC0415

    model = models.build(transformers, "Llama")
    attention_modules(model)[1].scaling = 0.4
    trace = capture_trace(loaded_of(model), [text], 90, 1, tmp_path / "trace", silent)
    assert trace.model.layer_scaling == (0.25, 0.4)
    assert [trace.layer(index, 0).scaling for index in range(2)] == [0.25, 0.4]
    assert trace.verification["attention_output_difference"] <= 1e-5


def test_a_capture_in_bfloat16_is_held_to_its_rounding(transformers, text, tmp_path):
    import torch  # noqa: PLC0415

    loaded = loaded_of(models.build(transformers, "Qwen3").to(torch.bfloat16), dtype="bfloat16")
    trace = capture_trace(loaded, [text], 90, 1, tmp_path / "trace", silent)
    assert 1e-5 < trace.verification["attention_output_difference"] <= 2e-2
    assert trace.layer(0, 0).k.dtype == np.float32
