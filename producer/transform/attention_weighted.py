"""Covariances for balanced transforms, weighted by the attention that readers give.

The expected effect of quantization errors on attention is a sum over pairs of a reader and a stored row, each with a
weight (E35): F(P) = Σ w_ts (q_t P⁻¹ q_tᵀ)(k_s P k_sᵀ), P = M Mᵀ. It is convex along the geodesics of positive definite
matrices, and P that balances the covariances weighted at P itself is where it is least. Those are found by repeated
balancing; a step that does not lower F is halved along its geodesic.

Few tokens carry most of the weight, so covariances weighted alone follow the calibration texts. With a shrinkage a the
objective is (1 - a)·F/F₀ + a·T/T₀, where T = tr(P Σ_k)·tr(P⁻¹ Σ_q) is the plain product and F₀, T₀ are the values at
the start (E37). T is a sum of the same form with all weights equal, so convexity holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.trace.attention import future_tokens, softmax
from producer.transform.balanced import RIDGE, balancing, with_ridge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.trace.layer import LayerTrace

__all__ = [
    "QUERIES",
    "STEPS",
    "HeadReads",
    "Pairs",
    "attention_covariances",
    "head_reads",
    "key_pairs",
    "value_pairs",
    "weighted_balance",
]

#: Query positions of a sequence whose attention counts, evenly spaced.
QUERIES = 256
STEPS = 10
_HALVINGS = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """Readers and stored rows of one KV head and sequence.

    Attributes
    ----------
    readers : float64, shape (readers, d)
        Queries, or rows whose Σ rᵀ r is W Wᵀ of an output head.
    rows : float64, shape (tokens, d)
        Keys as they are stored, or values.
    weights : float32, shape (readers, tokens)
        0 or above.
    """

    readers: Float64Array
    rows: Float64Array
    weights: Float32Array

    def objective_and_weights(
        self, matrix: Float64Array, inverse: Float64Array
    ) -> tuple[float, Float64Array, Float64Array]:
        """Return F, the weight of every row and that of every reader, at a transform M (d, d) with its inverse."""
        row_norms = np.square(self.rows @ matrix).sum(axis=1)
        reader_norms = np.square(self.readers @ inverse.T).sum(axis=1)
        # float32 like the weights, or each product would make a wide copy of them.
        of_rows = (reader_norms.astype(np.float32) @ self.weights).astype(np.float64)
        of_readers = (self.weights @ row_norms.astype(np.float32)).astype(np.float64)
        return float(of_rows @ row_norms), of_rows, of_readers


def weighted_balance(
    pairs: Sequence[Pairs],
    start: tuple[Float64Array, Float64Array],
    ridge: float = RIDGE,
    steps: int = STEPS,
    shrinkage: float = 0.0,
) -> tuple[Float64Array, Float64Array, list[float]]:
    """Return the covariances of one KV head, weighted at the last transform, and the objective at every step.

    Parameters
    ----------
    pairs : sequence of Pairs
        One a sequence.
    start : pair of float64, shape (d, d)
        Covariances of rows and of readers to begin with.
    ridge : float
    steps : int
        At most so many.
    shrinkage : float
        Part a of the plain covariances, 0 … 1; the objective is then a sum of two ratios that begins at 1.

    Returns
    -------
    of_rows, of_readers : float64, shape (d, d)
    objectives : list of float
        Falling.

    Raises
    ------
    SpecError
        If all weights are 0, or the shrinkage is not within 0 … 1.
    """
    if not 0 <= shrinkage <= 1:
        raise SpecError(f"shrinkage {shrinkage!r} is not allowed: 0 … 1")
    matrix, inverse, _ = _balance(*start, ridge)
    value, of_rows, of_readers = _weigh(pairs, matrix, inverse)
    if not value > 0:
        raise SpecError("attention weights are not allowed: none is above 0, so no quantized token is read")
    scales = (1.0, 0.0)
    if shrinkage:
        scales = ((1 - shrinkage) / value, shrinkage / _plain(start, matrix, inverse)[0])
        value, of_rows, of_readers = _mixed(pairs, start, scales, (matrix, inverse))
    objectives = [value]
    for _ in range(steps):
        target = _balance(of_rows, of_readers, ridge)[:2]
        for _halving in range(_HALVINGS):
            found = _mixed(pairs, start, scales, target)
            if found[0] < objectives[-1]:
                break
            target = _between((matrix, inverse), target)
        else:
            break
        (matrix, inverse), (value, of_rows, of_readers) = target, found
        objectives.append(value)
    return of_rows, of_readers, objectives


def _balance(
    of_rows: Float64Array, of_readers: Float64Array, ridge: float
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return M, M⁻¹ and S of one head."""
    matrices, inverses, spectrum = balancing(
        with_ridge(of_rows[None], ridge), with_ridge(of_readers[None], ridge)
    )
    return matrices[0], inverses[0], spectrum[0]


def _between(
    start: tuple[Float64Array, Float64Array], target: tuple[Float64Array, Float64Array]
) -> tuple[Float64Array, Float64Array]:
    """Return M and M⁻¹ in the middle of the geodesic: M Mᵀ is the geometric mean, which balances P₀⁻¹ with P₁."""
    inverse, end = start[1].T @ start[1], target[0] @ target[0].T
    matrices, inverses, _ = balancing(inverse[None], end[None])
    return matrices[0], inverses[0]


def _weigh(
    pairs: Sequence[Pairs], matrix: Float64Array, inverse: Float64Array
) -> tuple[float, Float64Array, Float64Array]:
    """Return F and the covariances of rows and readers, weighted at M."""
    d = matrix.shape[0]
    total, of_rows, of_readers = 0.0, np.zeros((d, d)), np.zeros((d, d))
    for part in pairs:
        value, rows, readers = part.objective_and_weights(matrix, inverse)
        total += value
        of_rows += part.rows.T @ (part.rows * rows[:, None])
        of_readers += part.readers.T @ (part.readers * readers[:, None])
    return total, (of_rows + of_rows.T) / 2, (of_readers + of_readers.T) / 2


def _plain(
    start: tuple[Float64Array, Float64Array], matrix: Float64Array, inverse: Float64Array
) -> tuple[float, Float64Array, Float64Array]:
    """Return T and the covariances of rows and readers that its gradient has, at M."""
    rows = float(np.vdot(matrix, start[0] @ matrix))
    readers = float(np.vdot(inverse.T, start[1] @ inverse.T))
    return rows * readers, start[0] * readers, start[1] * rows


def _mixed(
    pairs: Sequence[Pairs],
    start: tuple[Float64Array, Float64Array],
    scales: tuple[float, float],
    at: tuple[Float64Array, Float64Array],
) -> tuple[float, Float64Array, Float64Array]:
    """Return s₀·F + s₁·T and the covariances of rows and readers that its gradient has, at M with M⁻¹."""
    value, rows, readers = _weigh(pairs, *at)
    if not scales[1]:
        return value, rows, readers
    plain = _plain(start, *at)
    return (
        scales[0] * value + scales[1] * plain[0],
        scales[0] * rows + scales[1] * plain[1],
        scales[0] * readers + scales[1] * plain[2],
    )


@dataclass(frozen=True, slots=True)
class HeadReads:
    """What attention reads of the quantized tokens of one KV head and sequence.

    Attributes
    ----------
    queries : float64, shape (group·positions, d)
    of_keys : float32, shape (group·positions, tokens)
        p(1 - p), 0 for tokens that are exact for the query.
    of_values : float32, shape (group, tokens)
        Σ p² over the positions of a query head.
    """

    queries: Float64Array
    of_keys: Float32Array
    of_values: Float32Array

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.queries.nbytes + self.of_keys.nbytes + self.of_values.nbytes


def head_reads(layer: LayerTrace, head: int, sink: int, recent: int) -> HeadReads:
    """Return what attention reads of the quantized tokens of a KV head, at `QUERIES` positions of a sequence.

    Parameters
    ----------
    layer : LayerTrace
        With more than sink + recent tokens.
    head : int
    sink, recent : int
        Tokens that are exact: the first ones, and for every query the last ones up to its own.
    """
    tokens = layer.seq_len
    first = sink + recent
    positions = np.unique(np.linspace(first, tokens - 1, min(QUERIES, tokens - first)).astype(int))
    q = layer.q[head * layer.group : (head + 1) * layer.group, positions]
    scores = q @ layer.k[head].T * np.float32(layer.scaling)
    scores[:, future_tokens(positions, tokens)] = -np.inf
    p = softmax(scores)
    place = np.arange(tokens)
    p[:, (place[None, :] < sink) | (place[None, :] > positions[:, None] - recent)] = 0
    weights = (p * (1 - p)).reshape(-1, tokens)
    return HeadReads(q.reshape(len(weights), -1).astype(np.float64), weights, np.square(p).sum(axis=1))


def key_pairs(reads: HeadReads, stored: Float32Array) -> Pairs:
    """Return queries and keys of one KV head, weighted with p(1 - p); `stored` are its keys as they are stored."""
    return Pairs(reads.queries, stored.astype(np.float64), reads.of_keys)


def value_pairs(reads: HeadReads, layer: LayerTrace, head: int) -> Pairs:
    """Return output weights and values of one KV head: the token s has Σ_t p_ts² with each query head's W Wᵀ.

    Raises
    ------
    SpecError
        If the layer has no output weights.
    """
    if layer.w_o is None:
        raise SpecError("a balanced transform of values needs output weights: this calibration has none")
    w_o = layer.w_o[head * layer.group : (head + 1) * layer.group].astype(np.float64)
    # R of a QR decomposition of Wᵀ: d rows that have the W Wᵀ of all columns.
    readers = np.concatenate([np.linalg.qr(weights.T, mode="r") for weights in w_o])
    rows = np.repeat(reads.of_values, len(readers) // layer.group, axis=0)
    return Pairs(readers, layer.v[head].astype(np.float64), rows)


def attention_covariances(
    pairs_of: Callable[[int], Sequence[Pairs]],
    start: tuple[Float64Array, Float64Array],
    ridge: float = RIDGE,
    shrinkage: float = 0.0,
) -> tuple[Float64Array, Float64Array]:
    """Return the attention-weighted covariances of a side, in the place of the plain ones.

    Parameters
    ----------
    pairs_of : callable
        Gives the pairs of a KV head, one a sequence.
    start : pair of float64, shape (num_kv_heads, d, d)
        The plain covariances of rows and of readers.
    ridge, shrinkage : float
        As `weighted_balance`.

    Raises
    ------
    SpecError
        As `weighted_balance`.
    """
    rows, readers = np.empty_like(start[0]), np.empty_like(start[1])
    for head in range(len(rows)):
        rows[head], readers[head], _ = weighted_balance(
            pairs_of(head), (start[0][head], start[1][head]), ridge, shrinkage=shrinkage
        )
    return rows, readers
