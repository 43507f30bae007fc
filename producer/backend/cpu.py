"""The NumPy backend: tiles of a block and a head, blocks spread over threads.

Blocks have a fixed size and their partial sums are merged in order, so the number of threads changes no bit.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from producer.arrays import require_finite
from producer.attention import Partial, merge_partials, partial_attention
from producer.backend.base import RuntimeInfo
from producer.errors import NonFiniteError, SpecError
from producer.metrics import nmse
from producer.packing import pack
from producer.quantize import symmetric_absmax_clip as dialect
from producer.rotation import Identity
from producer.source import BlockSource, KVSource, empty_block
from producer.workspace import Scratch, unbuffered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.arrays import Float32Array, Float64Array, UInt8Array
    from producer.attention import TileReader
    from producer.backend.base import PackedCache, RotatedCache
    from producer.rotation import Rotation

__all__ = [
    "NumpyBackend",
    "NumpyPackedCache",
    "NumpyRotatedCache",
    "PackedBlock",
    "default_threads",
]

_Result = TypeVar("_Result")
_LEVELS = np.float32(1.5)
_HEADS_AT_ONCE = 4
# One query reads a block in half a millisecond, in short operations: fewer blocks than this are read sooner
# by one thread than by several that wait for each other.
_DECODE_BLOCKS_FOR_THREADS = 32


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class NumpyRotatedCache:
    """A float cache after a rotation; see `producer.backend.base.RotatedCache`."""

    source: KVSource
    rotation: "Rotation"


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """One block of a packed cache, keys then values.

    Attributes
    ----------
    packed : uint8, shape (num_kv_heads, 2, head_dim / 4, tokens)
        Four consecutive channels a byte, the first in the lowest bits.
    scale : float32, shape (num_kv_heads, 2, groups, tokens)
    """

    packed: "UInt8Array"
    scale: "Float32Array"


@dataclass(frozen=True, slots=True)
class NumpyPackedCache:
    """A packed cache as blocks, with the rotation it was made with.

    Attributes
    ----------
    blocks : list of PackedBlock
    rotation : Rotation
    group_size : int
    """

    blocks: list[PackedBlock]
    rotation: "Rotation"
    group_size: int

    @property
    def code_bytes(self) -> int:
        """Bytes of the packed codes of K and V, counted from the arrays."""
        return sum(block.packed.nbytes for block in self.blocks)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of K and V, counted from the arrays."""
        return sum(block.scale.nbytes for block in self.blocks)


class _RotatingSource:
    """A source whose blocks are rotated when they are read: for caches that are not kept in memory."""

    def __init__(self, source: KVSource, rotation: "Rotation") -> None:
        self._source = source
        self._rotation = rotation
        self._scratch = Scratch()
        self.seq_len = source.seq_len
        self.num_kv_heads = source.num_kv_heads
        self.head_dim = source.head_dim
        self.num_blocks = source.num_blocks

    def block(self, index: int) -> "Float32Array":
        block = self._source.block(index)
        return rotate_block(block, self._rotation, self._scratch.take("block", block.shape), self._scratch)


def rotate_block(
    block: "Float32Array", rotation: "Rotation", out: "Float32Array", scratch: Scratch
) -> "Float32Array":
    """Write a block to `out`, rotated head by head so that a tile stays in the cache, and return `out`."""
    for head, target in zip(block, out, strict=True):
        for tile, rotated in zip(head, target, strict=True):
            rotation.rotate(tile, axis=0, out=rotated, scratch=scratch.take("rotate", tile.shape))
    return out


class NumpyBackend:
    """Attention in NumPy on the cores of this machine.

    Parameters
    ----------
    threads : int, optional
        Worker threads, at least 1; by default the cores that this process may use.

    Raises
    ------
    SpecError
        If `threads` is below 1.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = default_threads() if threads is None else threads
        if self.threads < 1:
            raise SpecError(f"threads {self.threads} is not allowed: at least 1")
        self.runtime = RuntimeInfo(
            name="numpy",
            version=np.__version__,
            driver="none",
            kernel="kvint2eval-numpy-blocks-v1",
            gpu="",
            gpu_memory_bytes=0,
        )
        self._scratch = Scratch()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        # Heads that one operation covers. Threads wait for each other between NumPy's operations, so several
        # gain more from longer operations than from tiles that stay in the cache. No value depends on it.
        self._span = 1 if self._pool is None else _HEADS_AT_ONCE

    def _map(self, work: "Callable[[int], _Result]", count: int, worthwhile: int = 2) -> list[_Result]:
        """Return ``[work(0), …, work(count - 1)]``, by the threads if there are `worthwhile` calls."""

        def run(index: int) -> _Result:
            with unbuffered():
                return work(index)

        if self._pool is None or count < worthwhile:
            return [run(index) for index in range(count)]
        return list(self._pool.map(run, range(count)))

    def rotate(
        self, source: KVSource, rotation: "Rotation", spare: "RotatedCache | None" = None
    ) -> NumpyRotatedCache:
        """Return the rotated cache; see `Backend.rotate`.

        It is kept where the source is kept, and else rotated whenever it is read.
        """
        if isinstance(rotation, Identity):
            return NumpyRotatedCache(source, rotation)
        if not isinstance(source, BlockSource):
            return NumpyRotatedCache(_RotatingSource(source, rotation), rotation)
        own = cast("NumpyRotatedCache | None", spare)
        room = None if own is None or isinstance(own.rotation, Identity) else own.source

        def work(index: int) -> "Float32Array":
            block = source.block(index)
            heads, _, d, tokens = block.shape
            out = empty_block(heads, d, tokens) if room is None else room.block(index)
            return rotate_block(block, rotation, out, self._scratch)

        return NumpyRotatedCache(BlockSource(self._map(work, source.num_blocks)), rotation)

    def attend_float(self, cache: "RotatedCache", queries: "Float32Array") -> "Float32Array":
        """Return head outputs of the unquantized cache; see `Backend.attend_float`."""
        own = cast("NumpyRotatedCache", cache)
        scaled = _scaled_queries(queries, own.rotation, own.source.head_dim)

        def work(index: int) -> Partial:
            block = own.source.block(index)
            return partial_attention(
                scaled[None],
                block.shape[3],
                lambda _: (block[:, 0, None], None),
                lambda _: (block[:, 1, None], None),
            )

        merged = merge_partials(self._map(work, own.source.num_blocks))
        return _by_query(merged[0])

    def search_clips(
        self, cache: "RotatedCache", queries: "Float32Array", ratios: "Sequence[float]", group_size: int
    ) -> "Float32Array":
        """Return head outputs of the quantized cache for every clip ratio; see `Backend.search_clips`.

        The row maxima are computed once for all ratios. The codes are used as they come from the quantizer,
        without packing: as code - 1.5, half the levels 2·code - 3 of the packed cache, worth twice as much.
        The products are those of `attend_packed` bit for bit.
        """
        own = cast("NumpyRotatedCache", cache)
        scaled = _scaled_queries(queries, own.rotation, group_size)

        def work(index: int) -> list[Partial]:
            block = own.source.block(index)
            return [
                self._search_heads(block[heads], scaled[heads], ratios)
                for heads in self._head_slices(len(block))
            ]

        blocks = self._map(work, own.source.num_blocks)
        merged = [merge_partials(partials) for partials in zip(*blocks, strict=True)]
        return np.ascontiguousarray(np.concatenate(merged, axis=1).transpose(0, 2, 1, 3))

    def _head_slices(self, heads: int) -> list[slice]:
        """Return the heads in runs that one operation covers."""
        return [slice(first, min(first + self._span, heads)) for first in range(0, heads, self._span)]

    def _search_heads(
        self, tiles: "Float32Array", queries: "Float32Array", ratios: "Sequence[float]"
    ) -> Partial:
        """Return the softmax sums of some heads of a block, one read a clip ratio."""
        group_size = queries.shape[3]

        def reader(part: int) -> "TileReader":
            rows = dialect.split_groups(tiles[:, part], group_size, 1)
            absmax = _row_absmax(rows)

            def read(index: int) -> "tuple[Float32Array, Float32Array]":
                scale = dialect.row_scale(absmax, ratios[index])
                levels = dialect.code_values(rows, scale, self._scratch.take("levels", rows.shape))
                levels -= _LEVELS
                return levels, scale[:, :, 0] / _LEVELS

            return read

        return partial_attention(
            np.broadcast_to(queries, (len(ratios), *queries.shape)), tiles.shape[3], reader(0), reader(1)
        )

    def quantize_pack(self, cache: "RotatedCache", ratio: float, group_size: int) -> NumpyPackedCache:
        """Return the cache quantized and packed; see `Backend.quantize_pack`."""
        own = cast("NumpyRotatedCache", cache)

        def work(index: int) -> PackedBlock:
            block = own.source.block(index)
            heads, parts, d, tokens = block.shape
            packed = np.empty((heads, parts, d // 4, tokens), dtype=np.uint8)
            scales = np.empty((heads, parts, d // group_size, tokens), dtype=np.float32)
            for run in self._head_slices(heads):
                for part in range(parts):
                    rows = dialect.split_groups(block[run, part], group_size, 1)
                    scale = dialect.row_scale(_row_absmax(rows), ratio)
                    levels = dialect.code_values(rows, scale, self._scratch.take("levels", rows.shape))
                    codes = self._scratch.take_bytes("codes", (levels.shape[0], d, tokens))
                    np.copyto(codes, levels.reshape(codes.shape), casting="unsafe")
                    packed[run, part] = pack(codes, axis=1)
                    scales[run, part] = scale[:, :, 0]
            return PackedBlock(packed, scales)

        return NumpyPackedCache(self._map(work, own.source.num_blocks), own.rotation, group_size)

    def attend_packed(self, cache: "PackedCache", queries: "Float32Array") -> "Float32Array":
        """Return head outputs that read the packed cache; see `Backend.attend_packed`."""
        own = cast("NumpyPackedCache", cache)
        scaled = _scaled_queries(queries, own.rotation, own.group_size)

        def work(index: int) -> Partial:
            block = own.blocks[index]
            unit = block.scale / dialect.LEVELS_PER_SCALE

            def reader(part: int) -> "TileReader":
                return lambda head: (
                    self._unpacked_levels(block.packed[head, part], own.group_size)[None],
                    unit[head, part][None],
                )

            return partial_attention(scaled[:, None], block.packed.shape[3], reader(0), reader(1))

        merged = merge_partials(self._map(work, len(own.blocks), _DECODE_BLOCKS_FOR_THREADS))
        return _by_query(merged[:, 0])

    def _unpacked_levels(self, packed: "UInt8Array", group_size: int) -> "Float32Array":
        """Return the levels 2·code - 3 of a packed tile, float32, shape (groups, group_size, tokens)."""
        quarter, tokens = packed.shape
        levels = np.empty((quarter, 4, tokens), dtype=np.uint8)
        # 2·code straight from the byte: a code's two bits are moved to bits 1 and 2.
        np.add(packed, packed, out=levels[:, 0])
        for lane in (1, 2, 3):
            np.right_shift(packed, 2 * lane - 1, out=levels[:, lane])
        levels &= 6
        levels -= 3
        shape = (quarter * 4 // group_size, group_size, tokens)
        out = self._scratch.take("levels", shape)
        np.copyto(out, levels.view(np.int8).reshape(shape))
        return out

    def project(self, heads: "Float32Array", w_o: "Float32Array") -> "Float32Array":
        """Return the outputs after W_O; see `Backend.project`. Float32 sums over heads and channels."""
        flat = w_o.reshape(-1, w_o.shape[-1])
        outputs: Float32Array = np.einsum("qc,co->qo", heads.reshape(heads.shape[0], -1), flat)
        return outputs

    def nmse(self, observed: "Float32Array", reference: "Float32Array") -> "Float64Array":
        """Return the NMSE of every query; see `producer.metrics.nmse`."""
        return nmse(observed, reference)


def _row_absmax(rows: "Float32Array") -> "Float32Array":
    """Return the row maxima of tiles (heads, groups, group_size, tokens), and raise if one is not finite."""
    absmax = dialect.row_absmax(rows, axis=2)
    if not np.isfinite(absmax).all():
        raise NonFiniteError("a row of the cache holds NaN or infinity: every value must be finite")
    return absmax


def _scaled_queries(queries: "Float32Array", rotation: "Rotation", group_size: int) -> "Float32Array":
    """Return rotated queries divided by √head_dim, by head: (heads, Q, groups, group_size), float32."""
    require_finite(queries, "queries")
    count, heads, d = queries.shape
    rotated = rotation.rotate(queries) / np.float32(math.sqrt(d))
    by_head: Float32Array = np.ascontiguousarray(rotated.transpose(1, 0, 2))
    return by_head.reshape((heads, count, d // group_size, group_size))


def _by_query(heads: "Float32Array") -> "Float32Array":
    """Return (heads, Q, head_dim) as (Q, heads, head_dim), C order."""
    return np.ascontiguousarray(heads.transpose(1, 0, 2))
