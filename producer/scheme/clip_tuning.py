"""Clip ratios chosen by KV head: each side's ratio is the one of a grid with the least calibration objective.

The objectives are those that OptR trains with (its equations 14 and 16): for keys KL(p ‖ p̃) + ‖δy_K‖²/hidden_size,
then for values ‖δy_V‖²/hidden_size under the weights of the keys so quantized; means over the last queries of every
calibration sequence and the query heads of a KV head.
"""

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize import get_dialect
from producer.quantize.heads import quantize_heads
from producer.quantize.windows import static_split
from producer.trace.layer import LAST_QUERIES
from producer.transform.centring import center_keys
from producer.transform.covariance import queries_by_kv_head
from producer.transform.transform_file import SIDES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.quantize import Dialect
    from producer.scheme.registry import Scheme
    from producer.trace.layer import LayerTrace
    from producer.transform.transform_file import LayerTransforms

__all__ = ["GRIDS", "clip_grid", "lowest_clips", "tune_clips"]

_RANGE = tuple(round(0.05 * step, 2) for step in range(8, 21))
_ORDER = (0.0, *(round(0.02 * step, 2) for step in range(40, 51)))

#: Ratios by the meaning of a clip: of the range 0.4 … 1, of the row's order 0.8 … 1, and 0, which is no clip.
GRIDS: dict[str, tuple[float, ...]] = {
    "midpoint-shrink": _RANGE,
    "range-multiplier": _RANGE,
    "order-statistic": _ORDER,
    "binary-search": _ORDER,
}

_HIDDEN = np.float32(-1e30)


def clip_grid(name: str) -> tuple[float, ...]:
    """Return the clip ratios that are tried with a dialect.

    Raises
    ------
    SpecError
        If the dialect has no clip, or its groups run along tokens.
    """
    numerics = get_dialect(name).numerics
    if numerics.clip_kind not in GRIDS or numerics.group_axis != "channels":
        raise SpecError(
            f"dialect {name!r} is not allowed with tuned clips: one whose groups run along channels, with a clip"
        )
    return GRIDS[numerics.clip_kind]


def lowest_clips(name: str, clips: tuple[float, ...]) -> list[int]:
    """Return the heads whose ratio is the lowest of the grid that clips at all: theirs may be lower still."""
    lowest = min(ratio for ratio in clip_grid(name) if ratio > 0)
    return [head for head, ratio in enumerate(clips) if ratio == lowest]


def tune_clips(
    scheme: "Scheme", rotations: "LayerTransforms", calibration: "Sequence[LayerTrace]"
) -> "tuple[tuple[float, ...], tuple[float, ...]]":
    """Return the clip ratios of keys and of values by KV head.

    Parameters
    ----------
    scheme : Scheme
        Its dialects, group size and windows.
    rotations : LayerTransforms
        The layer's transforms, key mean and factors of error feedback.
    calibration : sequence of LayerTrace
        The layer of every calibration sequence, with output weights. Those that have no quantized token are left out.

    Raises
    ------
    SpecError
        If a dialect has no clip, there are no output weights, or no sequence has a quantized token.

    Notes
    -----
    With several best ratios the first of the grid is taken. A head whose objective no ratio changes keeps the scheme's
    ratio: nothing that it stores is read. Logits and weights in float32, since a choice among thirteen needs no more;
    sums over tokens, queries and sequences in float64.
    """
    grids = clip_grid(scheme.key_dialect), clip_grid(scheme.value_dialect)
    if any(layer.w_o is None for layer in calibration):
        raise SpecError("tuned clips need output weights: this calibration has none")
    searches = [
        _Search(scheme, rotations, layer)
        for layer in calibration
        if static_split(layer.seq_len, scheme.sink, scheme.recent).quantized
    ]
    if not searches:
        raise SpecError(
            f"calibration sequences of at most {scheme.sink + scheme.recent} tokens are not allowed with tuned clips: "
            "none has a quantized token"
        )
    keys = _best(grids[0], sum((search.of_keys(grids[0]) for search in searches), 0.0), scheme.key_clip)
    for search in searches:
        search.fix_keys(keys)
    values = _best(grids[1], sum((search.of_values(grids[1]) for search in searches), 0.0), scheme.value_clip)
    return keys, values


def _best(grid: tuple[float, ...], objectives: "Float64Array | float", fallback: float) -> tuple[float, ...]:
    """Return the ratio with the least objective, (ratios, num_kv_heads), of every head."""
    table = np.asarray(objectives)
    is_flat = table.max(axis=0) == table.min(axis=0)
    return tuple(
        fallback if flat else grid[place] for place, flat in zip(table.argmin(axis=0), is_flat, strict=True)
    )


class _Search:
    """What all ratios share for one sequence: exact logits, and the part of attention that the windows give.

    Arrays have the axes (num_kv_heads, group·queries, tokens or head_dim). Rows of `_q` are queries q M⁻ᵀ of the keys'
    transform; exponentials are of scores less `_top`.
    """

    def __init__(self, scheme: "Scheme", rotations: "LayerTransforms", layer: "LayerTrace") -> None:
        self._key_dialect, self._value_dialect = (
            get_dialect(scheme.key_dialect),
            get_dialect(scheme.value_dialect),
        )
        self._group_sizes = tuple(scheme.group_of(side) or layer.k.shape[-1] for side in SIDES)
        self._feedback = rotations.key_feedback, rotations.value_feedback
        queries = min(LAST_QUERIES, layer.seq_len)
        first = layer.seq_len - queries
        self._shape = (layer.num_kv_heads, layer.group, queries)
        split = static_split(layer.seq_len, scheme.sink, scheme.recent)
        middle = slice(split.sink, split.sink + split.quantized)
        keys = layer.k if rotations.key_mean is None else center_keys(layer.k, rotations.key_mean)
        q = layer.q[:, first:]
        future = np.arange(layer.seq_len)[None, :] > np.arange(first, layer.seq_len)[:, None]
        self._future = np.tile(future, (layer.group, 1))
        scores = queries_by_kv_head(q, layer.num_kv_heads) @ keys.swapaxes(1, 2) * np.float32(layer.scaling)
        scores[:, self._future] = _HIDDEN
        self._future = self._future[:, middle]
        self._q = queries_by_kv_head(rotations.key.rotate_queries(q), layer.num_kv_heads)
        self._q = self._q * np.float32(layer.scaling)
        self._keys = rotations.key.rotate(np.ascontiguousarray(keys[:, middle]))
        self._v = np.ascontiguousarray(layer.v[:, middle])
        self._values = rotations.value.rotate(self._v)
        self._prepare(scores, layer, middle)
        wide = layer.w_o.astype(np.float64) if layer.w_o is not None else np.empty(0)
        gram = (wide @ wide.swapaxes(1, 2) / wide.shape[2]).reshape(
            layer.num_kv_heads, layer.group, *wide.shape[1:2] * 2
        )
        back = rotations.value.inverses.astype(np.float64)[:, None]
        self._gram, self._value_gram = gram, back @ gram @ back.swapaxes(-1, -2)
        self._weights = np.empty(0, dtype=np.float32)

    def _prepare(self, scores: "Float32Array", layer: "LayerTrace", middle: slice) -> None:
        """Take apart the exact attention: weights of quantized tokens, sum and output of the windows."""
        self._top = scores.max(axis=-1, keepdims=True)
        raised = np.exp(scores - self._top)
        total = raised.sum(axis=-1, keepdims=True, dtype=np.float64)
        self._scores = np.ascontiguousarray(scores[..., middle])
        self._p = (raised[..., middle] / total).astype(np.float32)
        self._log_total = np.log(total)
        self._output = (raised @ layer.v).astype(np.float64) / total
        raised[..., middle] = 0
        self._window_total = raised.sum(axis=-1, keepdims=True, dtype=np.float64)
        self._window_output = (raised @ layer.v).astype(np.float64)

    def of_keys(self, grid: tuple[float, ...]) -> "Float64Array":
        """Return the objective of the keys for every ratio, summed over queries, (ratios, num_kv_heads)."""
        found = np.empty((len(grid), self._shape[0]))
        for place, ratio in enumerate(grid):
            raised, change, log_factor, total = self._raised(
                _stored(self._key_dialect, self._keys, (ratio,), self._group_sizes[0], self._feedback[0])
            )
            factor = np.exp(log_factor)
            output = ((raised @ self._v) + self._window_output * factor) / total
            divergence = np.log(total) - log_factor - self._log_total
            divergence -= np.einsum("hqs,hqs->hq", self._p, change)[..., None]
            squares = self._squares(output - self._output, self._gram)
            found[place] = divergence.sum(axis=(1, 2)) + squares
        return found

    def _raised(
        self, stored: "Float32Array"
    ) -> "tuple[Float32Array, Float32Array, Float64Array, Float64Array]":
        """Return exp of the quantized tokens' scores, their change, the log of the windows' factor, and the sum."""
        scores = self._q @ stored.swapaxes(1, 2)
        scores[:, self._future] = _HIDDEN
        change = scores - self._scores
        top = np.maximum(self._top, scores.max(axis=-1, keepdims=True))
        scores -= top
        raised = np.exp(scores, out=scores)
        log_factor = (self._top - top).astype(np.float64)
        total = raised.sum(axis=-1, keepdims=True, dtype=np.float64) + self._window_total * np.exp(log_factor)
        return raised, change, log_factor, total

    def fix_keys(self, clips: tuple[float, ...]) -> None:
        """Take the attention weights of keys with these ratios, one a KV head, for the values."""
        stored = _stored(self._key_dialect, self._keys, clips, self._group_sizes[0], self._feedback[0])
        raised, _, _, total = self._raised(stored)
        self._weights = (raised / total).astype(np.float32)

    def of_values(self, grid: tuple[float, ...]) -> "Float64Array":
        """Return the objective of the values for every ratio, summed over queries, (ratios, num_kv_heads)."""
        found = np.empty((len(grid), self._shape[0]))
        for place, ratio in enumerate(grid):
            stored = _stored(
                self._value_dialect, self._values, (ratio,), self._group_sizes[1], self._feedback[1]
            )
            errors = stored - self._values
            found[place] = self._squares((self._weights @ errors).astype(np.float64), self._value_gram)
        return found

    def _squares(self, errors: "Float64Array", gram: "Float64Array") -> "Float64Array":
        """Return Σ ‖error W‖²/hidden_size by KV head, from W Wᵀ/hidden_size."""
        by_head = errors.reshape(*self._shape, -1)
        squares: Float64Array = ((by_head @ gram) * by_head).sum(axis=(1, 2, 3))
        return squares


def _stored(
    dialect: "Dialect",
    x: "Float32Array",
    clips: tuple[float, ...],
    group_size: int,
    factors: "Float32Array | None",
) -> "Float32Array":
    """Return what a dialect makes of rows, read again."""
    return dialect.dequantize(quantize_heads(dialect, x, clips, group_size, factors))
