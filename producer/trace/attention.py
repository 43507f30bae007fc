"""Causal attention of some queries of a sequence: which tokens lie in their future, and the softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_Float = TypeVar("_Float", bound="np.floating[Any]")

__all__ = ["HIDDEN", "future_tokens", "last_future", "softmax"]

#: Score of a future token where -∞ will not do: finite, so that p·(log p - log p̃) is 0 there and not 0·(∞ - ∞).
HIDDEN = -1e30


def future_tokens(positions: npt.NDArray[np.integer], tokens: int) -> npt.NDArray[np.bool_]:
    """Return which tokens come after the query at each position, bool, shape (positions, tokens)."""
    future: npt.NDArray[np.bool_] = np.arange(tokens)[None, :] > positions[:, None]
    return future


def last_future(tokens: int, num_queries: int) -> npt.NDArray[np.bool_]:
    """Return which tokens come after each of the last queries, bool, shape (num_queries, tokens)."""
    return future_tokens(np.arange(tokens - num_queries, tokens), tokens)


def softmax(scores: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Return softmax along the last axis, in the type of the scores, which are used up: exp(s - max)/Σ."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores
