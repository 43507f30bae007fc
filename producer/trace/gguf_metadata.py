"""Metadata of GGUF files, and whether the configuration that was loaded from one says the same.

transformers reads some of the keys that llama.cpp writes and leaves others out, silently. Here every key below the name
of the architecture is compared with the loaded configuration; what differs is set where the configuration has a
place for it, and what cannot be set, or is not known, is refused by its name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from producer.errors import ExtraMissingError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["apply_metadata", "read_metadata", "require_applied", "unknown_tensors"]

_ROUNDING = 1e-6

#: By the key of llama.cpp: the names that configurations of transformers have for it.
_NAMES: dict[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "block_count": ("num_hidden_layers", "n_layer"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "vocab_size": ("vocab_size",),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": (
        "rms_norm_eps",
        "norm_eps",
        "layer_norm_epsilon",
        "layer_norm_eps",
        "norm_epsilon",
    ),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.sliding_window": ("sliding_window",),
    "attention.scale": ("attention_multiplier",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "logit_scale": ("logits_scaling", "logit_scale"),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "expert_count": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "shortconv.l_cache": ("conv_L_cache",),
}
#: Keys that change no number, or say what every model here does.
_HARMLESS: dict[str, Callable[[Any], bool]] = {
    "rope.scaling.finetuned": lambda _: True,
    "attention.causal": lambda value: value is True,
    "expert_group_count": lambda value: value in (0, 1),
    "expert_group_used_count": lambda value: value in (0, 1),
    "nextn_predict_layers": lambda value: value == 0,
    "leading_dense_block_count": lambda value: value == 0,
}
_ROPE = ("rope.freq_base", "rope.dimension_count", "rope.scale_linear")
_YARN = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
# Families for which llama.cpp has a window of its own when the file names none.
_OWN_WINDOW = ("gemma2", "gemma3", "gemma3n", "gemma4", "gpt-oss", "cohere2", "phi3", "olmo2")
#: Pre-tokenizers of byte-level vocabularies that GPT-2's splitting is right for.
_AS_GPT2 = ("default", "gpt-2", "gpt2", "phi-2", "jais", "mpt", "olmo", "trillion", "granite-docling")


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file by key; of arrays of text, their length.

    Raises
    ------
    ExtraMissingError
        If the package gguf is not installed.
    ValueError
        If the file is no GGUF file.
    """
    try:
        import gguf  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissingError("GGUF files need gguf: pip install 'kvint2eval[trace]'") from error
    reader = gguf.GGUFReader(path)
    found: dict[str, Any] = {}
    for name, field in reader.fields.items():
        is_texts = field.types[0] == gguf.GGUFValueType.ARRAY and field.types[-1] == gguf.GGUFValueType.STRING
        found[name] = len(field.data) if is_texts else field.contents()
    found["tensors"] = tuple(tensor.name for tensor in reader.tensors)
    return found


def apply_metadata(config: Any, metadata: dict[str, Any], path: Path, notes: list[str]) -> Any:
    """Return a configuration in which all stands that a GGUF file says and a configuration has a place for.

    Parameters
    ----------
    config : PreTrainedConfig
        As transformers reads it from the file.
    metadata : dict
        Of `read_metadata`.
    path : Path
        Of the file, for messages.
    notes : list of str
        What a user should know is put here.

    Raises
    ------
    SpecError
        If the file has a scaling of RoPE that cannot be set.
    """
    own = _own(metadata)
    content = config.to_dict()
    changed: dict[str, Any] = {}
    for key, value in own.items():
        if not _is_scalar(value):
            continue
        name = next((name for name in _NAMES.get(key, ()) if hasattr(config, name)), None)
        if name is not None and not _agrees(value, _read(config, name)):
            changed[name] = value
    if "attention.scale" in own and "query_pre_attn_scalar" in content:
        changed["query_pre_attn_scalar"] = round(own["attention.scale"] ** -2, 6)
    if (
        content.get("sliding_window")
        and "attention.sliding_window" not in own
        and metadata["general.architecture"] not in _OWN_WINDOW
    ):
        changed["sliding_window"] = None
    rope = _rope(own, content, path)
    if rope is not None:
        changed["rope_parameters"] = rope
    pre = metadata.get("tokenizer.ggml.pre")
    if metadata.get("tokenizer.ggml.model") == "gpt2" and pre is not None and not _is_known_split(pre):
        notes.append(
            f"{path.name}: the pre-tokenizer {pre!r} is not known to transformers: text is split as GPT-2 splits it, "
            "and its tokens may be others than those that the model was trained on"
        )
    return type(config).from_dict(content | changed) if changed else config


def require_applied(config: Any, metadata: dict[str, Any], path: Path) -> None:
    """Raise unless a configuration says what the metadata of a GGUF file say.

    Raises
    ------
    SpecError
        With every key whose value is another in the configuration, has no place there, or is not known here.
    """
    wrong = []
    for key, value in _own(metadata).items():
        if key in _HARMLESS:
            if not _HARMLESS[key](value):
                wrong.append(f"{key} {value} (not known)")
        elif key in _ROPE or key.startswith("rope.scaling."):
            wrong += _rope_differences(config, key, value)
        elif key not in _NAMES:
            wrong.append(f"{key} {value} (not known)")
        else:
            found = _found(config, key)
            if found is None and value not in (0, None):
                wrong.append(f"{key} {value} (no place in the configuration)")
            elif found is not None and not _agrees(value, found):
                wrong.append(f"{key} {value} (loaded: {found})")
    is_tied = "output.weight" not in metadata["tensors"]
    if bool(getattr(config, "tie_word_embeddings", False)) != is_tied:
        held = "no output.weight" if is_tied else "output.weight"
        wrong.append(f"{held} (loaded: tie_word_embeddings {not is_tied})")
    if wrong:
        raise SpecError(
            f"model {path} is not allowed: the configuration that transformers reads from it is another than the "
            f"file's: {'; '.join(wrong)}; take the model's folder of safetensors"
        )


def unknown_tensors(model: Any, path: Path) -> list[str]:
    """Return the tensors of a GGUF file that transformers did not put into a model, such as ``rope_freqs.weight``."""
    from transformers import modeling_gguf_pytorch_utils as loader  # noqa: PLC0415 - an extra
    from transformers.integrations.gguf.utils import is_gguf_arch_supported  # noqa: PLC0415

    metadata = read_metadata(path)
    architecture = metadata["general.architecture"]
    if is_gguf_arch_supported(architecture):
        return []  # its report of the load names them
    kind = loader.TENSOR_PROCESSORS.get(architecture, loader.TensorProcessor)
    processor: Any = kind
    weights_map: Any = loader.get_gguf_hf_weights_map
    known = weights_map(model, processor(config=model.config.to_dict()))
    return sorted(name for name in metadata["tensors"] if name not in known)


def _own(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the keys below the architecture's name, without it: those that describe the computation."""
    prefix = f"{metadata['general.architecture']}."
    return {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _read(config: Any, name: str) -> Any:
    return getattr(config, name, None)


def _found(config: Any, key: str) -> Any:
    """Return what a configuration says for a key of llama.cpp; None where it says nothing."""
    if key in ("attention.key_length", "attention.value_length"):
        return _head_dim(config)
    if key == "attention.head_count_kv" and _read(config, "num_key_value_heads") is None:
        return _read(config, "num_attention_heads")
    if key == "attention.scale" and _read(config, "query_pre_attn_scalar") is not None:
        return config.query_pre_attn_scalar**-0.5
    if key == "attention.sliding_window" and not _has_windows(config):
        return 0
    return next((value for name in _NAMES[key] if (value := _read(config, name)) is not None), None)


def _has_windows(config: Any) -> bool:
    """Return whether any layer of a configuration has a sliding window."""
    types = _read(config, "layer_types")
    if types is not None and not any("sliding" in str(one) for one in types):
        return False
    return bool(_read(config, "sliding_window")) and _read(config, "use_sliding_window") is not False


def _head_dim(config: Any) -> Any:
    own = _read(config, "head_dim")
    return own if own is not None else _read(config, "hidden_size") // _read(config, "num_attention_heads")


def _agrees(value: Any, found: Any) -> bool:
    """Return whether a value of the file is that of the configuration; the file holds float32."""
    if isinstance(value, list | tuple):
        found = found if isinstance(found, list | tuple) else [found] * len(value)
        return len(value) == len(found) and all(map(_agrees, value, found))
    if isinstance(value, bool) or not isinstance(found, int | float):
        return bool(value == found)
    return math.isclose(value, found, rel_tol=_ROUNDING)


def _rope(own: dict[str, Any], content: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return the parameters of RoPE that a file asks for; None where the loaded ones are right."""
    held = content.get("rope_parameters")
    scaling = {key.removeprefix("rope.scaling."): own[key] for key in own if key.startswith("rope.scaling.")}
    scaling.pop("finetuned", None)
    if "rope.scale_linear" in own:
        scaling = {"type": "linear", "factor": own["rope.scale_linear"]} | scaling
    # llama.cpp takes a factor without a type as linear.
    kind = scaling.pop("type", "linear" if scaling.get("factor") else "none")
    factor = scaling.pop("factor", 1.0) or 1.0
    if kind == "none" or (factor == 1.0 and kind == "linear"):
        return None
    if not isinstance(held, dict) or "rope_theta" not in held:
        raise SpecError(
            f"model {path} is not allowed: its RoPE is scaled ({kind}, {factor:g}), and {content.get('model_type')} "
            "has no one place for it; take the model's folder of safetensors"
        )
    found = {"rope_type": kind, "rope_theta": held["rope_theta"], "factor": float(factor)}
    original = scaling.pop("original_context_length", None)
    if kind == "yarn":
        if original is not None:
            found["original_max_position_embeddings"] = int(original)
        # llama.cpp multiplies the temperature of YaRN by this, transformers takes the whole.
        whole = 1.0 + 0.1 * math.log(factor)
        found["attention_factor"] = whole * scaling.pop("attn_factor", 1.0)
        found |= {_YARN[key]: scaling.pop(key) for key in list(scaling) if key in _YARN}
    if kind not in ("linear", "yarn") or scaling:
        named = ", ".join(f"rope.scaling.{key} {value}" for key, value in scaling.items())
        raise SpecError(
            f"model {path} is not allowed: its scaling of RoPE is not known: {named or f'rope.scaling.type {kind}'}; "
            "take the model's folder of safetensors"
        )
    fraction = held.get("partial_rotary_factor")
    return found if fraction is None else {"partial_rotary_factor": fraction} | found


def _rope_differences(config: Any, key: str, value: Any) -> list[str]:
    """Return what is wrong with a key of RoPE; its scaling was set, or refused, by `apply_metadata`."""
    held = _read(config, "rope_parameters")
    held = held if isinstance(held, dict) else {}
    # Families with windows have parameters by the type of a layer; the file's are those of full attention.
    own = held if "rope_theta" in held else held.get("full_attention") or {}
    if key == "rope.freq_base":
        found = own.get("rope_theta")
    elif key == "rope.dimension_count":
        fraction = own.get("partial_rotary_factor", _read(config, "partial_rotary_factor"))
        found = int(_head_dim(config) * (1.0 if fraction is None else fraction))
    elif key in ("rope.scaling.factor", "rope.scale_linear"):
        found = own.get("factor", 1.0)
    elif key == "rope.scaling.type":
        found, value = own.get("rope_type", "default"), {"none": "default"}.get(value, value)
    else:
        return []
    return [] if _agrees(value, found) else [f"{key} {value} (loaded: {found})"]


def _is_known_split(pre: str) -> bool:
    from transformers.integrations.gguf import gguf_tokenizer_mapping  # noqa: PLC0415 - an extra

    return pre in _AS_GPT2 or pre in gguf_tokenizer_mapping.GGUF_PRE_TOKENIZER_SPLITS
