"""Chunked reading of a packed body: an online softmax, and products with codes that stay codes until then.

For two-bit codes with one scale a group along the channels, q·k = Σ_g scale_g (q_g·c_g) plus a term of the group's
zero point or minimum and Σ q_g. So codes are multiplied as they are, four planes of a byte at a time, their place in
the byte folded into the query as a power of two. Anything else is decoded, a chunk at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer.cache.libraries import Tensor, load_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer.cache.encoder import SideEncoder
    from producer.cache.rows import Rows

__all__ = ["CHUNK", "BodyReader", "Softmax", "reads_codes"]

torch, _ = load_libraries()

#: Tokens that are decoded at a time: three heads of 64 channels are then 0.8 MB in float32.
CHUNK = 1024
_MASKS = (3, 12, 48, 192)


class Softmax:
    """An attention output that grows part by part: running maximum, weights and weighted values.

    Parameters
    ----------
    query : Tensor, shape (rows, num_heads, queries, head_dim)
    num_kv_heads : int
    scaling : float
    softcap : float, optional
    """

    def __init__(
        self, query: Tensor, num_kv_heads: int, scaling: float, softcap: float | None = None
    ) -> None:
        rows, heads, count, channels = query.shape
        self._dtype = query.dtype
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        self.group, self.count = heads // num_kv_heads, count
        #: (rows, num_kv_heads, group·queries, head_dim), scaled.
        self.query = query.to(wide).reshape(rows, num_kv_heads, self.group * count, channels) * scaling
        self.softcap = softcap
        self.top: Tensor = None
        self.total: Tensor = None
        self.plain: Tensor = None
        self.coded: Tensor = None

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return weights exp(score - maximum) of a part, and bring the earlier parts to the new maximum."""
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if mask is not None:
            shape = (*scores.shape[:2], self.group, self.count, scores.shape[3])
            hidden = ~mask[:, :, None] if mask.ndim == 4 else ~mask
            scores = scores.view(shape).masked_fill(hidden, -torch.inf).view(scores.shape)
        top = scores.amax(dim=-1, keepdim=True)
        if self.top is not None:
            top = torch.maximum(top, self.top)
        # A query that reads nothing yet keeps -inf, from which nothing may be subtracted.
        safe = top if mask is None else top.clamp(min=torch.finfo(top.dtype).min)
        weights = (scores - safe).exp_()
        if self.top is None:
            self.total = weights.sum(dim=-1, keepdim=True)
        else:
            shrink = (self.top - safe).exp_()
            self.total = self.total * shrink + weights.sum(dim=-1, keepdim=True)
            for name in ("plain", "coded"):
                if getattr(self, name) is not None:
                    setattr(self, name, getattr(self, name) * shrink)
        self.top = safe
        return weights

    def add(self, keys: Tensor, values: Tensor, mask: Tensor) -> None:
        """Add tokens that are there in full, (rows, num_kv_heads, tokens, head_dim)."""
        if not keys.shape[2]:
            return
        weights = self.weigh(self.query @ keys.to(self.query.dtype).transpose(-1, -2), mask)
        self.gather("plain", weights @ values.to(self.query.dtype))

    def gather(self, name: str, output: Tensor) -> None:
        """Add weighted values, in the model's coordinates ("plain") or as they are coded ("coded")."""
        held = getattr(self, name)
        setattr(self, name, output if held is None else held + output)

    def output(self, s_aux: Tensor = None, undo: Any = None) -> Tensor:
        """Return the output, (rows, num_heads, queries, head_dim); `undo` takes coded values to model coordinates."""
        total, found = self.total, self.plain
        if self.coded is not None:
            coded = self.coded if undo is None else undo(self.coded)
            found = coded if found is None else found + coded
        if s_aux is not None:
            extra = s_aux.to(total.dtype).reshape(total.shape[1], self.group, 1).expand(-1, -1, self.count)
            extra = extra.reshape(1, total.shape[1], self.group * self.count, 1)
            total = total + (extra - self.top).exp()
        # Queries of padding read nothing: 0 rather than 0/0.
        found = found / torch.where(total == 0, torch.ones_like(total), total)
        rows, heads, _, channels = found.shape
        return found.view(rows, heads * self.group, self.count, channels).to(self._dtype)


def reads_codes(encoder: SideEncoder) -> bool:
    """Return whether products are taken with the codes themselves: two bits, groups along channels, an affine level."""
    numerics = encoder.dialect.numerics
    return (
        numerics.bits == 2
        and numerics.group_axis == "channels"
        and numerics.zero_point in {"float", "integer", "minimum"}
        and numerics.packing in {"consecutive", "int32", "quartered"}
    )


class BodyReader:
    """The body of sequences, read by chunks in their coded coordinates.

    Parameters
    ----------
    rows : Rows
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._direct = {side: reads_codes(encoder) for side, encoder in rows.encoders.items()}
        self._query: tuple[Any, dict[str, Tensor]] | None = None

    def chunks(self, tokens: int) -> Iterator[tuple[int, int]]:
        """Give bounds of chunks of the first tokens of the body."""
        for start in range(0, tokens, CHUNK):
            yield start, min(start + CHUNK, tokens)

    def add(self, state: Softmax, start: int, stop: int, mask: Tensor) -> None:
        """Add tokens `start` … `stop` of the body to an output."""
        query = self._prepared(state)
        key, value = (self._part(side, start, stop) for side in ("key", "value"))
        scores = self._scores(query, *key)
        if "mean" in query:
            scores = scores + query["mean"]
        weights = state.weigh(scores, mask)
        state.gather("coded", self._weighted(weights, *value))

    def undo(self, coded: Tensor) -> Tensor:
        """Return weighted coded values in the model's coordinates."""
        encoder = self._rows.encoders["value"]
        if self._direct["value"]:
            coded = self._from_planes(coded)
        if encoder.transform.kind == "identity":
            return coded
        return coded @ _matrix(encoder.transform.inverses, coded)

    def _part(self, side: str, start: int, stop: int) -> tuple[Tensor, Tensor]:
        unit = self._rows.encoders[side].unit
        place = slice(start // unit, stop // unit)
        return self._rows.codes[side][:, :, place], self._rows.metadata[side][:, :, place]

    def _prepared(self, state: Softmax) -> dict[str, Tensor]:
        """Return the query in coded coordinates, once a state."""
        if self._query is not None and self._query[0] is state:
            return self._query[1]
        encoder, query = self._rows.encoders["key"], state.query
        found: dict[str, Tensor] = {}
        if encoder.mean is not None:
            found["mean"] = query @ torch.from_numpy(encoder.mean).to(query)[:, :, None]
        if encoder.transform.kind != "identity":
            query = query @ _matrix(encoder.transform.inverses, query).transpose(-1, -2)
        found["query"] = query
        if self._direct["key"]:
            size = encoder.group_size
            groups = query.unflatten(-1, (-1, size))
            found["sums"] = groups.sum(dim=-1)
            # One copy of the query for each group, zero in the others.
            spread = torch.diag_embed(groups.transpose(-1, -2), dim1=-3, dim2=-2)
            found["planes"] = _to_planes(spread.flatten(-2), encoder)
        self._query = (state, found)
        return found

    def _scores(self, query: dict[str, Tensor], codes: Tensor, metadata: Tensor) -> Tensor:
        encoder = self._rows.encoders["key"]
        if not self._direct["key"]:
            keys = encoder.decode(codes, metadata, query["query"].dtype)
            return query["query"] @ keys.transpose(-1, -2)
        numbers = _planes(codes, query["planes"].dtype)
        scalars = metadata.to(numbers.dtype).unflatten(-1, (-1, 2))
        # By rows, heads, queries, groups and tokens.
        dots = query["planes"].flatten(2, 3) @ numbers.transpose(-1, -2)
        dots = dots.unflatten(2, query["sums"].shape[2:])
        scale, other = (scalars[..., index].transpose(-1, -2)[:, :, None] for index in (0, 1))
        sums = query["sums"][..., None]
        if encoder.dialect.numerics.zero_point == "minimum":
            found = dots * scale + other * sums
        else:
            found = (dots - other * sums) * scale
        return found[:, :, :, 0] if found.shape[3] == 1 else found.sum(dim=3)

    def _weighted(self, weights: Tensor, codes: Tensor, metadata: Tensor) -> Tensor:
        encoder = self._rows.encoders["value"]
        if not self._direct["value"]:
            return weights @ encoder.decode(codes, metadata, weights.dtype)
        numbers = _planes(codes, weights.dtype)
        scalars = metadata.to(weights.dtype).unflatten(-1, (-1, 2))
        scale, other = (scalars[..., index].transpose(-1, -2)[:, :, None] for index in (0, 1))
        # By rows, heads, queries, groups and tokens: each group weighs the codes by its own scale.
        scaled = weights[:, :, :, None] * scale
        products = (scaled.flatten(2, 3) @ numbers).unflatten(2, scaled.shape[2:4])
        if encoder.dialect.numerics.zero_point == "minimum":
            constant = (weights[:, :, :, None] * other).sum(dim=-1)
        else:
            constant = -(scaled * other).sum(dim=-1)
        # The constants ride along as one more column; `_from_planes` puts both together.
        return torch.cat([products, constant[..., None]], dim=-1).flatten(-2)

    def _from_planes(self, coded: Tensor) -> Tensor:
        encoder = self._rows.encoders["value"]
        size, groups = encoder.group_size, encoder.transform.head_dim // encoder.group_size
        coded = coded.unflatten(-1, (groups, -1))
        products, constant = coded[..., :-1], coded[..., -1:]
        channels = _channels(products, encoder)
        own = channels.unflatten(-1, (groups, size)).diagonal(dim1=3, dim2=4).transpose(-1, -2)
        return (own + constant).flatten(-2)


def _matrix(matrices: Any, like: Tensor) -> Tensor:
    return torch.tensor(matrices, dtype=like.dtype, device=like.device)


def _planes(codes: Tensor, dtype: Any) -> Tensor:
    """Return the four planes of bytes (…, tokens, bytes) side by side, each a code times 4 to its place in the byte."""
    out = torch.empty((*codes.shape[:-1], 4, codes.shape[-1]), dtype=dtype, device=codes.device)
    for index, mask in enumerate(_MASKS):
        out[..., index, :] = codes & mask
    return out.flatten(-2)


def _to_planes(query: Tensor, encoder: SideEncoder) -> Tensor:
    """Return channels (…, head_dim) in the order of `_planes`, divided by 4 to the place in the byte."""
    axis = -2 if encoder.dialect.numerics.packing == "quartered" else -1
    shape = (4, -1) if axis == -2 else (-1, 4)
    lanes = query.unflatten(-1, shape)
    if axis == -1:
        lanes = lanes.transpose(-1, -2)
    return (lanes / _powers(query)).flatten(-2)


def _channels(planes: Tensor, encoder: SideEncoder) -> Tensor:
    """Return sums over codes in the order of the channels: the inverse of `_to_planes` for outputs."""
    lanes = planes.unflatten(-1, (4, -1)) / _powers(planes)
    if encoder.dialect.numerics.packing != "quartered":
        lanes = lanes.transpose(-1, -2)
    return lanes.flatten(-2)


def _powers(like: Tensor) -> Tensor:
    return torch.tensor([1.0, 4.0, 16.0, 64.0], dtype=like.dtype, device=like.device)[:, None]
