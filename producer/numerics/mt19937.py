"""The random stream of the published run: MT19937 words, float32 uniforms, polar normals.

One stream feeds a whole run; keys, values, output weights and queries are drawn from it in turn.
The values are exactly those of a sequential generator that takes words one by one, whatever the sizes
of the draws are.

Known outputs, so that another implementation can be checked by eye::

    words of seed 5489:    3499211612 581869302 3890346734 3586334585 545404204
    normals of seed 6260:  see testdata/vectors/normals-seed-6260.txt (origin in testdata/README.md)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, UInt32Array

__all__ = ["MAX_SEED", "NormalStream", "StreamMark", "WordStream", "polar_normals", "uniforms"]

MAX_SEED = 2**32 - 1
_WORDS = 624
# Even, so that a batch never splits a pair; small enough that its temporaries stay in the cache, and below the
# size for which an allocation asks the system for fresh pages.
_BATCH_WORDS = 1 << 15
_LARGEST_BELOW = np.uint32(2**32 - 129)
_TWO_TO_MINUS_32 = np.float32(2**-32)


def _seeded_state(seed: int) -> UInt32Array:
    """Return the 624 words of state that a single seed word gives (E1).

    This is `init_genrand` of Matsumoto and Nishimura (2002), what C++ calls ``std::mt19937(seed)``.
    NumPy's own seeding of `MT19937` hashes the seed first and gives another stream.
    """
    state = np.empty(_WORDS, dtype=np.uint32)
    word = seed
    state[0] = word
    for index in range(1, _WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + index) & 0xFFFFFFFF
        state[index] = word
    return state


class WordStream:
    """A stream of MT19937 words.

    Parameters
    ----------
    seed : int
        One 32-bit word, 0 … 4294967295.

    Raises
    ------
    SpecError
        If the seed does not fit one word.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed <= MAX_SEED:
            raise SpecError(f"seed {seed} is not allowed: one MT19937 seed word is 0 … {MAX_SEED}")
        self._start(_seeded_state(seed), _WORDS)

    def _start(self, key: UInt32Array, pos: int) -> None:
        self._bits = np.random.MT19937(0)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": pos}}
        self._generator = np.random.Generator(self._bits)

    @classmethod
    def at(cls, position: tuple[UInt32Array, int]) -> WordStream:
        """Return a stream that continues from the `position` of another."""
        stream = cls.__new__(cls)
        stream._start(*position)  # noqa: SLF001 - a class method of the same class
        return stream

    def words(self, count: int) -> UInt32Array:
        """Return the next `count` words, shape (count,), uint32."""
        return self._generator.integers(0, 2**32, size=count, dtype=np.uint32)

    def skip(self, count: int) -> None:
        """Pass over `count` words."""
        self._bits.random_raw(count, output=False)

    def position(self) -> tuple[UInt32Array, int]:
        """Return the state of the stream: 624 words and the place in them."""
        state = self._bits.state["state"]
        return state["key"], int(state["pos"])


def uniforms(words: UInt32Array) -> Float32Array:
    """Return one float32 in [0, 1) a word: float32(word) / 2³², computed in float32 (E2).

    A word from 2³² - 128 on rounds up to 2³²; the quotient 1 becomes the largest float32 below 1, which is
    what the largest word that rounds down gives.
    """
    values = np.empty(words.shape, dtype=np.float32)
    np.copyto(values, np.minimum(words, _LARGEST_BELOW), casting="same_kind")
    # Exact: a power of two.
    values *= _TWO_TO_MINUS_32
    return values


def polar_normals(words: UInt32Array) -> Float32Array:
    """Return the normals that an even number of words gives, rejected pairs left out (E3).

    Parameters
    ----------
    words : uint32, shape (2·m,)
        Taken two by two: x = 2u₁ - 1, y = 2u₂ - 1, r² = x² + y²; a pair with r² > 1 or r² = 0 is rejected.

    Returns
    -------
    float32, shape (2·accepted,)
        y·√(-2 ln r² / r²), then x·√(-2 ln r² / r²), for every accepted pair in order.

    Notes
    -----
    Marsaglia's polar method in the order of libstdc++'s ``std::normal_distribution<float>``. Every
    operation rounds to float32; the logarithm is taken in float64 and rounded once, which is the
    correctly rounded float32 logarithm but for rare ties, on every machine.
    """
    # Taken apart first: everything after runs over contiguous memory.
    u = np.empty((2, words.size // 2), dtype=np.float32)
    np.copyto(u, uniforms(words).reshape(-1, 2).T)
    u *= np.float32(2)
    u -= np.float32(1)
    x, y = u
    r2, y2 = np.square(u)
    r2 += y2
    accepted = np.flatnonzero((r2 <= np.float32(1)) & (r2 != np.float32(0)))
    r2 = r2.take(accepted)
    log = np.log(r2, dtype=np.float64)
    scale = log.astype(np.float32)
    scale *= np.float32(-2)
    scale /= r2
    np.sqrt(scale, out=scale)
    normals = np.empty((accepted.size, 2), dtype=np.float32)
    np.multiply(y.take(accepted), scale, out=normals[:, 0])
    np.multiply(x.take(accepted), scale, out=normals[:, 1])
    return normals.reshape(-1)


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A place in a `NormalStream`, to continue from there later.

    Attributes
    ----------
    position : tuple
        Word stream at the start of the batch in which the place lies.
    offset : int
        Normals of that batch that were already returned.
    """

    position: tuple[UInt32Array, int]
    offset: int


class NormalStream:
    """A stream of float32 normals by the polar method.

    Parameters
    ----------
    seed : int
        One 32-bit word.

    Notes
    -----
    Words are taken in batches, but a batch's unused normals are kept, the second of a pair among them:
    ``normals(3)`` then ``normals(5)`` are the eight values of ``normals(8)``.
    """

    def __init__(self, seed: int) -> None:
        self._begin(WordStream(seed))

    def _begin(self, words: WordStream) -> None:
        self._words = words
        self._batch = np.empty(0, dtype=np.float32)
        self._offset = 0
        # Reading the generator's state takes as long as a batch, so it is read for marks alone, from a second
        # stream that follows.
        self._origin = words.position()
        self._follower: WordStream | None = None
        self._words_before_batch = 0
        self._words_followed = 0

    def _refill(self) -> None:
        if self._batch.size:
            self._words_before_batch += _BATCH_WORDS
        self._batch = polar_normals(self._words.words(_BATCH_WORDS))
        self._offset = 0

    def fill(self, out: Float32Array) -> None:
        """Write the next ``out.size`` normals to `out`, one-dimensional float32."""
        done = 0
        while done < out.size:
            if self._offset == self._batch.size:
                self._refill()
            count = min(out.size - done, self._batch.size - self._offset)
            out[done : done + count] = self._batch[self._offset : self._offset + count]
            self._offset += count
            done += count

    def normals(self, count: int) -> Float32Array:
        """Return the next `count` normals, shape (count,), float32."""
        out = np.empty(count, dtype=np.float32)
        self.fill(out)
        return out

    def skip(self, count: int) -> None:
        """Pass over `count` normals without keeping them (they must still be generated: rejection)."""
        while count > 0:
            if self._offset == self._batch.size:
                self._refill()
            step = min(count, self._batch.size - self._offset)
            self._offset += step
            count -= step

    def mark(self) -> StreamMark:
        """Return the place where the stream is now."""
        if self._follower is None:
            self._follower = WordStream.at(self._origin)
        self._follower.skip(self._words_before_batch - self._words_followed)
        self._words_followed = self._words_before_batch
        return StreamMark(self._follower.position(), self._offset)

    @classmethod
    def at(cls, mark: StreamMark) -> NormalStream:
        """Return a new stream that continues from `mark`."""
        stream = cls.__new__(cls)
        stream._begin(WordStream.at(mark.position))  # noqa: SLF001 - a class method of the same class
        stream.skip(mark.offset)
        return stream
