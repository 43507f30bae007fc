"""Decode attention over blocks of tokens: partial softmax sums, merged in the order of the blocks.

Keys and values are read in *tiles*: some tokens of S heads, channel-major, (S, groups, group_size, tokens). A
read is one such tile; different reads may be different heads, or the same heads at another clip ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from producer.backend.scratch import aligned_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.numerics.arrays import Float32Array, Float64Array

    #: read → levels (S, groups, group_size, tokens); for quantized tiles their worth (S, groups, tokens)
    TileReader: TypeAlias = Callable[[int], tuple[Float32Array, Float32Array | None]]

__all__ = ["Partial", "merge_partials", "partial_attention"]


@dataclass(frozen=True, slots=True)
class Partial:
    """Softmax sums of Q queries over some tokens, for A reads of S heads.

    Attributes
    ----------
    top : float32, shape (A, S, Q)
        Largest score.
    total : float32, shape (A, S, Q)
        Σ exp(score - top).
    values : float32, shape (A, S, Q, head_dim)
        Σ exp(score - top)·v.
    """

    top: Float32Array
    total: Float32Array
    values: Float32Array


def partial_attention(queries: Float32Array, tokens: int, keys: TileReader, values: TileReader) -> Partial:
    """Return the softmax sums of some tokens (E9).

    Parameters
    ----------
    queries : float32, shape (A, S, Q, groups, group_size)
        Already divided by √head_dim.
    tokens : int
        Tokens of a tile.
    keys, values : callable
        The tile of a read: values with no unit, or integer levels with the worth of one level. All keys are
        read before the first values, each once; a tile is used before the next one is asked for.

    Notes
    -----
    Scores, weights and sums over the tokens of a tile are float32. A row's unit is applied to its dot
    product, and a value's unit to its weight, so that levels are never multiplied out. With units, products
    are taken query by query, so that a query's result does not depend on the others.
    """
    reads, heads, count, groups, group_size = queries.shape
    scores = aligned_empty((reads, heads, count, tokens))
    part = aligned_empty((tokens,))
    for read in range(reads):
        levels, unit = keys(read)
        for head in range(heads):
            _score(
                queries[read, head],
                levels[head],
                None if unit is None else unit[head],
                scores[read, head],
                part,
            )
    top = scores.max(axis=3)
    scores -= top[..., None]
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=3)
    sums = np.empty(queries.shape, dtype=np.float32)
    for read in range(reads):
        levels, unit = values(read)
        for head in range(heads):
            _weigh(
                weights[read, head],
                levels[head],
                None if unit is None else unit[head],
                sums[read, head],
                part,
            )
    return Partial(top, total, sums.reshape(reads, heads, count, groups * group_size))


def _score(
    queries: Float32Array,
    levels: Float32Array,
    unit: Float32Array | None,
    out: Float32Array,
    part: Float32Array,
) -> None:
    """Write the scores of one head's tile to `out`, (Q, tokens); `part` (tokens,) is room to work in."""
    if unit is None:
        np.matmul(queries[:, 0], levels[0], out=out)
        return
    for query, row in zip(queries, out, strict=True):
        np.matmul(query[0], levels[0], out=row)
        np.multiply(row, unit[0], out=row)
        for group in range(1, len(levels)):
            np.matmul(query[group], levels[group], out=part)
            part *= unit[group]
            np.add(row, part, out=row)


def _weigh(
    weights: Float32Array,
    levels: Float32Array,
    unit: Float32Array | None,
    out: Float32Array,
    part: Float32Array,
) -> None:
    """Write Σ weight·value of one head's tile to `out`, (Q, groups, group_size); `part` as in `_score`."""
    if unit is None:
        np.matmul(weights, levels[0].T, out=out[:, 0])
        return
    for row, target in zip(weights, out, strict=True):
        for group in range(len(levels)):
            np.multiply(row, unit[group], out=part)
            np.matmul(levels[group], part, out=target[group])


def merge_partials(partials: Sequence[Partial]) -> Float32Array:
    """Return attention outputs, shape (A, S, Q, head_dim), float32 (E9).

    Parameters
    ----------
    partials : sequence of Partial
        One a block, in the order of the blocks.

    Notes
    -----
    Merged in float64 in the given order, rounded to float32 once.
    """
    top = np.max([partial.top for partial in partials], axis=0)
    total: Float64Array = np.zeros(top.shape, dtype=np.float64)
    values: Float64Array = np.zeros(partials[0].values.shape, dtype=np.float64)
    for partial in partials:
        factor = np.exp((partial.top - top).astype(np.float64))
        total += factor * partial.total
        values += factor[..., None] * partial.values
    return (values / total[..., None]).astype(np.float32)
