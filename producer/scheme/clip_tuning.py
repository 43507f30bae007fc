"""Clip tuning by KV head: for each side, the ratio of a grid with the least calibration objective.

The objectives are those that OptR trains with (its equations 14 and 16): for keys KL(p ‖ p̃) + ‖δy_K‖²/hidden_size,
then for values ‖δy_V‖²/hidden_size under the weights of the keys so quantized; means over the last queries of every
calibration sequence and the query heads of a KV head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize import get_dialect
from producer.quantize.heads import quantize_heads
from producer.quantize.windows import static_split
from producer.scheme.calibration import LayerCalibration
from producer.scheme.window_attention import WindowAttention
from producer.trace.attention import HIDDEN
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
    """Return the heads at the lower end of the grid; their optimum may lie below it."""
    lowest = min(ratio for ratio in clip_grid(name) if ratio > 0)
    return [head for head, ratio in enumerate(clips) if ratio == lowest]


def tune_clips(
    scheme: Scheme, rotations: LayerTransforms, calibration: LayerCalibration | Sequence[LayerTrace]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the clip ratios of keys and of values by KV head.

    Parameters
    ----------
    scheme : Scheme
        Its dialects, group size and windows.
    rotations : LayerTransforms
        The layer's transforms, key mean and factors of error feedback.
    calibration : LayerCalibration, or sequence of LayerTrace
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
    if not isinstance(calibration, LayerCalibration):
        calibration = LayerCalibration(calibration)
    grids = clip_grid(scheme.key_dialect), clip_grid(scheme.value_dialect)
    if any(layer.w_o is None for layer in calibration.layers):
        raise SpecError("tuned clips need output weights: this calibration has none")
    windows = scheme.sink, scheme.recent
    searches = [
        _Search(scheme, rotations, _exact(calibration, index, rotations, windows))
        for index, layer in enumerate(calibration.layers)
        if static_split(layer.seq_len, *windows).quantized
    ]
    if not searches:
        raise SpecError(
            f"calibration sequences of at most {sum(windows)} tokens are not allowed with tuned clips: none has a "
            "quantized token"
        )
    keys = _best(grids[0], sum((search.of_keys(grids[0]) for search in searches), 0.0), scheme.key_clip)
    objectives = sum((search.of_values(grids[1], search.weights(keys)) for search in searches), 0.0)
    return keys, _best(grids[1], objectives, scheme.value_clip)


def _exact(
    calibration: LayerCalibration, index: int, rotations: LayerTransforms, windows: tuple[int, int]
) -> WindowAttention:
    """Return the exact attention of a sequence over keys less the mean that the rotations have."""
    mean = rotations.key_mean
    if mean is None or np.array_equal(mean, calibration.key_mean):
        return calibration.window_attention(index, centred=mean is not None, windows=windows)
    # A mean from elsewhere: a fitted scheme whose clips are tuned again on other texts.
    layer = calibration.layers[index]
    return WindowAttention(layer, center_keys(layer.k, mean), *windows)


def _best(grid: tuple[float, ...], objectives: Float64Array | float, fallback: float) -> tuple[float, ...]:
    """Return the ratio with the least objective, (ratios, num_kv_heads), of every head."""
    table = np.asarray(objectives)
    is_flat = table.max(axis=0) == table.min(axis=0)
    return tuple(
        fallback if flat else grid[place] for place, flat in zip(table.argmin(axis=0), is_flat, strict=True)
    )


class _Search:
    """The objectives of one sequence under a scheme's transforms.

    Arrays have the axes (num_kv_heads, group·queries, tokens or head_dim). With s the exact scores of the quantized
    tokens, s̃ those of stored keys, m the larger of both maxima, Z_w the windows' Σ exp(s - top) and f = exp(top - m):
    Z̃ = Σ exp(s̃ - m) + f Z_w, and KL(p ‖ p̃) = log Z̃ - log f - log Z - Σ p (s̃ - s).
    """

    def __init__(self, scheme: Scheme, rotations: LayerTransforms, exact: WindowAttention) -> None:
        self._exact = exact
        head_dim = exact.keys.shape[-1]
        self._key, self._value = (
            _Coding(
                get_dialect(getattr(scheme, f"{side}_dialect")),
                scheme.group_of(side) or head_dim,
                getattr(rotations, side).rotate(rows),
                getattr(rotations, f"{side}_feedback"),
            )
            for side, rows in zip(SIDES, (exact.keys, exact.values), strict=True)
        )
        # q M⁻ᵀ meets coded keys as they are.
        turned = queries_by_kv_head(rotations.key.rotate_queries(exact.q), exact.shape[0])
        self._q: Float32Array = turned * exact.scaling
        back = rotations.value.inverses.astype(np.float64)[:, None]
        self._value_gram: Float64Array = back @ exact.gram @ back.swapaxes(-1, -2)

    def of_keys(self, grid: tuple[float, ...]) -> Float64Array:
        """Return the objective of the keys for every ratio, summed over queries, (ratios, num_kv_heads)."""
        exact = self._exact
        found = np.empty((len(grid), exact.shape[0]))
        for place, ratio in enumerate(grid):
            scores = self._scores((ratio,))
            divergence = np.einsum("hqs,hqs->hq", exact.p, scores - exact.scores)
            raised, log_factor, total = self._raised(scores)
            output = ((raised @ exact.values) + exact.window_output * np.exp(log_factor)) / total
            divergences = np.log(total) - log_factor - exact.log_total - divergence[..., None]
            squares = self._squares(output - exact.output, exact.gram)
            found[place] = divergences.sum(axis=(1, 2)) + squares
        return found

    def weights(self, clips: tuple[float, ...]) -> Float32Array:
        """Return the attention weights of the quantized tokens for keys with these ratios, one a KV head."""
        raised, _, total = self._raised(self._scores(clips))
        return (raised / total).astype(np.float32)

    def of_values(self, grid: tuple[float, ...], weights: Float32Array) -> Float64Array:
        """Return the objective of the values for every ratio, summed over queries, (ratios, num_kv_heads)."""
        found = np.empty((len(grid), self._exact.shape[0]))
        for place, ratio in enumerate(grid):
            errors = self._value.stored((ratio,))
            errors -= self._value.rows
            found[place] = self._squares((weights @ errors).astype(np.float64), self._value_gram)
        return found

    def _scores(self, clips: tuple[float, ...]) -> Float32Array:
        """Return the scores of the quantized tokens for keys with these ratios."""
        scores: Float32Array = self._q @ self._key.stored(clips).swapaxes(1, 2)
        if self._exact.future is not None:
            scores[:, self._exact.future] = HIDDEN
        return scores

    def _raised(self, scores: Float32Array) -> tuple[Float32Array, Float64Array, Float64Array]:
        """Return exp of scores, which are used up, the log of the windows' factor f, and Z̃."""
        exact = self._exact
        top = np.maximum(exact.top, scores.max(axis=-1, keepdims=True))
        scores -= top
        raised = np.exp(scores, out=scores)
        log_factor = (exact.top - top).astype(np.float64)
        total = raised.sum(axis=-1, keepdims=True, dtype=np.float64) + exact.window_total * np.exp(log_factor)
        return raised, log_factor, total

    def _squares(self, errors: Float64Array, gram: Float64Array) -> Float64Array:
        """Return Σ ‖error W‖²/hidden_size by KV head, from W Wᵀ/hidden_size."""
        by_head = errors.reshape(*self._exact.shape, -1)
        squares: Float64Array = ((by_head @ gram) * by_head).sum(axis=(1, 2, 3))
        return squares


@dataclass(frozen=True, slots=True)
class _Coding:
    """Rows of one side, transformed, and what codes them."""

    dialect: Dialect
    group_size: int
    rows: Float32Array
    feedback: Float32Array | None

    def stored(self, clips: tuple[float, ...]) -> Float32Array:
        """Return what the dialect makes of the rows with these ratios, read again."""
        return self.dialect.dequantize(
            quantize_heads(self.dialect, self.rows, clips, self.group_size, self.feedback)
        )
