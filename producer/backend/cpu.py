"""The NumPy backend: one tile of a block and a head at a time, small enough for a core's cache.

It works in the thread that calls it. Candidates are spread over cores by `producer.system.processes`, whole, so
the number of cores changes no bit.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from producer.backend.base import Decoded, RuntimeInfo
from producer.backend.blockwise_attention import Partial, merge_partials, partial_attention
from producer.backend.kv_blocks import BlockSource, KVSource, empty_block
from producer.backend.scratch import Scratch, unbuffered
from producer.errors import NonFiniteError, SpecError
from producer.numerics.arrays import require_finite
from producer.numerics.nmse import nmse
from producer.quantize import symmetric_absmax_clip as dialect
from producer.quantize.packing import pack
from producer.quantize.steps import split_groups
from producer.system.processes import default_workers
from producer.transform import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.backend.base import PackedCache, RotatedCache
    from producer.backend.blockwise_attention import TileReader
    from producer.numerics.arrays import Float32Array, Float64Array, UInt8Array
    from producer.transform import Rotation

__all__ = ["NumpyBackend", "NumpyPackedCache", "NumpyRotatedCache", "PackedBlock"]

_Result = TypeVar("_Result")
_LEVELS = np.float32(1.5)
_MAX_WORKERS = 256


@dataclass(frozen=True, slots=True)
class NumpyRotatedCache:
    """A float cache after a rotation; see `producer.backend.base.RotatedCache`."""

    source: KVSource
    rotation: Rotation


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """One block of a packed cache, keys then values.

    Attributes
    ----------
    packed : uint8, shape (num_kv_heads, 2, head_dim / 4, tokens)
        Four consecutive channels a byte, the first in the lowest bits.
    scale : float32, shape (num_kv_heads, 2, groups, tokens)
    """

    packed: UInt8Array
    scale: Float32Array


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
    rotation: Rotation
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

    def __init__(self, source: KVSource, rotation: Rotation) -> None:
        self._source = source
        self._rotation = rotation
        self._scratch = Scratch()
        self.seq_len = source.seq_len
        self.num_kv_heads = source.num_kv_heads
        self.head_dim = source.head_dim
        self.num_blocks = source.num_blocks

    def block(self, index: int) -> Float32Array:
        block = self._source.block(index)
        return rotate_block(block, self._rotation, self._scratch.take("block", block.shape), self._scratch)


def rotate_block(
    block: Float32Array, rotation: Rotation, out: Float32Array, scratch: Scratch
) -> Float32Array:
    """Write a block to `out`, rotated head by head so that a tile stays in the cache, and return `out`."""
    for head, target in zip(block, out, strict=True):
        for tile, rotated in zip(head, target, strict=True):
            rotation.rotate(tile, axis=0, out=rotated, scratch=scratch.take("rotate", tile.shape))
    return out


class NumpyBackend:
    """Attention in NumPy on the cores of this machine.

    Parameters
    ----------
    workers : int, optional
        Cores over which a protocol may spread its candidates, 1 … 256; by default all that this process may use.

    Raises
    ------
    SpecError
        If `workers` is outside its range.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = default_workers() if workers is None else workers
        if not 1 <= self.workers <= _MAX_WORKERS:
            raise SpecError(f"threads {self.workers} is not allowed: an integer 1 … {_MAX_WORKERS}")
        self.runtime = RuntimeInfo(
            name="numpy",
            version=np.__version__,
            driver="none",
            kernel="kvint2eval-numpy-blocks-v1",
            gpu="",
            gpu_memory_bytes=0,
        )
        self._scratch = Scratch()

    def describe(self) -> dict[str, object]:
        """Return nothing: the environment says it all."""
        return {}

    def rotate(
        self, source: KVSource, rotation: Rotation, spare: RotatedCache | None = None
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

        def work(index: int) -> Float32Array:
            block = source.block(index)
            heads, _, d, tokens = block.shape
            out = empty_block(heads, d, tokens) if room is None else room.block(index)
            return rotate_block(block, rotation, out, self._scratch)

        return NumpyRotatedCache(BlockSource(_each(work, source.num_blocks)), rotation)

    def attend_float(self, cache: RotatedCache, queries: Float32Array) -> Float32Array:
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

        merged = merge_partials(_each(work, own.source.num_blocks))
        return _by_query(merged[0])

    def search_clips(
        self, cache: RotatedCache, queries: Float32Array, ratios: Sequence[float], group_size: int
    ) -> Float32Array:
        """Return head outputs of the quantized cache for every clip ratio; see `Backend.search_clips`.

        The row maxima are computed once for all ratios. The codes are used as they come from the quantizer,
        without packing: as code - 1.5, half the levels 2·code - 3 of the packed cache, worth twice as much.
        The products are those of `attend_packed` bit for bit.
        """
        own = cast("NumpyRotatedCache", cache)
        scaled = _scaled_queries(queries, own.rotation, group_size)

        def work(index: int) -> list[Partial]:
            block = own.source.block(index)
            return [self._search_head(tiles, scaled[head], ratios) for head, tiles in enumerate(block)]

        blocks = _each(work, own.source.num_blocks)
        merged = [merge_partials(partials) for partials in zip(*blocks, strict=True)]
        return np.ascontiguousarray(np.concatenate(merged, axis=1).transpose(0, 2, 1, 3))

    def _search_head(self, tiles: Float32Array, queries: Float32Array, ratios: Sequence[float]) -> Partial:
        """Return the softmax sums of one head of a block, one read a clip ratio."""
        group_size = queries.shape[2]

        def reader(part: int) -> TileReader:
            rows = split_groups(tiles[part], group_size, 0)
            absmax = _row_absmax(rows)

            def read(index: int) -> tuple[Float32Array, Float32Array]:
                scale = dialect.row_scale(absmax, ratios[index])
                levels = dialect.code_values(rows, scale, self._scratch.take("levels", rows.shape))
                levels -= _LEVELS
                return levels[None], scale[None, :, 0] / _LEVELS

            return read

        reads = np.broadcast_to(queries[None], (len(ratios), 1, *queries.shape))
        return partial_attention(reads, tiles.shape[2], reader(0), reader(1))

    def quantize_pack(self, cache: RotatedCache, ratio: float, group_size: int) -> NumpyPackedCache:
        """Return the cache quantized and packed; see `Backend.quantize_pack`."""
        own = cast("NumpyRotatedCache", cache)

        def work(index: int) -> PackedBlock:
            block = own.source.block(index)
            heads, parts, d, tokens = block.shape
            packed = np.empty((heads, parts, d // 4, tokens), dtype=np.uint8)
            scales = np.empty((heads, parts, d // group_size, tokens), dtype=np.float32)
            codes = self._scratch.take("bytes", (d // 4, tokens)).view(np.uint8).reshape(d, tokens)
            for head, part in np.ndindex(heads, parts):
                rows = split_groups(block[head, part], group_size, 0)
                scale = dialect.row_scale(_row_absmax(rows), ratio)
                values = dialect.code_values(rows, scale, self._scratch.take("levels", rows.shape))
                np.copyto(codes, values.reshape(codes.shape), casting="unsafe")
                packed[head, part] = pack(codes, axis=0)
                scales[head, part] = scale[:, 0]
            return PackedBlock(packed, scales)

        return NumpyPackedCache(_each(work, own.source.num_blocks), own.rotation, group_size)

    def attend_packed(self, cache: PackedCache, queries: Float32Array) -> Float32Array:
        """Return head outputs that read the packed cache; see `Backend.attend_packed`."""
        own = cast("NumpyPackedCache", cache)
        scaled = _scaled_queries(queries, own.rotation, own.group_size)

        def work(index: int) -> Partial:
            block = own.blocks[index]
            unit = block.scale / dialect.LEVELS_PER_SCALE

            def reader(part: int) -> TileReader:
                return lambda head: (
                    self._unpacked_levels(block.packed[head, part], own.group_size)[None],
                    unit[head, part][None],
                )

            return partial_attention(scaled[:, None], block.packed.shape[3], reader(0), reader(1))

        merged = merge_partials(_each(work, len(own.blocks)))
        return _by_query(merged[:, 0])

    def attend_packed_keys(
        self, cache: PackedCache, values: RotatedCache, queries: Float32Array
    ) -> Float32Array:
        """Return head outputs of packed keys and float values; see `SplittingBackend.attend_packed_keys`."""
        own, floats = cast("NumpyPackedCache", cache), cast("NumpyRotatedCache", values)
        scaled = _scaled_queries(queries, own.rotation, own.group_size)

        def work(index: int) -> Partial:
            block, plain = own.blocks[index], floats.source.block(index)
            unit = block.scale / dialect.LEVELS_PER_SCALE
            rows = (1, -1, own.group_size, plain.shape[3])
            ones = np.ones((1, *unit.shape[2:]), dtype=np.float32)
            return partial_attention(
                scaled[:, None],
                block.packed.shape[3],
                lambda head: (
                    self._unpacked_levels(block.packed[head, 0], own.group_size)[None],
                    unit[head, 0][None],
                ),
                lambda head: (plain[head, 1].reshape(rows), ones),
            )

        merged = merge_partials(_each(work, len(own.blocks)))
        return _by_query(merged[:, 0])

    def _unpacked_levels(self, packed: UInt8Array, group_size: int) -> Float32Array:
        """Return the levels 2·code - 3 of a packed tile, float32, shape (groups, group_size, tokens)."""
        quarter, tokens = packed.shape
        # Four bytes a float32: as many as there are codes.
        levels = self._scratch.take("bytes", packed.shape).view(np.uint8).reshape(quarter, 4, tokens)
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

    def decode(self, cache: PackedCache, query: Float32Array, w_o: Float32Array) -> Decoded:
        """Return the output of one decode step and its wall time; see `Backend.decode`."""
        start = time.perf_counter()
        outputs = self.project(self.attend_packed(cache, query), w_o)
        elapsed_us = 1e6 * (time.perf_counter() - start)
        return Decoded(outputs, elapsed_us, elapsed_us)

    def project(self, heads: Float32Array, w_o: Float32Array) -> Float32Array:
        """Return the outputs after W_O; see `Backend.project`. Float32 sums over heads and channels."""
        flat = w_o.reshape(-1, w_o.shape[-1])
        outputs: Float32Array = np.einsum("qc,co->qo", heads.reshape(heads.shape[0], -1), flat)
        return outputs

    def nmse(self, observed: Float32Array, reference: Float32Array) -> Float64Array:
        """Return the NMSE of every query; see `producer.numerics.nmse.nmse`."""
        return nmse(observed, reference)


def _each(work: Callable[[int], _Result], count: int) -> list[_Result]:
    """Return ``[work(0), …, work(count - 1)]``, NumPy set for tiles."""
    with unbuffered():
        return [work(index) for index in range(count)]


def _row_absmax(rows: Float32Array) -> Float32Array:
    """Return the row maxima of a tile (groups, group_size, tokens), and raise if one is not finite."""
    absmax = dialect.row_absmax(rows, axis=1)
    if not np.isfinite(absmax).all():
        raise NonFiniteError("a row of the cache holds NaN or infinity: every value must be finite")
    return absmax


def _scaled_queries(queries: Float32Array, rotation: Rotation, group_size: int) -> Float32Array:
    """Return rotated queries divided by √head_dim, by head: (heads, Q, groups, group_size), float32."""
    require_finite(queries, "queries")
    count, heads, d = queries.shape
    rotated = rotation.rotate(queries) / np.float32(math.sqrt(d))
    by_head: Float32Array = np.ascontiguousarray(rotated.transpose(1, 0, 2))
    return by_head.reshape((heads, count, d // group_size, group_size))


def _by_query(heads: Float32Array) -> Float32Array:
    """Return (heads, Q, head_dim) as (Q, heads, head_dim), C order."""
    return np.ascontiguousarray(heads.transpose(1, 0, 2))
