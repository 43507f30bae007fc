"""Layers of a model of `transformers`: its decoder, the attention of every layer, and its output projection."""

from __future__ import annotations

from typing import Any

from producer.errors import SpecError

__all__ = ["attention_modules", "body", "decoder_layers", "output_projection"]

_ATTENTIONS = ("self_attn", "attention", "attn", "self_attention")
_PROJECTIONS = ("o_proj", "dense", "out_proj", "c_proj")
_LISTS = ("layers", "h", "blocks")


def body(model: Any) -> Any:
    """Return the module that makes hidden states of tokens through layers, whose head makes logits of them.

    Raises
    ------
    SpecError
        If the model has none with a list of layers.
    """
    for inner in (
        model.get_decoder(),
        getattr(model, model.base_model_prefix, None),
        getattr(model, "model", None),
    ):
        if inner is not None and inner is not model and _layers_of(inner):
            return inner
    raise SpecError(f"{type(model).__name__} is not allowed: it has no list of layers with attention")


def decoder_layers(model: Any) -> list[Any]:
    """Return the layers of a model in order; raises as `body`."""
    return _layers_of(body(model))


def _layers_of(inner: Any) -> list[Any]:
    for name in _LISTS:
        found = getattr(inner, name, None)
        if found is not None and len(found):
            return list(found)
    return []


def output_projection(module: Any) -> Any:
    """Return the linear layer of W_O of an attention module, or None: `o_proj` in Llama, `dense` in GPT-NeoX."""
    for name in _PROJECTIONS:
        found = getattr(module, name, None)
        weight = getattr(found, "weight", None)
        # GPT-2's convolution has its axes the other way round.
        if weight is not None and weight.ndim == 2 and hasattr(found, "out_features"):
            return found
    return None


def attention_modules(model: Any) -> list[Any]:
    """Return the attention modules in the order of the layers.

    Raises
    ------
    SpecError
        If a layer has no attention, or one without a linear output projection; the message names it.
    """
    modules = []
    for index, layer in enumerate(decoder_layers(model)):
        own = [module for name in _ATTENTIONS if (module := getattr(layer, name, None)) is not None]
        if not own:
            raise SpecError(
                f"layer {index} ({type(layer).__name__}) of {type(model).__name__} has no attention module: a layer "
                "that keeps no keys and values, such as a recurrent one, is not known here"
            )
        if isinstance(own[0], list | tuple) or output_projection(own[0]) is None:
            raise SpecError(
                f"layer {index} ({type(own[0]).__name__}) of {type(model).__name__} has no linear output projection: "
                f"one of {', '.join(_PROJECTIONS)} is needed"
            )
        modules.append(own[0])
    return modules
