"""A whole model with the quantized cache in use: perplexity, divergence and the error of its residual stream.

Every query reads the quantized form of a token once the token has left the recent window, and its exact form before,
as in decode with a window of exactly `recent` tokens. One forward pass gives that, because what a layer caches for a
token depends on earlier tokens only. A prefill that attends to its own unquantized keys and values would not: it never
reads the cache, so its perplexity holds no quantization error, and none is offered here.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.trace.model import LoadedModel, run_model, use_attention

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from producer.arrays import Float64Array
    from producer.schemes import FittedLayer

__all__ = ["ModelErrors", "model_errors", "windowed_attention"]

# Queries whose scores are held at a time: 9 heads and 2048 tokens are 38 MB.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class ModelErrors:
    """What a scheme does to a model on one sequence.

    Attributes
    ----------
    perplexity, reference_perplexity : float
        Over the tokens from `first` on, with the scheme and without.
    divergence : float
        Mean KL of the predicted distributions, in nats.
    residual : float64, shape (layers,)
        Σ‖h̃ - h‖²/Σ‖h‖² of the hidden states after each layer, over all tokens.
    first, tokens : int
    """

    perplexity: float
    reference_perplexity: float
    divergence: float
    residual: "Float64Array"
    first: int
    tokens: int


def windowed_attention(
    q: Any, exact: tuple[Any, Any], quantized: tuple[Any, Any], scaling: float, sink: int, recent: int
) -> Any:
    """Return causal attention that reads quantized tokens outside the sink and recent windows.

    Parameters
    ----------
    q : torch float32, shape (1, num_heads, T, head_dim)
    exact, quantized : two of torch float32, shape (1, num_kv_heads, T, head_dim)
        Keys and values.
    scaling : float
    sink, recent : int
        A query at position t reads token s exactly when s < sink or s > t - recent.

    Returns
    -------
    torch float32, shape of `q`
    """
    import torch  # noqa: PLC0415 - an extra

    group = q.shape[1] // exact[0].shape[1]
    (k, v), (k2, v2) = ([x.repeat_interleave(group, dim=1) for x in pair] for pair in (exact, quantized))
    length = q.shape[2]
    places = torch.arange(length)
    parts = []
    for first in range(0, length, _CHUNK):
        rows = places[first : first + _CHUNK, None]
        end = min(first + _CHUNK, length)
        columns = places[None, :end]
        is_exact = (columns < sink) | (columns > rows - recent)
        mine = q[:, :, first:end]
        scores = torch.where(is_exact, mine @ k[:, :, :end].mT, mine @ k2[:, :, :end].mT) * scaling
        weights = scores.masked_fill(columns > rows, -torch.inf).softmax(dim=-1)
        parts.append((weights * is_exact) @ v[:, :, :end] + (weights * ~is_exact) @ v2[:, :, :end])
    return torch.cat(parts, dim=2)


def model_errors(
    loaded: LoadedModel,
    token_ids: "npt.NDArray[np.int32]",
    schemes: "Sequence[Sequence[FittedLayer]]",
    first: int = 512,
) -> list[ModelErrors]:
    """Return what schemes do to a model on one sequence.

    Parameters
    ----------
    loaded : LoadedModel
    token_ids : int32, shape (tokens,)
    schemes : sequence of sequences of FittedLayer
        Every scheme fitted to all layers.
    first : int
        First token that is scored; earlier ones read few quantized tokens, or none.

    Raises
    ------
    SpecError
        If no scored token would read a quantized one: that is no measurement of a quantized cache.
    """
    for fitted in schemes:
        needed = fitted[0].scheme.sink + fitted[0].scheme.recent
        if not needed < first < token_ids.size:
            raise SpecError(
                f"tokens {first} … {token_ids.size} are not allowed: cache not exercised before token {needed + 1}"
            )
    plain = run_model(loaded, token_ids)
    log_p = _log_softmax(plain.logits[first - 1 : -1])
    results = []
    for fitted in schemes:

        def attend(layer_idx: int, q: Any, k: Any, v: Any, scaling: float, fitted: Any = fitted) -> Any:
            import torch  # noqa: PLC0415

            layer = fitted[layer_idx]
            keys, values = layer.quantize_all(k[0].numpy(), v[0].numpy())
            quantized = torch.from_numpy(keys)[None], torch.from_numpy(values)[None]
            if torch.equal(quantized[0], k) and torch.equal(quantized[1], v):
                raise SpecError(
                    f"layer {layer_idx}: the quantized cache is the exact one: nothing was quantized"
                )
            scheme = layer.scheme
            return windowed_attention(q, (k, v), quantized, scaling, scheme.sink, scheme.recent)

        with use_attention(loaded, attend):
            run = run_model(loaded, token_ids)
        log_q = _log_softmax(run.logits[first - 1 : -1])
        targets = token_ids[first:, None].astype(np.int64)
        results.append(
            ModelErrors(
                perplexity=math.exp(-np.take_along_axis(log_q, targets, axis=1).mean()),
                reference_perplexity=math.exp(-np.take_along_axis(log_p, targets, axis=1).mean()),
                divergence=float((np.exp(log_p) * (log_p - log_q)).sum(axis=1, dtype=np.float64).mean()),
                residual=np.array(
                    [
                        np.square(one - other, dtype=np.float64).sum()
                        / np.square(other, dtype=np.float64).sum()
                        for one, other in zip(run.hidden, plain.hidden, strict=True)
                    ]
                ),
                first=first,
                tokens=token_ids.size,
            )
        )
    return results


def _log_softmax(logits: "npt.NDArray[np.float32]") -> "npt.NDArray[np.float32]":
    shifted: npt.NDArray[np.float32] = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return shifted
