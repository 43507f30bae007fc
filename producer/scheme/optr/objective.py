"""The losses of OptR with their gradients (equations 12 to 16), by KV head.

Gradients are written out: a loss is a sum over rows whose derivative by the scores is known, so the scores of a step
are read a few times and none is kept. The transforms themselves are differentiated by torch
(`producer.scheme.optr.parameters`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.scheme.optr.torch_loader import load_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.scheme.optr.problem import SequenceData
    from producer.scheme.optr.quantizer import TorchQuantizer
    from producer.scheme.optr.torch_loader import Tensor

__all__ = ["Gradients", "KeyObjective", "ValueObjective"]

#: Heads are taken a few at a time on a CPU, so that their scores stay in its cache.
_BLOCK_BYTES = 6 << 20


@dataclass(frozen=True, slots=True)
class Gradients:
    """Derivatives of the sum of all heads' losses.

    Attributes
    ----------
    matrix, inverse : Tensor, float32, shape (H, d, d)
        By M and by M⁻¹, as if they were independent.
    """

    matrix: Tensor
    inverse: Tensor


def _blocks(sequence: SequenceData) -> list[slice]:
    """Return the heads of a sequence in blocks."""
    heads, rows, tokens = sequence.weights.shape
    size = heads if sequence.weights.is_cuda else max(1, _BLOCK_BYTES // max(1, 4 * rows * tokens))
    return [slice(first, min(first + size, heads)) for first in range(0, heads, size)]


def _weighed(error: Tensor, metric: Tensor) -> Tensor:
    """Return e G for rows of several query heads, shape (H, N, d)."""
    heads, group = metric.shape[:2]
    return (error.reshape(heads, group, -1, error.shape[-1]) @ metric).reshape(error.shape)


@dataclass(frozen=True, slots=True)
class KeyObjective:
    """L_K = mean over rows of KL(p ‖ p^K) + λ_K·‖e_K‖²/d_model, values exact (equations 12 to 14).

    Attributes
    ----------
    sequences : sequence of SequenceData
    quantizer : TorchQuantizer
    metric : Tensor
        See `producer.scheme.optr.problem.prepare_metric`.
    key_weight : float
        λ_K.
    is_cache : bool
        Whether the error term is the mean square of K̃ - K over all tokens of the caches (table 4, first row).
    """

    sequences: Sequence[SequenceData]
    quantizer: TorchQuantizer
    metric: Tensor
    key_weight: float
    is_cache: bool

    def losses(
        self, matrix: Tensor, inverse: Tensor, *, is_learning: bool
    ) -> tuple[Tensor, Gradients | None]:
        """Return the loss of every head, float64, shape (H,), and its gradients when learning."""
        torch = load_torch()
        rows = sum(sequence.q.shape[1] for sequence in self.sequences)
        total = torch.zeros(len(matrix), dtype=torch.float64, device=matrix.device)
        by_matrix, by_inverse = torch.zeros_like(matrix), torch.zeros_like(matrix)
        for sequence in self.sequences:
            values, mask = self.quantizer.apply(torch.bmm(sequence.k, matrix))
            queries = torch.bmm(sequence.q, inverse.mT)
            by_values, by_queries = torch.empty_like(values), torch.empty_like(queries)
            for heads in _blocks(sequence):
                loss, found = _attention(
                    _Block(sequence, heads, self.metric, self._weight),
                    queries[heads],
                    values[heads],
                    is_learning=is_learning,
                )
                total[heads] += loss / rows
                if found is not None:
                    by_queries[heads], by_values[heads] = found
            if is_learning:
                by_values /= rows
                by_inverse.baddbmm_(by_queries.mT, sequence.q, alpha=1 / rows)
            if self.is_cache:
                scale = self.key_weight / _cache_size(self.sequences)
                error = torch.baddbmm(sequence.k, values, inverse, beta=-1)
                total += scale * (error * error).sum(dim=(-1, -2), dtype=torch.float64)
                if is_learning:
                    by_values.baddbmm_(error, inverse.mT, alpha=2 * scale)
                    by_inverse.baddbmm_(values.mT, error, alpha=2 * scale)
            if is_learning:
                by_matrix.baddbmm_(sequence.k.mT, by_values.mul_(mask))
        return total, Gradients(by_matrix, by_inverse) if is_learning else None

    def attention(self, matrix: Tensor, inverse: Tensor) -> list[Tensor]:
        """Return p^K of the quantized tokens of every sequence, shape (H, N, M) each (equation 12)."""
        torch = load_torch()
        found = []
        for sequence in self.sequences:
            values, _ = self.quantizer.apply(torch.bmm(sequence.k, matrix))
            queries = torch.bmm(sequence.q, inverse.mT)
            weights = torch.empty_like(sequence.weights)
            for heads in _blocks(sequence):
                w, normal, _ = _exponentials(
                    _Block(sequence, heads, self.metric, self._weight),
                    _scores(sequence, heads, queries[heads], values[heads]),
                )
                weights[heads] = w.div_(normal[..., None])
            found.append(weights)
        return found

    @property
    def _weight(self) -> float:
        return 0.0 if self.is_cache else self.key_weight


@dataclass(frozen=True, slots=True)
class _Block:
    """Some heads of a sequence, and the weight of their error term."""

    sequence: SequenceData
    heads: slice
    metrics: Tensor
    key_weight: float


def _scores(sequence: SequenceData, heads: slice, queries: Tensor, values: Tensor) -> Tensor:
    """Return log p^K of the quantized tokens, but for the normalizer that all tokens share."""
    torch = load_torch()
    shift = sequence.log_total[heads, :, None]
    x = torch.baddbmm(shift.expand(*shift.shape[:2], values.shape[1]), queries, values.mT, beta=-1)
    return x if sequence.hidden is None else x.add_(sequence.hidden)


def _exponentials(block: _Block, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp(x - m) in the place of x, Z·exp(-m) and m, for Z = Σ p over the windows + Σ exp(x).

    m, shape (N,) a head, is the row's largest x where that is above 0, the bound of exact weights' logarithms.
    """
    top = x.amax(dim=-1).clamp_(min=0)
    w = x.sub_(top[..., None]).exp_()
    windows = block.sequence.window_weight[block.heads] * (-top).exp()
    return w, w.sum(dim=-1).add_(windows), top


def _attention(
    block: _Block, queries: Tensor, values: Tensor, *, is_learning: bool
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Return the loss of some heads, summed over rows, float64, and its gradients by queries and values.

    With x = log p^K + log Z: KL = log Z + Σ p log p - Σ p x over the quantized tokens, and with g = 2 λ_K (o^K - o) G,
    o^K = Σ p^K v: ∂/∂x = p^K (1 + g·v - g·o^K) - p.
    """
    torch = load_torch()
    sequence, heads = block.sequence, block.heads
    p, v = sequence.weights[heads], sequence.v[heads]
    x = _scores(sequence, heads, queries, values)
    scratch = p * x
    agreement = scratch.sum(dim=-1).sum(dim=-1, dtype=torch.float64)
    w, normal, top = _exponentials(block, x)
    loss = (normal.log() + top).sum(dim=-1, dtype=torch.float64) + sequence.entropy[heads] - agreement
    share = 1 / normal
    factor = share
    gradient = None
    if block.key_weight:
        kept = sequence.window_readout[heads] * (-top).exp()[..., None]
        found = (torch.bmm(w, v) + kept) * share[..., None]
        error = found - sequence.readout[heads]
        gradient = _weighed(error, block.metrics[heads])
        loss += block.key_weight * (error * gradient).sum(dim=(-1, -2), dtype=torch.float64)
        gradient = gradient * (2 * block.key_weight)
        factor = share * (1 - (gradient * found).sum(dim=-1))
    if not is_learning:
        return loss, None
    if gradient is None:
        scores = torch.mul(w, factor[..., None], out=scratch).sub_(p)
    else:
        scratch.copy_(factor[..., None].expand_as(scratch))
        scores = scratch.baddbmm_(gradient * share[..., None], v.mT).mul_(w).sub_(p)
    return loss, (torch.bmm(scores, values), torch.bmm(scores.mT, queries))


@dataclass(frozen=True, slots=True)
class ValueObjective:
    """L_V = mean over rows of ‖e_V‖²/d_model, under given attention weights (equations 15 and 16).

    Attributes
    ----------
    sequences : sequence of SequenceData
    attention : sequence of Tensor, shape (H, N, M)
        p̂^K of the quantized tokens of every sequence.
    quantizer : TorchQuantizer
    metric : Tensor
    is_cache : bool
        Whether the loss is the mean square of Ṽ - V over all tokens of the caches, which no attention weighs.
    """

    sequences: Sequence[SequenceData]
    attention: Sequence[Tensor]
    quantizer: TorchQuantizer
    metric: Tensor
    is_cache: bool

    def losses(
        self, matrix: Tensor, inverse: Tensor, *, is_learning: bool
    ) -> tuple[Tensor, Gradients | None]:
        """Return the loss of every head, float64, shape (H,), and its gradients when learning."""
        torch = load_torch()
        rows = sum(sequence.q.shape[1] for sequence in self.sequences)
        total = torch.zeros(len(matrix), dtype=torch.float64, device=matrix.device)
        by_matrix, by_inverse = torch.zeros_like(matrix), torch.zeros_like(matrix)
        for sequence, p in zip(self.sequences, self.attention, strict=True):
            values, mask = self.quantizer.apply(torch.bmm(sequence.v, matrix))
            read = values if self.is_cache else torch.bmm(p, values)
            aim = sequence.v if self.is_cache else torch.bmm(p, sequence.v)
            error = torch.baddbmm(aim, read, inverse, beta=-1)
            gradient = error if self.is_cache else _weighed(error, self.metric)
            scale = 1 / (_cache_size(self.sequences) if self.is_cache else rows)
            total += scale * (error * gradient).sum(dim=(-1, -2), dtype=torch.float64)
            if is_learning:
                by_inverse.baddbmm_(read.mT, gradient, alpha=2 * scale)
                by_read = torch.bmm(gradient, inverse.mT) * (2 * scale)
                by_values = by_read if self.is_cache else torch.bmm(p.mT, by_read)
                by_matrix.baddbmm_(sequence.v.mT, by_values.mul_(mask))
        return total, Gradients(by_matrix, by_inverse) if is_learning else None


def _cache_size(sequences: Sequence[SequenceData]) -> int:
    """Return the numbers of a head's caches, windows included."""
    return sum(sequence.tokens * sequence.k.shape[-1] for sequence in sequences)
