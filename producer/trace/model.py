"""A language model of `transformers` whose attention is ours: recorded, or reading a quantized cache.

The attention function masks causally by itself, and a mask function of the same name is registered with it: without
one, `transformers` hands a custom function no mask at all and the model looks ahead. The mask that the model asks for
is evaluated for every sequence: a layer that leaves out earlier tokens, as those with windows do, is refused.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from producer.errors import ProducerError, SpecError
from producer.trace.layers import attention_modules, body, decoder_layers, output_projection
from producer.trace.libraries import libraries
from producer.trace.masks import MaskRegister, causal_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from producer.trace.model_info import ModelInfo

__all__ = [
    "AttentionHook",
    "LoadedModel",
    "causal_attention",
    "logits_of",
    "negative_log_likelihoods",
    "output_projections",
    "output_weights",
    "run_hidden",
    "run_model",
    "to_numpy",
    "use_attention",
]

_NAME = "kvint2eval"
#: What a model may hand its attention that changes no number: places, and what it returns besides.
_HARMLESS = frozenset(
    {
        "cache_position",
        "dropout",
        "is_causal",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "sliding_window",
        "use_cache",
    }
)
_WORDS = {"softcap": "a soft cap on its scores", "s_aux": "learned sinks"}
# Of the head's product of one row, which may be summed in another order.
_LOGIT_BOUND = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


class AttentionHook(Protocol):
    """Computes the attention of one layer, in place of the model's."""

    def __call__(self, layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        """Return head outputs, torch float, (1, num_heads, T, head_dim), of post-RoPE q and of k, v (1, H, T, d)."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer.

    Attributes
    ----------
    model, tokenizer : object
        Of `transformers`.
    info : ModelInfo
    """

    model: Any
    tokenizer: Any
    info: ModelInfo


def to_numpy(values: Any) -> Any:
    """Return a tensor of any float type and device as NumPy float32."""
    return values.detach().float().cpu().numpy()


def output_projections(loaded: LoadedModel) -> list[Any]:
    """Return the linear layers of W_O in the order of the layers."""
    return [output_projection(module) for module in attention_modules(loaded.model)]


def output_weights(loaded: LoadedModel, layer_idx: int) -> Any:
    """Return W_O of a layer by query head, NumPy float32, shape (num_heads, head_dim, hidden_size)."""
    weight = to_numpy(output_projections(loaded)[layer_idx].weight)
    info = loaded.info
    return weight.T.reshape(info.num_heads, info.head_dim, weight.shape[0]).copy()


def _words_of(name: str, value: Any) -> str:
    shown = f" ({value:g})" if isinstance(value, int | float) else ""
    return f"{_WORDS.get(name, name)}{shown}"


@contextlib.contextmanager
def use_attention(model: Any, hook: AttentionHook, tokens: int | None = None) -> Iterator[None]:
    """Let a model attend by `hook` while the block runs; one sequence at a time, no padding, no cache.

    Parameters
    ----------
    model : LoadedModel, or a model of `transformers`
    hook : AttentionHook
    tokens : int, optional
        Length for which masks are evaluated; that of the sequence by default.

    Raises
    ------
    SpecError
        While the model runs, if a layer asks its attention for something that is not known here: a mask that leaves out
        earlier tokens or reads later ones, a soft cap on scores, learned sinks, dropout, several sequences, or anything
        else that is no mask, scaling or place.
    """
    _, transformers = libraries()
    model = model.model if isinstance(model, LoadedModel) else model
    places = {id(module): index for index, module in enumerate(attention_modules(model))}
    masks = MaskRegister(tokens)

    def attend(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Any, None]:
        where = f"layer {places.get(id(module), '?')} ({type(module).__name__})"
        if id(module) not in places:
            raise SpecError(f"{where}: attention outside the layers of the model is not known here")
        for name, asked in options.items():
            is_off = asked is None or (name == "dropout" and asked == 0)
            if not is_off and (name not in _HARMLESS or name == "dropout"):
                raise SpecError(
                    f"{where} asks its attention for {_words_of(name, asked)}, which is not known here"
                )
        if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
            raise SpecError(
                f"{where}: queries {tuple(query.shape)} are not allowed: one whole sequence at a time"
            )
        if options.get("is_causal", getattr(module, "is_causal", True)) is False and attention_mask is None:
            raise SpecError(f"{where} reads later tokens: its attention is not causal")
        masks.require_causal(attention_mask, query.shape[2], where)
        scale = getattr(module, "scaling", None) if scaling is None else scaling
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        return hook(places[id(module)], query, key, value, scale).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register(_NAME, attend)
    transformers.AttentionMaskInterface.register(_NAME, masks)
    before = model.config._attn_implementation  # noqa: SLF001 - there is no public name for it
    model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def run_model(model: Any, token_ids: Any, **options: Any) -> Any:
    """Return what a model of `transformers` gives for a sequence, int, shape (tokens,), on the model's device.

    Raises
    ------
    SpecError
        If it cannot be run, for example on more tokens than it has learned positions, or than memory holds.
    """
    torch, _ = libraries()
    ids = torch.from_numpy(token_ids.astype("int64"))[None].to(model.device)
    try:
        with torch.no_grad():
            return model(input_ids=ids, **options)
    except (RuntimeError, IndexError, ValueError, TypeError, AttributeError, KeyError) as error:
        if isinstance(error, ProducerError):
            raise
        detail = " ".join(str(error).split())[:300]
        raise SpecError(
            f"{type(model).__name__} cannot be run on {len(token_ids)} tokens: {type(error).__name__}: {detail}"
        ) from error


def run_hidden(loaded: LoadedModel, token_ids: Any, observe: Callable[[int, Any], None]) -> Any:
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
    torch float, shape (tokens, hidden_size)
        What the head makes logits of.

    Raises
    ------
    SpecError
        If a layer gives no residual stream of one row a token, or the logits made of the hidden states are not the
        model's own.
    """
    final: list[Any] = []
    count = len(token_ids)

    def watch(layer_idx: int) -> Any:
        def keep(module: Any, _inputs: Any, output: Any) -> None:
            states = output[0] if isinstance(output, tuple) else output
            if tuple(states.shape[:-1]) not in ((1, count), (count,)):
                raise SpecError(
                    f"layer {layer_idx} ({type(module).__name__}) gives hidden states of shape {tuple(states.shape)}: "
                    f"a residual stream of one row for each of {count} tokens is needed"
                )
            observe(layer_idx, to_numpy(states.reshape(count, -1)))

        return keep

    layers = enumerate(decoder_layers(loaded.model))
    handles = [layer.register_forward_hook(watch(index)) for index, layer in layers]
    handles.append(
        body(loaded.model).register_forward_hook(lambda _m, _i, output: final.append(output[0][0]))
    )
    try:
        last = run_model(loaded.model, token_ids, use_cache=False, logits_to_keep=1).logits[0, -1]
    finally:
        for handle in handles:
            handle.remove()
    ours, own = logits_of(loaded, final[0][-1:])[0], to_numpy(last)
    if not abs(ours - own).max() <= _LOGIT_BOUND[loaded.info.dtype] * abs(own).max():
        raise SpecError(f"{loaded.info.architecture} makes other logits of its hidden states than it should")
    return final[0]


def logits_of(loaded: LoadedModel, hidden: Any) -> Any:
    """Return the model's logits, NumPy float32, (positions, vocabulary), of hidden states of `run_hidden`.

    The model itself makes them, from states that stand in for those of its layers, so that whatever it does behind its
    head, such as scaling logits or capping them, is done.
    """
    torch, transformers = libraries()
    model = loaded.model
    inner = body(model)
    output = _stand_in(transformers.modeling_outputs.BaseModelOutputWithPast)(last_hidden_state=hidden[None])
    ids = torch.zeros((1, hidden.shape[0]), dtype=torch.long, device=hidden.device)
    before = inner.__dict__.get("forward")
    inner.forward = lambda *_args, **_options: output
    try:
        with torch.no_grad():
            return to_numpy(model(input_ids=ids, use_cache=False).logits[0])
    finally:
        if before is None:
            del inner.forward
        else:
            inner.forward = before


@functools.cache
def _stand_in(output: Any) -> Any:
    """Return a kind of output that has hidden states, and None for all else that a model may look for in it."""

    def missing(_self: Any, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)

    return type("HiddenStates", (output,), {"__getattr__": missing})


def negative_log_likelihoods(loaded: LoadedModel, token_ids: Any, first: int = 1) -> Any:
    """Return -log p of tokens `first` … of a sequence, each given those before it, NumPy float64."""
    torch, _ = libraries()
    logits = run_model(loaded.model, token_ids, use_cache=False).logits[0, first - 1 : -1]
    ids = torch.from_numpy(token_ids.astype("int64")).to(logits.device)
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[first:], reduction="none")
    return loss.double().cpu().numpy()
