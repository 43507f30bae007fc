"""A language model of `transformers` whose attention is ours: recorded, or reading a quantized cache.

The attention function masks causally by itself, and a mask function of the same name is registered with it: without
one, `transformers` hands a custom function no mask at all and the model looks ahead.
"""

import contextlib
import hashlib
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from producer.errors import ExtraMissingError, SpecError
from producer.trace.files import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "AttentionHook",
    "LoadedModel",
    "causal_attention",
    "load_model",
    "logits_of",
    "output_weights",
    "run_hidden",
    "use_attention",
    "weights_digest",
]

_NAME = "kvint2eval"
_READ_BYTES = 1 << 20
#: What a model may pass to its attention that ours would have to know of.
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux")
_LOGIT_BOUND = 1e-4


class AttentionHook(Protocol):
    """Computes the attention of one layer, in place of the model's."""

    def __call__(self, layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        """Return head outputs, torch float, (1, num_heads, T, head_dim), of post-RoPE q and of k, v (1, H, T, d)."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in float32 with its tokenizer.

    Attributes
    ----------
    model, tokenizer : object
        Of `transformers`.
    info : ModelInfo
    """

    model: Any
    tokenizer: Any
    info: ModelInfo


def _libraries() -> tuple[Any, Any]:
    """Return torch and transformers, offline."""
    # A model is a file of the user's; nothing is looked up elsewhere.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch  # noqa: PLC0415 - an extra, and slow to import
            import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExtraMissingError(
            "models need torch and transformers: pip install 'kvint2eval[trace]'"
        ) from error
    return torch, transformers


def load_model(path: "Path") -> LoadedModel:
    """Return a Llama-, Qwen- or Phi-style model from a folder, or from a GGUF file.

    Raises
    ------
    SpecError
        If the path holds no model that can be loaded, or one whose attention is not known here.
    ExtraMissingError
        If torch or transformers is not installed.
    """
    torch, transformers = _libraries()
    if not path.exists():
        raise SpecError(f"model {path} is not allowed: there is no such file or folder")
    source, options = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
            model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SpecError(f"model {path} cannot be loaded: {error}") from error
    model.eval()
    attention = _attention_modules(model)
    if not attention:
        raise SpecError(
            f"model {path} of class {type(model).__name__} is not allowed: no layer has self_attn.o_proj"
        )
    config = model.config
    num_heads = int(config.num_attention_heads)
    info = ModelInfo(
        name=path.name,
        architecture=type(model).__name__,
        weights_sha256=weights_digest(path),
        num_layers=len(attention),
        num_heads=num_heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", None) or num_heads),
        head_dim=int(attention[0].head_dim),
        hidden_size=int(config.hidden_size),
        scaling=float(attention[0].scaling),
    )
    return LoadedModel(model, tokenizer, info)


def weights_digest(path: "Path") -> str:
    """Return the SHA-256 of the weight file, or of the digests of several, in the order of their names."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))
    digests = []
    for file in files:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_READ_BYTES):
                digest.update(chunk)
        digests.append(digest.hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _attention_modules(model: Any) -> list[Any]:
    """Return the attention modules in the order of the layers: those with an output projection of ours to read."""
    layers = getattr(getattr(model, "model", None), "layers", [])
    modules = [getattr(layer, "self_attn", None) for layer in layers]
    return modules if all(_output_projection(module) is not None for module in modules) else []


def _output_projection(module: Any) -> Any:
    """Return the linear layer of W_O: `o_proj` in Llama and Qwen, and in Phi from 3 on; `dense` in Phi before."""
    return getattr(module, "o_proj", None) or getattr(module, "dense", None)


def output_projections(loaded: LoadedModel) -> list[Any]:
    """Return the linear layers of W_O in the order of the layers."""
    return [_output_projection(module) for module in _attention_modules(loaded.model)]


def output_weights(loaded: LoadedModel, layer_idx: int) -> Any:
    """Return W_O of a layer by query head, NumPy float32, shape (num_heads, head_dim, hidden_size)."""
    weight = output_projections(loaded)[layer_idx].weight.detach().numpy()
    info = loaded.info
    return weight.T.reshape(info.num_heads, info.head_dim, weight.shape[0]).copy()


@contextlib.contextmanager
def use_attention(loaded: LoadedModel, hook: AttentionHook) -> "Iterator[None]":
    """Let a model attend by `hook` while the block runs; one sequence at a time, no padding, no cache.

    Raises
    ------
    SpecError
        While the model runs, if it asks its attention for something that is not known here: a sliding window that
        ends within the sequence, a soft cap on scores, learned sinks, or several sequences.
    """
    _, transformers = _libraries()

    def attend(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        _mask: Any,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Any, None]:
        for name in _UNSUPPORTED:
            asked = options.get(name)
            if asked is not None and not (name == "sliding_window" and asked >= key.shape[2]):
                raise SpecError(
                    f"{loaded.info.architecture} asks its attention for {name}, which is not known here"
                )
        if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
            raise SpecError(f"queries {tuple(query.shape)} are not allowed: one whole sequence at a time")
        scale = module.scaling if scaling is None else scaling
        return hook(module.layer_idx, query, key, value, scale).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register(_NAME, attend)
    transformers.AttentionMaskInterface.register(_NAME, lambda *_a, **_k: None)
    before = loaded.model.config._attn_implementation  # noqa: SLF001 - there is no public name for it
    loaded.model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        loaded.model.set_attn_implementation(before)


def causal_attention(q: Any, k: Any, v: Any, scaling: float) -> Any:
    """Return causal attention as torch computes it, (1, num_heads, T, head_dim)."""
    torch, _ = _libraries()
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scaling, enable_gqa=True
    )


def run_hidden(loaded: LoadedModel, token_ids: Any, observe: "Callable[[int, Any], None]") -> Any:
    """Run a model on a sequence up to its last norm.

    Parameters
    ----------
    loaded : LoadedModel
    token_ids : int32, shape (tokens,)
    observe : callable
        Gets the index of each layer and the residual stream after it, NumPy float32, (tokens, hidden_size), which it
        must copy to keep.

    Returns
    -------
    torch float32, shape (tokens, hidden_size)
        What the head makes logits of.

    Raises
    ------
    SpecError
        If the head's logits at the last position are not the model's own: it does something after the head.
    """
    torch, _ = _libraries()
    final: list[Any] = []

    def watch(layer_idx: int) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            states = output[0] if isinstance(output, tuple) else output
            observe(layer_idx, states.reshape(states.shape[-2:]).numpy())

        return keep

    body = loaded.model.model
    handles = [layer.register_forward_hook(watch(index)) for index, layer in enumerate(body.layers)]
    handles.append(body.register_forward_hook(lambda _m, _i, output: final.append(output[0][0])))
    try:
        with torch.no_grad():
            ids = torch.from_numpy(token_ids.astype("int64"))[None]
            last = loaded.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1]
    finally:
        for handle in handles:
            handle.remove()
    ours = logits_of(loaded, final[0][-1:])[0]
    # Rounding alone: the product of one row may be summed in another order.
    if not abs(ours - last.numpy()).max() <= _LOGIT_BOUND * abs(ours).max():
        raise SpecError(f"{loaded.info.architecture} changes what its head gives, which is not known here")
    return final[0]


def logits_of(loaded: LoadedModel, hidden: Any) -> Any:
    """Return the head's logits, NumPy float32, (positions, vocabulary), of hidden states of `run_hidden`."""
    torch, _ = _libraries()
    with torch.no_grad():
        return loaded.model.get_output_embeddings()(hidden).numpy()


def negative_log_likelihoods(loaded: LoadedModel, token_ids: Any, first: int = 1) -> Any:
    """Return -log p of tokens `first` … of a sequence, each given those before it, NumPy float64."""
    torch, _ = _libraries()
    ids = torch.from_numpy(token_ids.astype("int64"))[None]
    with torch.no_grad():
        logits = loaded.model(input_ids=ids, use_cache=False).logits[0, first - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits, ids[0, first:], reduction="none")
    return loss.double().numpy()
