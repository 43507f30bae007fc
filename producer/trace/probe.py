"""Probe of a model's attention before any work: what each layer caches and computes, or why it is not known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from producer.errors import SpecError
from producer.trace.layers import attention_modules, output_projection
from producer.trace.libraries import libraries
from producer.trace.masks import causal_attention
from producer.trace.model import LoadedModel, run_hidden, run_model, to_numpy, use_attention

__all__ = ["OUTPUT_BOUND", "Attention", "probe_attention", "require_hidden"]

#: Relative difference of two implementations of one attention by rounding alone, in the type of the model.
OUTPUT_BOUND = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
_PROBE_TOKENS = 80


@dataclass(frozen=True, slots=True)
class Attention:
    """The shape of a model's attention.

    Attributes
    ----------
    num_layers, num_heads, num_kv_heads, head_dim, hidden_size, vocab_size : int
    scalings : tuple of float
        What scores are multiplied by, by layer.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    scalings: tuple[float, ...]


@dataclass(slots=True)
class _Seen:
    """What the layers of a probe handed their attention, in the order of the calls, and what they gave."""

    calls: list[tuple[int, Any, Any, Any, float]] = field(default_factory=list)
    outputs: dict[int, Any] = field(default_factory=dict)


def probe_attention(model: Any, tokens: int, dtype: str) -> Attention:
    """Return the shape of a model's attention, after its layers were shown to be what is captured.

    Parameters
    ----------
    model : object
        Of `transformers`.
    tokens : int
        Length of the sequences that it will read; masks are evaluated for it.
    dtype : {"float32", "float16", "bfloat16"}
        In which the model runs.

    Raises
    ------
    SpecError
        With the layer, if one has no attention of its own, is called more than once, hands its attention what is not
        known here, reads a mask that is not causal at that length, caches other keys and values than its attention
        reads (as multi-head latent attention does) or those of another layer, or gives another output than W_O makes of
        what was captured; or if layers have different shapes.

    Notes
    -----
    Three passes over a few tokens. The keys and values that are captured are compared with those that the model itself
    leaves in a cache, the attention output after W_O with that of the layer, and the logits of a pass with the captured
    attention in the model's place with those of a plain one.
    """
    modules = attention_modules(model)
    for index, module in enumerate(modules):
        if getattr(module, "kv_lora_rank", None) is not None:
            raise SpecError(
                f"layer {index} ({type(module).__name__}) has multi-head latent attention: its cache holds a latent of "
                f"{module.kv_lora_rank} channels for all heads, and no keys and values by head"
            )
        if getattr(module, "is_kv_shared_layer", False):
            raise SpecError(
                f"layer {index} ({type(module).__name__}) reads the keys and values of an earlier layer: layers that "
                "share a cache are not known here"
            )
    _require_places(model, tokens)
    head = model.get_output_embeddings()
    if head is None:
        raise SpecError(f"{type(model).__name__} is not allowed: it has no head that predicts words")
    vocab_size = int(head.weight.shape[0])
    ids = (np.arange(min(tokens, _PROBE_TOKENS)) * 7919 % vocab_size).astype(np.int32)
    seen = _Seen()
    hooked = _hooked_pass(model, modules, ids, tokens, seen)
    shapes = _require_shapes(modules, seen)
    _require_cached(model, modules, ids, seen, dtype)
    plain = _plain_pass(model, modules, ids, seen)
    _require_outputs(modules, seen, dtype)
    difference = float(np.abs(hooked - plain).max() / np.abs(plain).max())
    if not difference <= OUTPUT_BOUND[dtype]:
        raise SpecError(
            f"{type(model).__name__} gives other logits with causal attention than by itself: they differ by "
            f"{difference:.2g} of the largest"
        )
    hidden_size = int(output_projection(modules[0]).out_features)
    scalings = tuple(call[4] for call in seen.calls)
    return Attention(len(modules), *shapes, hidden_size, vocab_size, scalings)


def require_hidden(loaded: LoadedModel) -> None:
    """Raise unless a model's layers give a residual stream, and its logits can be made of it: comparisons need both.

    Raises
    ------
    SpecError
        As `producer.trace.model.run_hidden`.
    """
    ids = np.arange(_PROBE_TOKENS).astype(np.int32) % loaded.info.vocab_size
    run_hidden(loaded, ids, lambda _layer_idx, _states: None)


def _require_places(model: Any, tokens: int) -> None:
    """Raise when a model that learned its positions has too few of them: it cannot be run beyond."""
    torch, _ = libraries()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and ("position" in name or name.endswith("wpe")):
            held = module.num_embeddings - int(getattr(module, "offset", 0))
            if tokens > held:
                raise SpecError(
                    f"sequences of {tokens} tokens are not allowed: {type(model).__name__} has {held} learned "
                    f"positions ({name}) and none beyond"
                )


def _name(modules: list[Any], index: int) -> str:
    return f"layer {index} ({type(modules[index]).__name__})"


def _relative(found: Any, expected: Any) -> float:
    """Return the norm of a difference relative to that of what is expected."""
    return float(np.linalg.norm(found - expected) / max(float(np.linalg.norm(expected)), 1e-30))


def _hooked_pass(model: Any, modules: list[Any], ids: Any, tokens: int, seen: _Seen) -> Any:
    """Return logits of a pass with causal attention, and keep what the layers handed it."""

    def record(layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        if any(call[0] == layer_idx for call in seen.calls):
            raise SpecError(f"{_name(modules, layer_idx)} attends more than once: one attention is needed")
        if k.shape != v.shape or q.shape[-1] != k.shape[-1]:
            raise SpecError(
                f"{_name(modules, layer_idx)} has queries, keys and values of {q.shape[-1]}, {k.shape[-1]} and "
                f"{v.shape[-1]} channels in {q.shape[1]}, {k.shape[1]} and {v.shape[1]} heads: keys and values of one "
                "shape are needed"
            )
        seen.calls.append((layer_idx, q, k, v, scaling))
        return causal_attention(q, k, v, scaling)

    with use_attention(model, record, tokens):
        logits = to_numpy(run_model(model, ids, use_cache=False).logits[0])
    called = {call[0] for call in seen.calls}
    for index in range(len(modules)):
        if index not in called:
            raise SpecError(
                f"{_name(modules, index)} computes its attention by itself, where it cannot be captured: only layers "
                "that use the attention interface of transformers are known here"
            )
    seen.calls.sort(key=lambda call: call[0])
    return logits


def _require_shapes(modules: list[Any], seen: _Seen) -> tuple[int, int, int]:
    """Return query heads, KV heads and channels of a head; raise unless all layers have the same."""
    shapes = [(int(q.shape[1]), int(k.shape[1]), int(k.shape[3])) for _, q, k, _, _ in seen.calls]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise SpecError(
                f"{_name(modules, index)} has {shape[0]} query heads and {shape[1]} KV heads of {shape[2]} channels, "
                f"layer 0 has {shapes[0][0]} and {shapes[0][1]} of {shapes[0][2]}: one shape for all layers is needed"
            )
    return shapes[0]


def _require_cached(model: Any, modules: list[Any], ids: Any, seen: _Seen, dtype: str) -> None:
    """Raise unless the keys and values that were captured are those that the model leaves in its cache."""
    torch, _ = libraries()
    cache = run_model(model, ids, use_cache=True).past_key_values
    held = list(getattr(cache, "layers", []))
    for index, _, k, v, _ in seen.calls:
        own = held[index] if index < len(held) else None
        keys, values = (getattr(own, name, None) for name in ("keys", "values"))
        if keys is None or values is None or keys.numel() == 0:
            raise SpecError(
                f"{_name(modules, index)} has no cache of its own: layers that share a cache are not known here"
            )
        # A cache with a window drops tokens that it will not read again.
        count = keys.shape[2]
        if keys.shape != k[:, :, -count:].shape or values.shape != v[:, :, -count:].shape:
            raise SpecError(
                f"{_name(modules, index)} caches keys and values of shapes {tuple(keys.shape[1:])} and "
                f"{tuple(values.shape[1:])}, and attends to {tuple(k.shape[1:])} and {tuple(v.shape[1:])}: it caches "
                "something else than the keys and values that its attention reads, as latent attention does"
            )
        # The layers before may sum in another order without our attention.
        pairs = ((keys, k[:, :, -count:]), (values, v[:, :, -count:]))
        if not all(_relative(to_numpy(own), to_numpy(other)) <= OUTPUT_BOUND[dtype] for own, other in pairs):
            raise SpecError(
                f"{_name(modules, index)} caches other keys or values than those that its attention reads"
            )
        for earlier, _, other, _, _ in seen.calls[:index]:
            if torch.equal(other, k):
                raise SpecError(
                    f"{_name(modules, index)} has the keys of layer {earlier}: a shared cache is not known here"
                )


def _plain_pass(model: Any, modules: list[Any], ids: Any, seen: _Seen) -> Any:
    """Return logits of a plain pass, and keep the outputs of W_O without their bias."""

    def keep(index: int) -> Any:
        def hook(module: Any, _inputs: Any, output: Any) -> None:
            bias = 0 if module.bias is None else module.bias
            seen.outputs[index] = to_numpy((output - bias).reshape(len(ids), -1))

        return hook

    projections = map(output_projection, modules)
    handles = [one.register_forward_hook(keep(index)) for index, one in enumerate(projections)]
    try:
        return to_numpy(run_model(model, ids, use_cache=False).logits[0])
    finally:
        for handle in handles:
            handle.remove()


def _require_outputs(modules: list[Any], seen: _Seen, dtype: str) -> None:
    """Raise unless W_O makes the output of each layer of its attention over what was captured."""
    for index, q, k, v, scaling in seen.calls:
        projection = output_projection(modules[index])
        weight = to_numpy(projection.weight)
        if weight.shape[1] != q.shape[1] * q.shape[3]:
            raise SpecError(
                f"{_name(modules, index)} projects {weight.shape[1]} channels to its output, and its attention gives "
                f"{q.shape[1] * q.shape[3]}"
            )
        heads = to_numpy(causal_attention(q.float(), k.float(), v.float(), scaling))[0]
        own = heads.swapaxes(0, 1).reshape(heads.shape[1], -1) @ weight.T
        expected = seen.outputs[index]
        error = _relative(own, expected)
        if not error <= OUTPUT_BOUND[dtype]:
            raise SpecError(
                f"{_name(modules, index)} does something else between its attention and W_O, such as a gate or a norm: "
                f"its output differs by {error:.2g} of itself from that of the captured attention"
            )
