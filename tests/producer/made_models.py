"""Tiny random models of many families, their folders and GGUF files, with a tokenizer of bytes."""

import json

import numpy as np

BASE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD = {"head_dim": 16}
_MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "head_dim": 8,
}
_GEMMA3N = {
    **HEAD,
    "num_hidden_layers": 4,
    "vocab_size_per_layer_input": 300,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": None,
}
_SOFT = {**HEAD, "query_pre_attn_scalar": 16}

#: By name: class of the model, class of its configuration where that is called otherwise, and options.
MODELS = {
    "Llama": ("Llama", None, HEAD),
    "Mistral": ("Mistral", None, {**HEAD, "sliding_window": 4096}),
    "Mixtral": ("Mixtral", None, {**HEAD, **_MOE}),
    "Qwen2": ("Qwen2", None, {}),
    "Qwen3": ("Qwen3", None, HEAD),
    "Qwen3Moe": ("Qwen3Moe", None, {**HEAD, **_MOE}),
    "Phi": ("Phi", None, {}),
    "Phi3": ("Phi3", None, {}),
    "Gemma": ("Gemma", None, HEAD),
    "Gemma2": ("Gemma2", None, _SOFT),
    "Gemma2 without a cap on scores": (
        "Gemma2",
        None,
        {**_SOFT, "attn_logit_softcapping": None, "final_logit_softcapping": 0.5},
    ),
    "Gemma3": ("Gemma3", "Gemma3TextConfig", _SOFT),
    "Gemma3n": ("Gemma3n", "Gemma3nTextConfig", {**_GEMMA3N, "num_kv_shared_layers": 2}),
    "Gemma3n without sharing": ("Gemma3n", "Gemma3nTextConfig", {**_GEMMA3N, "num_kv_shared_layers": 0}),
    "Gemma4": (
        "Gemma4",
        "Gemma4TextConfig",
        {
            **HEAD,
            "global_head_dim": 32,
            "vocab_size_per_layer_input": 300,
            "hidden_size_per_layer_input": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_kv_shared_layers": 0,
        },
    ),
    "DeepseekV2": ("DeepseekV2", None, {**_MLA, "topk_method": "greedy"}),
    "DeepseekV3": ("DeepseekV3", None, _MLA),
    "MiniCPM3": ("MiniCPM3", None, {}),
    "GptOss": ("GptOss", None, {**HEAD, **_MOE, "layer_types": ["sliding_attention", "full_attention"]}),
    "Granite": ("Granite", None, {"logits_scaling": 8.0, "attention_multiplier": 0.2}),
    "Cohere": ("Cohere", None, {"logit_scale": 0.25}),
    "Cohere2": ("Cohere2", None, {**HEAD, "sliding_window": 4096}),
    "Falcon": ("Falcon", None, {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "GPTNeoX": ("GPTNeoX", None, {}),
    "GPTJ": ("GPTJ", None, {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 16}),
    "GPT2": ("GPT2LMHead", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
    "OPT": ("OPT", None, {"ffn_dim": 64, "word_embed_proj_dim": 64}),
    "Bloom": ("Bloom", None, {"n_layer": 2, "n_head": 4}),
    "Mpt": ("Mpt", None, {"d_model": 64, "n_heads": 4, "n_layers": 2}),
    "Olmo2": ("Olmo2", None, {}),
    "Llama4": (
        "Llama4",
        "Llama4TextConfig",
        {**HEAD, **_MOE, "intermediate_size_mlp": 96, "attention_chunk_size": 32},
    ),
    "Qwen3Next": (
        "Qwen3Next",
        None,
        {
            **HEAD,
            **_MOE,
            "layer_types": ["linear_attention", "full_attention"],
            "shared_expert_intermediate_size": 32,
        },
    ),
    "BitNet": ("BitNet", None, {}),
    "DiffLlama": ("DiffLlama", None, {}),
    "Doge": ("Doge", None, {}),
    "Mamba": ("Mamba", None, {}),
}


def build(transformers, name, **changes):
    """A model of a family with random weights: 2 layers, 4 query heads, 2 KV heads of 16 channels in most."""
    import torch  # noqa: PLC0415

    model, config, options = MODELS[name]
    kind = getattr(transformers, config or f"{model}Config")
    torch.manual_seed(1)
    causal = "Model" if model.endswith("LMHead") else "ForCausalLM"
    made = getattr(transformers, f"{model}{causal}")(kind(**{**BASE, **options, **changes})).float().eval()
    for key, parameter in made.named_parameters():
        if parameter.ndim == 2 and "proj" in key:
            parameter.data *= 4  # attention that is not flat
    return made


class Bytes:
    """A tokenizer of bytes, with a token before every text where `bos` is one."""

    def __init__(self, bos=None):
        self.prefix = [] if bos is None else [bos]

    def __call__(self, text, *, add_special_tokens=True, **_options):
        return {"input_ids": (self.prefix if add_special_tokens else []) + list(text.encode())}

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


def write_tokenizer(transformers, folder, *, bos):
    """A tokenizer of bytes in a folder; ids 3 … 258 are the bytes, 1 is BOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: PLC0415

    inner = Tokenizer(models.BPE(vocab=vocabulary(), merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)], pair="<s> $A $B"
        )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **dict(zip(("bos_token", "eos_token", "pad_token"), ("<s>", "</s>", "<pad>"), strict=True)),
    ).save_pretrained(folder)


def vocabulary():
    """Tokens by id: three special ones, then the 256 bytes in the spelling of byte-level BPE."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: PLC0415

    letters = bytes_to_unicode()
    return {
        token: index for index, token in enumerate(["<pad>", "<s>", "</s>", *map(letters.get, range(256))])
    }


def write_folder(transformers, folder, model, *, bos=True, **options):
    """A model with its tokenizer as a folder of transformers."""
    model.save_pretrained(folder, **options)
    write_tokenizer(transformers, folder, bos=bos)
    return folder


def change_weights(folder, change):
    """Change the tensors of ``model.safetensors``."""
    from safetensors.numpy import load_file, save_file  # noqa: PLC0415

    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


_LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path, model, metadata=None, tensors=None, *, without=(), bos=True):
    """A Llama as a GGUF file, as llama.cpp's converter writes it."""
    import gguf  # noqa: PLC0415

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    own = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "vocab_size": config.vocab_size,
        **(metadata or {}),
    }
    for key, value in own.items():
        if value is None:
            continue
        add = {
            str: writer.add_string,
            float: writer.add_float32,
            int: writer.add_uint32,
            bool: writer.add_bool,
        }
        add[type(value)](f"llama.{key}", value)
    words = [*vocabulary(), "ab", *(f"<unused{index}>" for index in range(config.vocab_size - 260))]
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "default")
    writer.add_array("tokenizer.ggml.tokens", words)
    writer.add_array("tokenizer.ggml.token_type", [3, 3, 3] + [1] * (len(words) - 3))
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_bool("tokenizer.ggml.add_bos_token", bos)
    for name, value in (("bos", 1), ("eos", 2), ("padding", 0)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value)
    for name, values in model.state_dict().items():
        array = values.float().numpy()
        stem = name.removesuffix(".weight")
        prefix = ""
        if stem.startswith("model.layers."):
            layer, _, stem = stem.removeprefix("model.layers.").partition(".")
            prefix = f"blk.{layer}."
        heads = {
            "self_attn.q_proj": config.num_attention_heads,
            "self_attn.k_proj": config.num_key_value_heads,
        }
        if stem in heads:
            # llama.cpp interleaves the two halves of every head.
            array = array.reshape(heads[stem], 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        own_name = f"{prefix}{_LLAMA[stem]}.weight"
        if own_name not in without and not (stem == "lm_head" and config.tie_word_embeddings):
            writer.add_tensor(own_name, np.ascontiguousarray(array))
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
