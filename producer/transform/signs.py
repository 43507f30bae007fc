"""Sign vectors: the published function of channel and index, and distinct ones from a seeded stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.numerics.mt19937 import WordStream

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["SIGN_STREAM_KEY", "draw_signs", "index_parity_signs"]

#: XORed to a run's seed, so that the signs come from a stream of their own.
SIGN_STREAM_KEY = 0x9E3779B9


def index_parity_signs(index: int, head_dim: int) -> Float32Array:
    """Return the published sign vector of rotation `index`, shape (head_dim,), float32.

    Channel c (from 0) is negative when the lowest bit of ((c+1)·2654435761) XOR (index·2246822519),
    modulo 2³², is 1. Both multipliers are odd, so only the parities of c + 1 and of the index count:
    the vectors of all indices are one vector up to sign (docs/results/published-run.md, fault 2).
    """
    channels = np.arange(1, head_dim + 1, dtype=np.uint64)
    mixed = (channels * np.uint64(2654435761)) ^ np.uint64(index * 2246822519)
    return np.where(mixed & np.uint64(1), np.float32(-1), np.float32(1)).astype(np.float32)


def draw_signs(seed: int, count: int, head_dim: int) -> list[Float32Array]:
    """Return `count` sign vectors, no two equal up to sign, from a stream of their own.

    Parameters
    ----------
    seed : int
        Seed of the run; the stream is seeded with ``seed ^ SIGN_STREAM_KEY``.
    count : int
        At most 2^(head_dim - 1), the number of sign vectors that differ up to sign.
    head_dim : int
        Length of a vector.

    Returns
    -------
    list of float32, shape (head_dim,)
        A channel is negative when the highest bit of its word is 1. A vector that repeats an earlier one,
        or its negative, is drawn again.

    Raises
    ------
    SpecError
        If there are not so many distinct vectors.
    """
    if head_dim < 32 and count > 2 ** (head_dim - 1):
        raise SpecError(
            f"{count} rotations of head_dim {head_dim} are not allowed: "
            f"only {2 ** (head_dim - 1)} sign vectors differ up to sign"
        )
    stream = WordStream(seed ^ SIGN_STREAM_KEY)
    seen: set[bytes] = set()
    vectors: list[Float32Array] = []
    while len(vectors) < count:
        negative = stream.words(head_dim) >> np.uint32(31)
        signs = np.where(negative, np.float32(-1), np.float32(1)).astype(np.float32)
        key = (signs * signs[0]).tobytes()
        if key not in seen:
            seen.add(key)
            vectors.append(signs)
    return vectors
