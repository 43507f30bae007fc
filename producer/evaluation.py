"""What a scheme does to the attention output of a layer, by KV head, over the last queries of a sequence.

The error of a query head is split as in the OptR paper, equation 8: a key part, from attention weights that the
quantized keys changed, and a value part, from quantized values under those weights. The two add up to the whole.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.arrays import Float32Array, Float64Array
    from producer.trace.data import LayerTrace

__all__ = ["LAST_QUERIES", "HeadErrors", "head_errors"]

#: Query positions at the end of a sequence over which errors are taken.
LAST_QUERIES = 64


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

    error: "Float64Array"
    key_part: "Float64Array"
    value_part: "Float64Array"
    cross_part: "Float64Array"
    reference: "Float64Array"
    divergence: "Float64Array"
    queries: int


def _log_weights(
    q: "Float64Array", k: "Float64Array", hidden: "Float64Array", scaling: float
) -> "Float64Array":
    """Return log softmax of masked scores, float64, shape (queries, tokens); masked ones are -inf."""
    scores = q @ k.T * scaling + hidden
    scores -= scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def head_errors(
    layer: "LayerTrace", keys: "Float32Array", values: "Float32Array", num_queries: int = LAST_QUERIES
) -> HeadErrors:
    """Return the errors of one layer and sequence when attention reads other keys and values (C1).

    Parameters
    ----------
    layer : LayerTrace
        With output weights.
    keys, values : float32, shape (num_kv_heads, tokens, head_dim)
        What attention reads in place of the layer's own, in the same coordinates.
    num_queries : int
        Last positions, at most the number of tokens.

    Raises
    ------
    SpecError
        If the layer has no output weights, shapes differ, or there are fewer tokens than queries.

    Notes
    -----
    With p the weights of k and p̃ those of k̃: y = p v W, ỹ = p̃ ṽ W, δy_K = (p̃ - p) v W, δy_V = p̃ (ṽ - v) W. Each query
    head by itself; heads are not summed before the norm. All in float64.
    """
    if layer.w_o is None:
        raise SpecError(f"layer {layer.layer_idx}: there are no output weights, so no output error")
    if keys.shape != layer.k.shape or values.shape != layer.v.shape:
        raise SpecError(f"keys {keys.shape} and values {values.shape} are not allowed: {layer.k.shape}")
    if not 1 <= num_queries <= layer.seq_len:
        raise SpecError(f"{num_queries} queries are not allowed: 1 … {layer.seq_len}, the tokens")
    first = layer.seq_len - num_queries
    future = np.arange(layer.seq_len)[None, :] > np.arange(first, layer.seq_len)[:, None]
    hidden = np.tile(np.where(future, -np.inf, 0.0), (layer.group, 1))
    sums = np.zeros((6, layer.num_kv_heads))
    for head in range(layer.num_kv_heads):
        mine = slice(head * layer.group, (head + 1) * layer.group)
        q = layer.q[mine, first:].reshape(-1, layer.q.shape[-1]).astype(np.float64)
        log_p = _log_weights(q, layer.k[head].astype(np.float64), hidden, layer.scaling)
        log_other = _log_weights(q, keys[head].astype(np.float64), hidden, layer.scaling)
        p, other = np.exp(log_p), np.exp(log_other)
        v = layer.v[head].astype(np.float64)
        by_head = (layer.group, num_queries, layer.v.shape[-1])
        weights = layer.w_o[mine].astype(np.float64)
        y, key, value = (
            x.reshape(by_head) @ weights
            for x in (p @ v, (other - p) @ v, other @ (values[head].astype(np.float64) - v))
        )
        divergence = np.where(p > 0, p * (np.where(p > 0, log_p, 0) - np.where(p > 0, log_other, 0)), 0)
        sums[:, head] = [
            np.square(key + value).sum(),
            np.square(key).sum(),
            np.square(value).sum(),
            2 * (key * value).sum(),
            np.square(y).sum(),
            divergence.sum(),
        ]
    error, key_part, value_part, cross_part, reference, total = sums
    return HeadErrors(error, key_part, value_part, cross_part, reference, total, layer.group * num_queries)
