"""Attention-output error of a scheme on a layer, by KV head, over the last queries of a sequence.

The error of a query head is split as in the OptR paper, equation 8: a key part, from attention weights that the
quantized keys changed, and a value part, from quantized values under those weights. The two add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.trace.attention import HIDDEN, last_future, softmax
from producer.trace.layer import LAST_QUERIES

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array, Float64Array
from producer.trace.layer import LayerTrace

__all__ = ["HeadErrors", "OutputErrors", "last_outputs"]

_SUMS = ("error", "key_part", "value_part", "cross_part", "reference", "divergence")


@dataclass(frozen=True, slots=True)
class HeadErrors:
    """Sums over the query heads of each KV head and the last queries, float64, shape (num_kv_heads,).

    Attributes
    ----------
    error : Σ ‖Δy‖²
    key_part : Σ ‖δy_K‖²
    value_part : Σ ‖δy_V‖²
    cross_part : 2 Σ ⟨δy_K, δy_V⟩; error = key_part + value_part + cross_part
    reference : Σ ‖y‖²
    divergence : Σ KL(p ‖ p̃), in nats
    queries : int
        Terms of each sum.
    """

    error: Float64Array
    key_part: Float64Array
    value_part: Float64Array
    cross_part: Float64Array
    reference: Float64Array
    divergence: Float64Array
    queries: int


def _log_weights(
    q: Float64Array, k: Float64Array, future: npt.NDArray[np.bool_], scaling: float
) -> Float64Array:
    """Return log softmax of masked scores, float64, shape (queries, tokens)."""
    scores = q @ k.T
    scores *= scaling
    # Future tokens are among the last ones alone.
    first = scores.shape[1] - future.shape[1]
    scores[:, first:][future] += HIDDEN
    scores -= scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


class OutputErrors:
    """The errors of one layer and sequence, for as many caches as are asked: what they share is computed once.

    Parameters
    ----------
    layer : LayerTrace
        With output weights.
    num_queries : int
        Last positions, at most the number of tokens.

    Raises
    ------
    SpecError
        If the layer has no output weights, or there are fewer tokens than queries.
    """

    def __init__(self, layer: LayerTrace, num_queries: int = LAST_QUERIES) -> None:
        if layer.w_o is None:
            raise SpecError(f"layer {layer.layer_idx}: there are no output weights, so no output error")
        if not 1 <= num_queries <= layer.seq_len:
            raise SpecError(f"{num_queries} queries are not allowed: 1 … {layer.seq_len}, the tokens")
        self._layer = layer
        self._queries = num_queries
        first = layer.seq_len - num_queries
        self._future = np.tile(last_future(layer.seq_len, num_queries)[:, first:], (layer.group, 1))
        by_head = layer.q[:, first:].reshape(layer.num_kv_heads, layer.group * num_queries, -1)
        self._q = by_head.astype(np.float64)
        self._w_o = layer.w_o.astype(np.float64).reshape(
            layer.num_kv_heads, layer.group, *layer.w_o.shape[1:]
        )
        self._v = layer.v.astype(np.float64)
        heads = range(layer.num_kv_heads)
        self._log_p = np.stack([self._log(head, layer.k) for head in heads])
        self._p = np.exp(self._log_p)
        exact = [self._project(head, self._p[head] @ self._v[head]) for head in heads]
        self._reference = [np.square(y).sum() for y in exact]

    def measure(self, keys: Float32Array, values: Float32Array) -> HeadErrors:
        """Return the errors when attention reads other keys and values (C1).

        Parameters
        ----------
        keys, values : float32, shape (num_kv_heads, tokens, head_dim)
            What attention reads in place of the layer's own, in the same coordinates.

        Raises
        ------
        SpecError
            If a shape is not the layer's.

        Notes
        -----
        With p the weights of k and p̃ those of k̃: y = p v W, ỹ = p̃ ṽ W, δy_K = (p̃ - p) v W, δy_V = p̃ (ṽ - v) W. Each
        query head by itself; heads are not summed before the norm. All in float64.
        """
        layer = self._layer
        if keys.shape != layer.k.shape or values.shape != layer.v.shape:
            raise SpecError(f"keys {keys.shape} and values {values.shape} are not allowed: {layer.k.shape}")
        sums = np.zeros((len(_SUMS), layer.num_kv_heads))
        for head in range(layer.num_kv_heads):
            log_other = self._log(head, keys)
            p, other = self._p[head], np.exp(log_other)
            v = self._v[head]
            key = self._project(head, (other - p) @ v)
            value = self._project(head, other @ (values[head] - v))
            sums[:, head] = [
                np.square(key + value).sum(),
                np.square(key).sum(),
                np.square(value).sum(),
                2 * np.vdot(key, value),
                self._reference[head],
                np.vdot(p, np.subtract(self._log_p[head], log_other, out=log_other)),
            ]
        return HeadErrors(**dict(zip(_SUMS, sums, strict=True)), queries=layer.group * self._queries)

    def _log(self, head: int, keys: Float32Array) -> Float64Array:
        """Return the log weights of the queries of a KV head."""
        return _log_weights(self._q[head], keys[head].astype(np.float64), self._future, self._layer.scaling)

    def _project(self, head: int, outputs: Float64Array) -> Float64Array:
        """Return head outputs (group·queries, head_dim) after W_O of their query heads."""
        shape = (self._layer.group, self._queries, outputs.shape[-1])
        projected: Float64Array = outputs.reshape(shape) @ self._w_o[head]
        return projected


def last_outputs(
    layer: LayerTrace, dtype: type[np.floating[Any]], num_queries: int = LAST_QUERIES
) -> npt.NDArray[np.floating[Any]]:
    """Return the projected outputs of the last queries, head by head, shape (num_heads, num_queries, hidden_size).

    Parameters
    ----------
    layer : LayerTrace
        With output weights.
    dtype : type
        Of all arithmetic and of the outputs: `numpy.float32` or `numpy.float64`.
    num_queries : int
        Last positions, at most the number of tokens.
    """
    first = layer.seq_len - num_queries
    k, v = (np.repeat(x, layer.group, axis=0).astype(dtype) for x in (layer.k, layer.v))
    scores = layer.q[:, first:].astype(dtype) @ k.swapaxes(-1, -2) * dtype(layer.scaling)
    scores[:, last_future(layer.seq_len, num_queries)] = -np.inf
    outputs: npt.NDArray[np.floating[Any]] = softmax(scores) @ v @ np.asarray(layer.w_o, dtype=dtype)
    return outputs
