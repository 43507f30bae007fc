"""A model that decodes token by token with a packed cache, up to its last norm."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.trace.model import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from producer.scheme.fitted_layer import FittedLayer
    from producer.trace.model import LoadedModel

__all__ = ["decode_hidden"]


def decode_hidden(
    loaded: LoadedModel,
    token_ids: Any,
    fitted: Sequence[FittedLayer] | Mapping[int, FittedLayer],
    start: tuple[int, int],
    observe: Callable[[int, Any], None],
) -> Any:
    """Return what `producer.trace.model.run_hidden` returns, of a model that reads a packed cache.

    Parameters
    ----------
    loaded : LoadedModel
    token_ids : int32, shape (tokens,)
    fitted : sequence or mapping of FittedLayer
        Of all layers.
    start : pair of int
        Tokens of the prompt, which is prefilled at once, and tokens that leave the recent window at once.
    observe : callable
        Gets the index of each layer and the residual stream after it, NumPy, (tokens, hidden_size).
    """
    import torch  # noqa: PLC0415 - an extra

    from producer.cache import PackedCache  # noqa: PLC0415 - needs the extra
    from producer.cache.binding import CACHE_ARGUMENT  # noqa: PLC0415

    prompt, flush = start
    body = loaded.model.model
    before = loaded.model.config._attn_implementation  # noqa: SLF001 - there is no public name for it
    layers = {index: fitted[index] for index in range(len(fitted))}
    cache = PackedCache.for_model(loaded.model, layers, flush=flush)
    states: list[list[Any]] = [[] for _ in range(len(body.layers) + 1)]

    def keep(index: int) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            states[index].append(found.reshape(found.shape[-2:]).clone())

        return hook

    handles = [layer.register_forward_hook(keep(index)) for index, layer in enumerate(body.layers)]
    handles.append(body.norm.register_forward_hook(keep(len(body.layers))))
    ids = torch.from_numpy(np.asarray(token_ids).astype("int64"))[None].to(loaded.model.device)
    bounds = [0, *range(prompt, ids.shape[1]), ids.shape[1]]
    try:
        with torch.no_grad():
            for first, end in itertools.pairwise(bounds):
                if end > first:
                    loaded.model(input_ids=ids[:, first:end], logits_to_keep=1, **{CACHE_ARGUMENT: cache})
    finally:
        for handle in handles:
            handle.remove()
        loaded.model.set_attn_implementation(before)
    for index, parts in enumerate(states[:-1]):
        observe(index, to_numpy(torch.cat(parts)))
    return torch.cat(states[-1])
