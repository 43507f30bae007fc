"""The synthetic attention slice: keys, values, output weights and queries from one random stream.

Order of draws: K, V (both in the flat order (token, head, channel)), W_O, then queries, each (head, channel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.backend.kv_blocks import BlockSource, KVSource, block_ranges, copy_channel_major, empty_block
from producer.backend.scratch import Scratch
from producer.numerics.mt19937 import NormalStream, StreamMark

if TYPE_CHECKING:
    from producer.experiment.slice.spec import SliceSpec
    from producer.numerics.arrays import Float32Array

__all__ = ["RESIDENT_BYTES", "StreamedSource", "SyntheticSlice", "build_slice", "float_cache_bytes"]

#: A float cache up to this size is kept in memory; a larger one is generated again for every pass over it.
RESIDENT_BYTES = 256 * 2**20


def float_cache_bytes(spec: SliceSpec) -> int:
    """Return the bytes of float32 K and V."""
    return 2 * 4 * spec.seq_len * spec.row_width


def _draw_into(
    out: Float32Array, stream: NormalStream, spec: SliceSpec, start: int, scratch: Scratch
) -> None:
    """Draw K or V from token `start` on to `out`, (num_kv_heads, head_dim, tokens), outliers multiplied."""
    tokens = out.shape[2]
    flat = scratch.take("flat", (tokens * spec.row_width,))
    stream.fill(flat)
    first = start * spec.row_width
    flat[-first % spec.outlier_stride :: spec.outlier_stride] *= np.float32(spec.outlier_factor)
    copy_channel_major(flat.reshape(tokens, spec.num_kv_heads, spec.head_dim).transpose(1, 2, 0), out)


class StreamedSource:
    """A synthetic float cache that is generated when it is read, and never kept.

    Parameters
    ----------
    spec : SliceSpec
    marks : list of (StreamMark, StreamMark)
        Position of the stream at the start of every block of K, and of V.
    """

    def __init__(self, spec: SliceSpec, marks: list[tuple[StreamMark, StreamMark]]) -> None:
        self._spec = spec
        self._ranges = block_ranges(spec.seq_len, spec.head_dim)
        self._marks = marks
        self._scratch = Scratch()
        self.seq_len = spec.seq_len
        self.num_kv_heads = spec.num_kv_heads
        self.head_dim = spec.head_dim
        self.num_blocks = len(self._ranges)

    def block(self, index: int) -> Float32Array:
        """Return block `index`, generated anew in this thread's buffer."""
        start, end = self._ranges[index]
        block = self._scratch.take("block", (self.num_kv_heads, 2, self.head_dim, end - start))
        for part, mark in enumerate(self._marks[index]):
            _draw_into(block[:, part], NormalStream.at(mark), self._spec, start, self._scratch)
        return block


@dataclass(frozen=True, slots=True)
class SyntheticSlice:
    """A slice whose cache and output weights are drawn; its queries are drawn on demand.

    Attributes
    ----------
    spec : SliceSpec
    source : KVSource
        K and V.
    w_o : float32, shape (num_kv_heads, head_dim, output_dim)
        Output weights, each a normal divided by √(H·d).
    stream : NormalStream
        Stands after W_O: queries come from here.
    """

    spec: SliceSpec
    source: KVSource
    w_o: Float32Array
    stream: NormalStream

    def draw_queries(self, count: int) -> Float32Array:
        """Return the next `count` queries, shape (count, num_kv_heads, head_dim), float32."""
        spec = self.spec
        return self.stream.normals(count * spec.row_width).reshape(count, spec.num_kv_heads, spec.head_dim)


def build_slice(spec: SliceSpec, resident_bytes: int = RESIDENT_BYTES) -> SyntheticSlice:
    """Return the slice of a specification.

    Parameters
    ----------
    spec : SliceSpec
    resident_bytes : int
        A float cache above this size is not kept but generated again whenever it is read. The values are
        the same either way.

    Notes
    -----
    Follows docs/methods/numerics.md E1-E3 and the draw order at the head of this module.
    """
    stream = NormalStream(spec.seed)
    ranges = block_ranges(spec.seq_len, spec.head_dim)
    source: KVSource
    if float_cache_bytes(spec) <= resident_bytes:
        blocks = [empty_block(spec.num_kv_heads, spec.head_dim, end - start) for start, end in ranges]
        scratch = Scratch()
        for part in (0, 1):
            for block, (start, _) in zip(blocks, ranges, strict=True):
                _draw_into(block[:, part], stream, spec, start, scratch)
        source = BlockSource(blocks)
    else:
        k_marks, v_marks = (
            [_pass_over(stream, (end - start) * spec.row_width) for start, end in ranges] for _ in "kv"
        )
        source = StreamedSource(spec, list(zip(k_marks, v_marks, strict=True)))
    w_o = stream.normals(spec.row_width * spec.output_dim)
    w_o /= np.float32(math.sqrt(spec.row_width))
    return SyntheticSlice(
        spec, source, w_o.reshape(spec.num_kv_heads, spec.head_dim, spec.output_dim), stream
    )


def _pass_over(stream: NormalStream, count: int) -> StreamMark:
    """Return the place of the stream, and pass over `count` values."""
    mark = stream.mark()
    stream.skip(count)
    return mark
