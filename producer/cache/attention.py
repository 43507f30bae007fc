"""Attention that reads packed codes: each query its own form of every token, an online softmax over parts.

Registered with transformers under `PACKED`, with a mask function of the same name. Layers that hold nothing packed
(sliding windows, other caches, no cache) attend as `sdpa` does, or plainly where that knows no soft cap or sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer.cache.chunks import BodyReader, Softmax
from producer.cache.layer import HANDLE, PackedLayer
from producer.cache.libraries import Tensor, load_libraries
from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.cache.rows import Rows

__all__ = ["PACKED", "attend", "plain_attention", "register"]

torch, transformers = load_libraries()

#: Name of the attention implementation.
PACKED = "kvint2eval_packed"
#: Queries from which a body is decoded once for all of them, and not by chunks.
_MANY = 64
#: Queries whose scores are held at a time.
_BLOCK = 256
#: What a model may pass to its attention that is not known here.
_UNKNOWN = ("position_bias", "output_attentions")
#: Masks that were looked at; one mask goes to all layers of a forward.
_seen = torch.utils.weak.WeakIdKeyDictionary()


def register() -> None:
    """Register the attention and its mask; again changes nothing."""
    transformers.AttentionInterface.register(PACKED, attend)
    transformers.AttentionMaskInterface.register(PACKED, transformers.masking_utils.sdpa_mask)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return the attention output of a layer, (batch, tokens, num_heads, head_dim), and no weights.

    Raises
    ------
    SpecError
        If the model asks for something that is not known here, or the mask is not causal with left padding.
    """
    layer: PackedLayer | None = options.pop(HANDLE, None) or getattr(key, HANDLE, None)
    scaling = module.head_dim**-0.5 if scaling is None else scaling
    if layer is None:
        return _others(module, query, key, value, attention_mask, dropout, scaling, options), None
    _require_known(layer, dropout, options)
    _require_mask(layer, query, attention_mask)
    extras = {"softcap": options.get("softcap"), "s_aux": options.get("s_aux")}
    if extras["s_aux"] is None:
        extras["s_aux"] = getattr(module, "sinks", None)
    quantized = any(layer.windows.end(rows.length) > layer.windows.sink for _, _, rows in layer.groups)
    if not quantized and extras["softcap"] is None and extras["s_aux"] is None:
        # Nothing is quantized: the same call as without the cache, so the same bits.
        keys, values = (layer._whole(side).to(query.dtype) for side in ("key", "value"))  # noqa: SLF001
        return _others(module, query, keys, values, attention_mask, 0.0, scaling, options), None
    out = torch.zeros_like(query)
    for index, pads, rows in layer.groups:
        first = max(query.shape[2] - rows.length, 0)
        if first == query.shape[2]:
            continue
        own = query if index is None else query.index_select(0, index)
        found = _attend_rows(rows, own[:, :, first:], scaling, extras)
        if index is None and pads == 0:
            out = found
        elif index is None:
            out[:, :, first:] = found
        else:
            out[index, :, first:] = found
    layer.settle()
    return out.transpose(1, 2).contiguous(), None


def _require_known(layer: PackedLayer, dropout: float, options: dict[str, Any]) -> None:
    """Raise unless all that a model asks of its attention is computed here."""
    for name in _UNKNOWN:
        if options.get(name) is not None and options[name] is not False:
            raise SpecError(f"{name} is not allowed with packed attention: it is not computed here")
    if dropout:
        raise SpecError("dropout is not allowed with packed attention: call model.eval()")
    window = options.get("sliding_window")
    if window is not None and window < layer.cumulative_length:
        raise SpecError(f"sliding_window {window} is not allowed on a layer that is cached in full")


def _others(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    dropout: float,
    scaling: float,
    options: dict[str, Any],
) -> Tensor:
    """Return attention over keys that are there in full, as without this cache."""
    softcap, s_aux = options.get("softcap"), options.get("s_aux")
    s_aux = getattr(module, "sinks", None) if s_aux is None else s_aux
    if softcap is None and s_aux is None:
        sdpa = transformers.integrations.sdpa_attention.sdpa_attention_forward
        return sdpa(module, query, key, value, mask, dropout=dropout, scaling=scaling, **options)[0]
    if mask is None:
        spot = torch.arange(key.shape[2], device=key.device)
        mask = spot <= spot[key.shape[2] - query.shape[2] :, None]
    return plain_attention(query, key, value, mask, scaling, softcap, s_aux).transpose(1, 2).contiguous()


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None = None,
    s_aux: Tensor = None,
) -> Tensor:
    """Return attention with a soft cap and learned sinks, (rows, num_heads, queries, head_dim).

    Parameters
    ----------
    query : Tensor, shape (rows, num_heads, queries, head_dim)
    key, value : Tensor, shape (rows, num_kv_heads, tokens, head_dim)
    mask : Tensor, bool
        Broadcasts to (rows, 1, queries, tokens); True where a query may read.
    scaling : float
    softcap : float, optional
        c: scores become c·tanh(score/c).
    s_aux : Tensor, shape (num_heads,), optional
        A score beside those of the tokens, whose weight reads nothing.
    """
    state = Softmax(query, key.shape[1], scaling, softcap)
    state.add(key, value, mask if mask.ndim == 4 else mask[None, None])
    return state.output(s_aux)


def _require_mask(layer: PackedLayer, query: Tensor, mask: Tensor) -> None:
    """Raise unless a mask is causal, with the left padding that the cache knows of; once for all layers."""
    padding = layer.padding
    known = (layer.cumulative_length, query.shape[2], padding)
    if mask is not None and _seen.get(mask) == known:
        return
    if mask is None:
        if padding is not None and any(padding):
            raise SpecError("no attention mask is allowed only without padding: this cache has padded rows")
        return
    length, count = layer.cumulative_length, query.shape[2]
    pads = torch.tensor(padding or (0,) * query.shape[0], device=mask.device)
    spot = torch.arange(length, device=mask.device)
    expected = (spot <= spot[length - count :, None]) & (spot >= pads[:, None, None])
    found = mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] == 0
    if mask.shape[-2:] == expected.shape[-2:] and bool((found == expected).all()):
        _seen[mask] = known
        return
    raise SpecError(
        "this attention mask is not allowed with a packed cache: causal, with left padding alone, and the padding told "
        "to the cache before its first token: cache.set_padding(attention_mask)"
    )


def _attend_rows(rows: Rows, query: Tensor, scaling: float, extras: dict[str, Any]) -> Tensor:
    """Return attention of the last tokens of sequences, each query reading its own form of every token."""
    count, length = query.shape[2], rows.length
    rows.encode_to(rows.windows.end(length))
    if count >= _MANY and extras["softcap"] is None and extras["s_aux"] is None:
        return _attend_many(rows, query, scaling)
    parts, reader = [], BodyReader(rows)
    block = max(1, min(count, _BLOCK))
    for first in range(0, count, block):
        part = query[:, :, first : first + block]
        parts.append(_attend_block(rows, reader, part, length - count + first, scaling, extras))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _ends(rows: Rows, first: int, count: int, device: Any) -> tuple[Tensor, Tensor]:
    """Return the positions of queries and of the first token that each reads exact, shape (count, 1)."""
    places = torch.arange(first, first + count, device=device)[:, None]
    flush, recent = rows.windows.flush, rows.windows.recent
    ends = ((places + 1 - recent).div(flush, rounding_mode="floor") * flush).clamp(min=rows.windows.sink)
    return places, ends


def _attend_block(
    rows: Rows, reader: BodyReader, query: Tensor, first: int, scaling: float, extras: dict[str, Any]
) -> Tensor:
    """Return attention of queries at positions `first` …, by chunks of the body."""
    count = query.shape[2]
    windows, device = rows.windows, query.device
    low, high = windows.end(first + 1), windows.end(first + count)
    state = Softmax(query, rows.exact["key"].shape[1], scaling, extras["softcap"])
    places, ends = _ends(rows, first, count, device)
    # The sink, then exact tokens of which the later queries read the stored form of the first few.
    cut = rows.sink + max(low - rows.start, 0)
    keys, values = (
        torch.cat([held[:, :, : rows.sink], held[:, :, cut:]], dim=2) if cut > rows.sink else held
        for held in (rows.exact["key"], rows.exact["value"])
    )
    mask = None
    if count > 1:
        at = torch.arange(keys.shape[2], device=device)
        at = torch.where(at < rows.sink, at, at - rows.sink + max(low, rows.start))
        mask = ((at < windows.sink) | (at >= ends)) & (at <= places)
    state.add(keys.to(query.dtype), values.to(query.dtype), None if mask is None else mask[None, None])
    for start, stop in reader.chunks(high - windows.sink):
        mask = None
        if stop + windows.sink > low:
            at = torch.arange(start, stop, device=device) + windows.sink
            mask = (at < ends)[None, None]
        reader.add(state, start, stop, mask)
    return state.output(extras["s_aux"], reader.undo)


def _attend_many(rows: Rows, query: Tensor, scaling: float) -> Tensor:
    """Return attention of many queries: the body is decoded once for all of them."""
    windows, count = rows.windows, query.shape[2]
    before = rows.length - count
    exact, stored = ({}, {})
    for side in ("key", "value"):
        exact[side] = rows.exact[side].to(query.dtype)
        if rows.body:
            stored[side] = rows.restored(side, rows.stored).to(query.dtype)
    group = query.shape[1] // exact["key"].shape[1]
    parts = []
    for first in range(0, count, _BLOCK):
        part = query[:, :, first : first + _BLOCK]
        start, stop = before + first, before + first + part.shape[2]
        low, high = windows.end(start + 1), windows.end(stop)
        places, ends = _ends(rows, start, part.shape[2], query.device)
        near = slice(rows.sink + max(low - rows.start, 0), rows.sink + max(stop - rows.start, 0))
        at = [torch.arange(min(rows.sink, stop), device=query.device)]
        at.append(torch.arange(max(low, rows.start), stop, device=query.device))
        mask = [at[0] <= places, (at[1] >= ends) & (at[1] <= places)]
        if high > windows.sink:
            at.append(torch.arange(windows.sink, high, device=query.device))
            mask.append(at[2] < ends)
        sides = []
        for side in ("key", "value"):
            held = [exact[side][:, :, : len(at[0])], exact[side][:, :, near]]
            if high > windows.sink:
                held.append(stored[side][:, :, : high - windows.sink])
            sides.append(torch.cat(held, dim=2).repeat_interleave(group, dim=1))
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                part, *sides, attn_mask=torch.cat(mask, dim=1), scale=scaling
            )
        )
    return torch.cat(parts, dim=2)
