"""Precomputed inputs of the losses of a chunk of layers.

Heads of all layers of a chunk are stacked: H KV heads, N rows (query heads of the KV head times positions), M
quantized tokens. Tokens of the windows are exact, so that they enter by three constants a row and no step reads them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.quantize.windows import static_split
from producer.scheme.optr.torch_loader import load_torch
from producer.transform.centring import center_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from producer.numerics.arrays import Float32Array
    from producer.scheme.optr.options import Objective
    from producer.scheme.optr.torch_loader import Tensor
    from producer.scheme.registry import Scheme
    from producer.trace.layer import LayerTrace

__all__ = ["SequenceData", "prepare_metric", "prepare_sequence"]

#: Added to the scores of future tokens. Finite, so that its product with a weight of 0 is 0.
_HIDDEN = -1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceData:
    """One sequence of a chunk, float32.

    Attributes
    ----------
    q : Tensor, shape (H, N, d)
        Last queries times the scaling; rows in the order query head, position.
    k, v : Tensor, shape (H, M, d)
        Keys, centred where the start has a mean, and values of the quantized tokens.
    weights : Tensor, shape (H, N, M)
        Exact attention weights p of the quantized tokens.
    log_total : Tensor, shape (H, N)
        log Σ exp of the exact scores of all tokens, those of centred keys.
    window_weight : Tensor, shape (H, N)
        Σ p over the windows.
    window_readout, readout : Tensor, shape (H, N, d)
        Σ p v over the windows, and over all tokens.
    entropy : Tensor, shape (H,)
        Σ p log p over rows and quantized tokens.
    hidden : Tensor, shape (N, M), or None
        Added to scores, where a quantized token is in the future of a query.
    tokens : int
        Of the whole sequence.
    sha256 : str
        Of the arrays that went in.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    weights: Tensor
    log_total: Tensor
    window_weight: Tensor
    window_readout: Tensor
    readout: Tensor
    entropy: Tensor
    hidden: Tensor | None
    tokens: int
    sha256: str


_STACKED = (
    "q",
    "k",
    "v",
    "weights",
    "log_total",
    "window_weight",
    "window_readout",
    "readout",
    "entropy",
)


def prepare_sequence(
    layers: Iterable[LayerTrace],
    means: Sequence[Float32Array | None],
    scheme: Scheme,
    queries: int,
    device: str,
) -> SequenceData:
    """Return the constants of one sequence.

    Parameters
    ----------
    layers : iterable of LayerTrace
        The layers of the chunk, one after the other; one is held at a time.
    means : sequence of float32 arrays, shape (num_kv_heads, head_dim), or None
        Key mean of every layer.
    scheme : Scheme
        Its windows.
    queries : int
        Last positions.
    device : str

    Notes
    -----
    Scores, weights and sums in float64, rounded once. Centring the keys of the windows too leaves the weights as
    they are (section 4.1); only scores move, all by the same.
    """
    torch = load_torch()
    parts: list[dict[str, Tensor]] = []
    digest = hashlib.sha256()
    hidden, tokens = None, 0
    for layer, mean in zip(layers, means, strict=True):
        k = layer.k if mean is None else center_keys(layer.k, mean)
        tokens = layer.seq_len
        q = layer.q[:, tokens - queries :].reshape(layer.num_kv_heads, layer.group * queries, -1)
        for array in (q, k, layer.v):
            digest.update(np.ascontiguousarray(array).data)
        split = static_split(tokens, scheme.sink, scheme.recent)
        middle = slice(split.sink, split.sink + split.quantized)
        part, future = _constants(layer, q, k, middle, device)
        parts.append(part)
        hidden = future if bool((future != 0).any()) else None
    stacked: dict[str, Any] = {
        name: torch.cat([part[name] for part in parts]).to(torch.float32).contiguous() for name in _STACKED
    }
    return SequenceData(**stacked, hidden=hidden, tokens=tokens, sha256=digest.hexdigest())


def _constants(
    layer: LayerTrace, q: Float32Array, k: Float32Array, middle: slice, device: str
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the constants of one layer, and what hides future tokens among the quantized ones."""
    torch = load_torch()
    wide_q, wide_k, wide_v = (
        torch.from_numpy(np.array(array)).to(device=device, dtype=torch.float64) for array in (q, k, layer.v)
    )
    wide_q *= layer.scaling
    tokens, queries = layer.seq_len, q.shape[1] // layer.group
    positions = torch.arange(tokens, device=device)
    future = (positions[None, :] > positions[tokens - queries :, None]).repeat(layer.group, 1)
    hidden = torch.where(future, _HIDDEN, 0.0).to(torch.float64)
    scores = wide_q @ wide_k.mT + hidden
    log_total = scores.logsumexp(dim=-1)
    log_p = scores - log_total[..., None]
    p = log_p.exp()
    readout = p @ wide_v
    inside = p[..., middle]
    part = {
        "q": wide_q,
        "k": wide_k[:, middle],
        "v": wide_v[:, middle],
        "weights": inside,
        "log_total": log_total,
        "window_weight": p.sum(dim=-1) - inside.sum(dim=-1),
        "window_readout": readout - inside @ wide_v[:, middle],
        "readout": readout,
        "entropy": (inside * log_p[..., middle]).sum(dim=(-1, -2)),
    }
    part["window_weight"].clamp_(min=0)
    narrow = {name: value.to(torch.float32) if value.ndim == 3 else value for name, value in part.items()}
    return narrow, hidden[:, middle].to(torch.float32)


def prepare_metric(layers: Iterable[LayerTrace], objective: Objective, device: str) -> Tensor:
    """Return G of every query head, so that the error e of a readout costs e G eᵀ, float32, shape (H, group, d, d).

    Notes
    -----
    W Wᵀ/d_model for the attention output: ‖e W‖²/d_model = e (W Wᵀ/d_model) eᵀ, with d² numbers in the place
    of d·d_model. I/d for the readout before W_O, and 0 for the cache objective, whose error term is no readout's.
    """
    torch = load_torch()
    metrics = []
    for layer in layers:
        if layer.w_o is None:
            raise SpecError(f"layer {layer.layer_idx}: there are no output weights, so no output error")
        heads, head_dim, hidden_size = layer.w_o.shape
        if objective == "output":
            w = layer.w_o.astype(np.float64)
            metric = w @ w.swapaxes(-1, -2) / hidden_size
        else:
            scale = 1.0 / head_dim if objective == "readout" else 0.0
            metric = np.broadcast_to(scale * np.eye(head_dim), (heads, head_dim, head_dim))
        metrics.append(metric.reshape(layer.num_kv_heads, layer.group, head_dim, head_dim))
    return torch.from_numpy(np.concatenate(metrics)).to(device=device, dtype=torch.float32)
