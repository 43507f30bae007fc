"""Perplexity, divergence and residual-stream error of a model with the quantized cache in use.

Every query reads the quantized form of a token once the token has left the recent window, and its exact form before,
as in decode with a window of exactly `recent` tokens. One forward pass gives that, because what a layer caches for a
token depends on earlier tokens only. A prefill that attends to its own unquantized keys and values would not: it never
reads the cache, so its perplexity holds no quantization error, and none is offered here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.experiment.trace.decode import decode_hidden
from producer.trace.model import LoadedModel, logits_of, run_hidden, to_numpy, use_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.scheme.fitted_layer import FittedLayer

__all__ = ["ModelErrors", "ModelReference", "windowed_attention"]

# Queries whose scores are held at a time. Fewer waste less on the columns of the window's edge, which are computed
# exact and quantized; more make larger products.
_CHUNK = 256
# Positions whose predictions over the whole vocabulary are held at a time: 50 MB at 49152 words.
_POSITIONS = 256


@dataclass(frozen=True, slots=True)
class ModelErrors:
    """What a scheme does to a model on one sequence.

    Attributes
    ----------
    perplexity, reference_perplexity : float
        Over the tokens from `first` on, with the scheme and without.
    divergence : float
        Mean KL of the predicted distributions, in nats.
    top1_agreement : float
        Share of the predictions whose likeliest token is the one without the scheme.
    residual : float64, shape (layers,)
        Σ‖h̃ - h‖²/Σ‖h‖² of the hidden states after each layer, over all tokens.
    first, tokens : int
    """

    perplexity: float
    reference_perplexity: float
    divergence: float
    top1_agreement: float
    residual: Float64Array
    first: int
    tokens: int


def windowed_attention(
    q: Any,
    exact: tuple[Any, Any],
    quantized: tuple[Any, Any],
    scaling: float,
    sink: int,
    recent: int,
    flush: int = 1,
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
    flush : int
        Tokens leave the recent window in blocks that end at multiples of it: with more than 1 a query reads token s
        exactly when s < sink or s ≥ F·⌊(t + 1 - recent)/F⌋.

    Returns
    -------
    torch float32, shape of `q`

    Notes
    -----
    Of queries a … b - 1 none reads a token of sink … a - recent exactly, and none one from b - recent on quantized. So
    their row of scores has three parts: the sink, quantized tokens up to b - recent, exact ones from a - recent + 1 on
    (both bounds rounded down to a multiple of F).
    The few that are in both are hidden once, by the query; one softmax is taken over the whole row.
    """
    import torch  # noqa: PLC0415 - an extra

    length = q.shape[2]
    places = torch.arange(length, device=q.device)
    parts = []
    for first in range(0, length, _CHUNK):
        end = min(first + _CHUNK, length)
        near = max(min(sink, end), (first - recent + 1) // flush * flush)
        far = (end - recent) // flush * flush
        spans = ((0, min(sink, near)), (sink, max(sink, far)), (near, end))
        keys, values = (
            torch.cat(
                [
                    pair[:, :, start:stop]
                    for pair, (start, stop) in zip((own, other, own), spans, strict=True)
                ],
                dim=2,
            )
            for own, other in zip(exact, quantized, strict=True)
        )
        columns = torch.cat([places[start:stop] for start, stop in spans])
        is_quantized = torch.zeros(columns.shape, dtype=torch.bool, device=q.device)
        is_quantized[spans[0][1] : columns.shape[0] - (end - near)] = True
        rows = places[first:end, None]
        edges = (rows + 1 - recent).div(flush, rounding_mode="floor") * flush
        is_read = (columns < sink) | ((columns >= edges) != is_quantized)
        mask = is_read & (columns <= rows)
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                q[:, :, first:end], keys, values, attn_mask=mask, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(parts, dim=2)


class ModelReference:
    """A model without quantization on one sequence: what every scheme on that sequence is compared with.

    Parameters
    ----------
    loaded : LoadedModel
    token_ids : int32, shape (tokens,)
    first : int
        First token that is scored; earlier ones read few quantized tokens, or none.

    Notes
    -----
    One pass of the model. Kept are its log probabilities of the scored positions, float32, (tokens - first,
    vocabulary), and the residual stream after each layer.
    """

    def __init__(self, loaded: LoadedModel, token_ids: npt.NDArray[np.int32], first: int = 512) -> None:
        self._loaded, self._ids, self._first = loaded, token_ids, first
        if not 1 <= first < token_ids.size:
            raise SpecError(f"first scored token {first} is not allowed: 1 … {token_ids.size - 1}")
        layers: list[Float32Array] = []
        final = run_hidden(loaded, token_ids, lambda _, states: layers.append(states.copy()))
        self._layers = layers
        self._norms = [np.square(states, dtype=np.float64).sum() for states in layers]
        parts = self._predictions(final)
        _, one = next(parts)
        self._log_p = np.empty((token_ids.size - first, one.shape[1]), dtype=np.float32)
        self._log_p[: len(one)] = one
        for place, part in parts:
            self._log_p[place] = part
        self._likelihood = float(self._of_targets(self._log_p).mean())

    @property
    def perplexity(self) -> float:
        """Over the scored tokens, without quantization."""
        return math.exp(-self._likelihood)

    def errors(
        self,
        fitted: Sequence[FittedLayer] | Mapping[int, FittedLayer],
        passed: Callable[[int], None] | None = None,
        *,
        flush: int = 1,
        is_decoded: bool = False,
    ) -> ModelErrors:
        """Return what a scheme, fitted to all layers, does to the model on this sequence.

        Parameters
        ----------
        fitted : sequence, or mapping of int, to FittedLayer
        passed : callable, optional
            Is told the index of each layer that the run has passed.
        flush : int
            Tokens that leave the recent window at once; see `windowed_attention`.
        is_decoded : bool
            Whether the model decodes token by token with a packed cache (`producer.cache`), from the token before the
            first that is scored, in place of one pass that simulates it.

        Raises
        ------
        SpecError
            If no scored token would read a quantized one: that is no measurement of a quantized cache.
        """
        windows = fitted[0].scheme.sink + fitted[0].scheme.recent
        if not windows < self._first:
            raise SpecError(
                f"tokens {self._first} … {self._ids.size} are not allowed: cache not exercised before token "
                f"{windows + 1}"
            )
        residual = np.zeros(len(self._layers))

        def compare(layer_idx: int, states: Float32Array) -> None:
            difference = np.square(states - self._layers[layer_idx], dtype=np.float64).sum()
            residual[layer_idx] = difference / self._norms[layer_idx]
            if passed is not None:
                passed(layer_idx)

        if is_decoded:
            final = decode_hidden(self._loaded, self._ids, fitted, (self._first - 1, flush), compare)
        else:
            with use_attention(self._loaded, _attention_of(fitted, flush)):
                final = run_hidden(self._loaded, self._ids, compare)
        likelihoods, divergences, agreements = [], [], []
        for place, log_q in self._predictions(final):
            log_p = self._log_p[place]
            likelihoods.append(self._of_targets(log_q, place))
            divergences.append((np.exp(log_p) * (log_p - log_q)).sum(axis=1, dtype=np.float64))
            agreements.append(log_p.argmax(axis=1) == log_q.argmax(axis=1))
        return ModelErrors(
            perplexity=math.exp(-np.concatenate(likelihoods).mean()),
            reference_perplexity=self.perplexity,
            divergence=float(np.concatenate(divergences).mean()),
            top1_agreement=float(np.concatenate(agreements).mean()),
            residual=residual,
            first=self._first,
            tokens=self._ids.size,
        )

    def _predictions(self, final: Any) -> Iterator[tuple[slice, Float32Array]]:
        """Give log probabilities of the scored tokens, some positions at a time, with their place."""
        count = self._ids.size - self._first
        for start in range(0, count, _POSITIONS):
            place = slice(start, min(start + _POSITIONS, count))
            # The prediction of a token is made at the position before it.
            logits = logits_of(
                self._loaded, final[self._first - 1 + place.start : self._first - 1 + place.stop]
            )
            yield place, _log_softmax(logits)

    def _of_targets(self, log_q: Float32Array, place: slice = slice(None)) -> Float64Array:
        """Return the log probabilities of the tokens that came."""
        targets = self._ids[self._first :][place].astype(np.int64)
        taken = np.take_along_axis(log_q, targets[:, None], axis=1)[:, 0]
        return taken.astype(np.float64)


def _attention_of(fitted: Any, flush: int) -> Any:
    """Return the attention hook of a scheme that is fitted to all layers."""

    def attend(layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        import torch  # noqa: PLC0415 - an extra

        layer = fitted[layer_idx]
        keys, values = layer.quantize_all(to_numpy(k[0]), to_numpy(v[0]))
        quantized = torch.from_numpy(keys)[None].to(k), torch.from_numpy(values)[None].to(v)
        if torch.equal(quantized[0], k) and torch.equal(quantized[1], v):
            raise SpecError(f"layer {layer_idx}: the quantized cache is the exact one: nothing was quantized")
        scheme = layer.scheme
        return windowed_attention(q, (k, v), quantized, scaling, scheme.sink, scheme.recent, flush)

    return attend


def _log_softmax(logits: Float32Array) -> Float32Array:
    """Return log softmax along the last axis; the logits are used up."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return logits
