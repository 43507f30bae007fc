"""Exact attention of the last queries of a sequence, taken apart into what its windows and its other tokens give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.quantize.windows import static_split
from producer.trace.attention import HIDDEN, last_future
from producer.trace.layer import LAST_QUERIES
from producer.transform.covariance import queries_by_kv_head

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.trace.layer import LayerTrace

__all__ = ["WindowAttention"]


class WindowAttention:
    """What the exact attention of a sequence's last queries is made of.

    Parameters
    ----------
    layer : LayerTrace
        With output weights.
    keys : float32, shape (num_kv_heads, tokens, head_dim)
        The layer's keys as they are stored: centred, if they are.
    sink, recent : int
        First and last tokens that stay unquantized.

    Attributes
    ----------
    shape : tuple of int
        num_kv_heads, query heads of one, queries.
    q : float32, shape (num_heads, queries, head_dim)
    keys, values : float32, shape (num_kv_heads, quantized, head_dim)
        Of the tokens between the windows.
    future : bool, shape (group·queries, quantized), or None
        Quantized tokens after the query; None where there are none.
    scores, p : float32, shape (num_kv_heads, group·queries, quantized)
        Scores, and weights, of the quantized tokens.
    top : float32, shape (num_kv_heads, group·queries, 1)
        The largest score of all tokens; exponentials are of scores less it.
    log_total, output : float64, shapes (num_kv_heads, group·queries, 1) and (…, head_dim)
        log Σ exp over all tokens, and the exact output before W_O.
    window_total, window_output : float64, as `log_total` and `output`
        Σ exp, and Σ exp·v, of the windows alone.
    gram : float64, shape (num_kv_heads, group, head_dim, head_dim)
        W Wᵀ/hidden_size of every query head.

    Notes
    -----
    Scores and weights in float32, sums over tokens in float64.
    """

    def __init__(self, layer: LayerTrace, keys: Float32Array, sink: int, recent: int) -> None:
        queries = min(LAST_QUERIES, layer.seq_len)
        self.shape = (layer.num_kv_heads, layer.group, queries)
        split = static_split(layer.seq_len, sink, recent)
        middle = slice(split.sink, split.sink + split.quantized)
        self.q = layer.q[:, layer.seq_len - queries :]
        future = np.tile(last_future(layer.seq_len, queries), (layer.group, 1))
        scores = (
            queries_by_kv_head(self.q, layer.num_kv_heads) @ keys.swapaxes(1, 2) * np.float32(layer.scaling)
        )
        scores[:, future] = HIDDEN
        self.future = future[:, middle] if future[:, middle].any() else None
        self.scaling = np.float32(layer.scaling)
        self.keys = np.ascontiguousarray(keys[:, middle])
        self.values = np.ascontiguousarray(layer.v[:, middle])
        self.top: Float32Array = scores.max(axis=-1, keepdims=True)
        self.scores = np.ascontiguousarray(scores[..., middle])
        raised = np.exp(scores - self.top)
        total = raised.sum(axis=-1, keepdims=True, dtype=np.float64)
        self.p: Float32Array = (raised[..., middle] / total).astype(np.float32)
        self.log_total: Float64Array = np.log(total)
        self.output: Float64Array = (raised @ layer.v).astype(np.float64) / total
        raised[..., middle] = 0
        self.window_total: Float64Array = raised.sum(axis=-1, keepdims=True, dtype=np.float64)
        self.window_output: Float64Array = (raised @ layer.v).astype(np.float64)
        wide = layer.w_o.astype(np.float64) if layer.w_o is not None else np.empty(0)
        gram = wide @ wide.swapaxes(1, 2) / wide.shape[2]
        self.gram: Float64Array = gram.reshape(layer.num_kv_heads, layer.group, *wide.shape[1:2] * 2)
