"""Memory need of a run, counted before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.backend.kv_blocks import block_ranges
from producer.errors import MemoryLimitError
from producer.experiment.slice.synthetic import RESIDENT_BYTES, float_cache_bytes
from producer.system.environment import available_bytes

if TYPE_CHECKING:
    from producer.experiment.slice.spec import SliceProtocol, SliceSpec

__all__ = ["needed_bytes", "require_memory"]

# Interpreter, NumPy and code: measured at 45 MB, rounded up.
_BASE_BYTES = 64 * 2**20
# Arrays of the size of a block that a process holds at once: the block, its rotation, levels, temporaries.
_BLOCKS_AT_ONCE = 4
_STREAM_MARK_BYTES = 3000


def needed_bytes(
    spec: SliceSpec, protocol: SliceProtocol, workers: int, resident_bytes: int = RESIDENT_BYTES
) -> int:
    """Return the bytes that a run holds at its peak, all its processes together, an upper estimate.

    Parameters
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    workers : int
        Processes.
    resident_bytes : int
        Float caches up to this size are kept; see `producer.experiment.slice.synthetic.build_slice`.

    Notes
    -----
    Once: the float cache where it is kept, W_O, all queries with their outputs. For every process: the
    interpreter, the rotated cache where it is kept, one packed cache with its scales, and the blocks in flight.
    """
    blocks = block_ranges(spec.seq_len, spec.head_dim)
    block_bytes = 2 * 4 * spec.row_width * (blocks[0][1] - blocks[0][0])
    floats = float_cache_bytes(spec)
    kept = floats if floats <= resident_bytes else 0
    marks = 0 if kept else 2 * len(blocks) * _STREAM_MARK_BYTES
    rows = 2 * spec.seq_len * spec.num_kv_heads
    packed = rows * spec.head_dim // 4 + rows * (spec.head_dim // protocol.group_size) * 4
    weights = 2 * 4 * spec.row_width * spec.output_dim
    sets = 1 if protocol.shared_evaluation else protocol.num_rotations + 1
    queries = protocol.calibration_queries + sets * protocol.evaluation_queries
    query_bytes = queries * 4 * (4 * spec.row_width + 2 * spec.output_dim)
    processes = min(workers, protocol.num_rotations + 1)
    each = _BASE_BYTES + kept + packed + _BLOCKS_AT_ONCE * block_bytes
    return kept + marks + weights + query_bytes + processes * each


def require_memory(
    spec: SliceSpec, protocol: SliceProtocol, workers: int, limit_bytes: int | None = None
) -> None:
    """Raise when a run would not fit.

    Parameters
    ----------
    spec : SliceSpec
    protocol : SliceProtocol
    workers : int
    limit_bytes : int, optional
        What the run may hold; by default what this machine has free.

    Raises
    ------
    MemoryLimitError
        With the bytes it would need.
    """
    needed = needed_bytes(spec, protocol, workers)
    limit = available_bytes() if limit_bytes is None else limit_bytes
    if limit is not None and needed > limit:
        raise MemoryLimitError(
            f"{spec.seq_len} tokens x {spec.num_kv_heads} heads x {spec.head_dim} channels need {needed} bytes of "
            f"memory, allowed are {limit}: take fewer tokens or heads, or fewer --threads, or raise --memory-limit",
            needed_bytes=needed,
            limit_bytes=limit,
        )
