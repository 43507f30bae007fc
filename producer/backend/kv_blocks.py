"""Float KV caches, block by block, so that no computation needs all of one at once.

A *block* is a run of consecutive tokens of all heads, stored channel-major with keys and values of a head
side by side, (num_kv_heads, 2, head_dim, tokens): the CPU vectorises over tokens.
The project's array order (num_kv_heads, seq_len, head_dim) is what `ArraySource` takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from producer.backend.scratch import aligned_empty
from producer.errors import SpecError
from producer.numerics.arrays import require_finite

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["ArraySource", "BlockSource", "KVSource", "block_ranges", "copy_channel_major", "empty_block"]

# Elements of one head's keys in a block, 512 KiB: large enough that the interpreter's part is small, small
# enough that a tile and two temporaries stay in a core's L2 cache.
_TILE_ELEMENTS = 1 << 17
_TOKENS_AT_ONCE = 32


def block_ranges(seq_len: int, head_dim: int) -> list[tuple[int, int]]:
    """Return (first token, end) of every block.

    The blocks depend on nothing but these two numbers, so results do not depend on the number of cores.
    """
    step = max(16, _TILE_ELEMENTS // head_dim)
    return [(start, min(start + step, seq_len)) for start in range(0, seq_len, step)]


def empty_block(num_kv_heads: int, head_dim: int, tokens: int) -> Float32Array:
    """Return an uninitialised block, float32, shape (num_kv_heads, 2, head_dim, tokens)."""
    return aligned_empty((num_kv_heads, 2, head_dim, tokens))


def copy_channel_major(values: Float32Array, out: Float32Array) -> None:
    """Copy (…, tokens), whose tokens are far apart in memory, to `out`, where they are side by side.

    A few tokens at a time: the cache lines that they are read from are used up before they are dropped.
    """
    for start in range(0, out.shape[-1], _TOKENS_AT_ONCE):
        some = slice(start, start + _TOKENS_AT_ONCE)
        out[..., some] = values[..., some]


class KVSource(Protocol):
    """A float cache that can be read block by block, any number of times, from several threads.

    Attributes
    ----------
    seq_len, num_kv_heads, head_dim : int
    num_blocks : int
        Blocks, as `block_ranges` gives them.
    """

    seq_len: int
    num_kv_heads: int
    head_dim: int
    num_blocks: int

    def block(self, index: int) -> Float32Array:
        """Return block `index`, float32, shape (num_kv_heads, 2, head_dim, tokens): keys, then values.

        Read-only for the caller, and valid until the same thread asks for another block.
        """
        ...


class BlockSource:
    """A float cache held in memory as blocks.

    Parameters
    ----------
    blocks : list of float32, shape (num_kv_heads, 2, head_dim, tokens)
        At least one.
    """

    def __init__(self, blocks: list[Float32Array]) -> None:
        self._blocks = blocks
        self.num_blocks = len(blocks)
        self.num_kv_heads, _, self.head_dim, _ = blocks[0].shape
        self.seq_len = sum(block.shape[3] for block in blocks)

    def block(self, index: int) -> Float32Array:
        """Return block `index`; no copy."""
        return self._blocks[index]


class ArraySource(BlockSource):
    """A float cache given as two arrays.

    Parameters
    ----------
    k, v : float32, shape (num_kv_heads, seq_len, head_dim)
        Finite.

    Raises
    ------
    SpecError
        If the shapes differ or are not three-dimensional.
    NonFiniteError
        If a value is NaN or infinite.
    """

    def __init__(self, k: Float32Array, v: Float32Array) -> None:
        if k.ndim != 3 or k.shape != v.shape or 0 in k.shape:
            raise SpecError(
                f"k {k.shape} and v {v.shape} are not allowed: "
                "both (num_kv_heads, seq_len, head_dim), nothing empty"
            )
        require_finite(k, "k")
        require_finite(v, "v")
        heads, seq_len, head_dim = k.shape
        blocks = []
        for start, end in block_ranges(seq_len, head_dim):
            block = empty_block(heads, head_dim, end - start)
            for part, values in enumerate((k, v)):
                copy_channel_major(values[:, start:end].transpose(0, 2, 1), block[:, part])
            blocks.append(block)
        super().__init__(blocks)
