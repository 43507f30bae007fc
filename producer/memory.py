"""How much memory a run needs, counted before it starts."""

from typing import TYPE_CHECKING

from producer.environment import available_bytes
from producer.errors import MemoryLimitError
from producer.source import block_ranges
from producer.synthetic import RESIDENT_BYTES, float_cache_bytes

if TYPE_CHECKING:
    from producer.spec import ProtocolSpec, SliceSpec

__all__ = ["needed_bytes", "require_memory"]

# Interpreter, NumPy and code: measured at 45 MB, rounded up.
_BASE_BYTES = 64 * 2**20
# Arrays of the size of a block that a thread holds at once: the block, its rotation, levels, temporaries.
_BLOCKS_PER_THREAD = 4
_STREAM_MARK_BYTES = 3000


def needed_bytes(
    spec: "SliceSpec", protocol: "ProtocolSpec", threads: int, resident_bytes: int = RESIDENT_BYTES
) -> int:
    """Return the bytes that a run holds at its peak, an upper estimate.

    Parameters
    ----------
    spec : SliceSpec
    protocol : ProtocolSpec
    threads : int
        Worker threads.
    resident_bytes : int
        Float caches up to this size are kept; see `producer.synthetic.build_slice`.

    Notes
    -----
    Float cache (plain and rotated) where it is kept, one packed cache with its scales, W_O plain and rotated, all
    queries with their outputs, and the blocks in flight.
    """
    blocks = block_ranges(spec.seq_len, spec.head_dim)
    block_bytes = 2 * 4 * spec.row_width * (blocks[0][1] - blocks[0][0])
    floats = float_cache_bytes(spec)
    held = 2 * floats if floats <= resident_bytes else 2 * len(blocks) * _STREAM_MARK_BYTES
    rows = 2 * spec.seq_len * spec.num_kv_heads
    packed = rows * spec.head_dim // 4 + rows * (spec.head_dim // protocol.group_size) * 4
    weights = 2 * 4 * spec.row_width * spec.output_dim
    sets = 1 if protocol.shared_evaluation else protocol.num_rotations + 1
    queries = protocol.calibration_queries + sets * protocol.evaluation_queries
    query_bytes = queries * 4 * (4 * spec.row_width + 2 * spec.output_dim)
    return _BASE_BYTES + held + packed + weights + query_bytes + threads * _BLOCKS_PER_THREAD * block_bytes


def require_memory(
    spec: "SliceSpec", protocol: "ProtocolSpec", threads: int, limit_bytes: int | None = None
) -> None:
    """Raise when a run would not fit.

    Parameters
    ----------
    spec : SliceSpec
    protocol : ProtocolSpec
    threads : int
    limit_bytes : int, optional
        What the run may hold; by default what this machine has free.

    Raises
    ------
    MemoryLimitError
        With the bytes it would need.
    """
    needed = needed_bytes(spec, protocol, threads)
    limit = available_bytes() if limit_bytes is None else limit_bytes
    if limit is not None and needed > limit:
        raise MemoryLimitError(
            f"{spec.seq_len} tokens x {spec.num_kv_heads} heads x {spec.head_dim} channels need {needed} bytes of "
            f"memory, allowed are {limit}: take fewer tokens, heads or threads, or raise --memory-limit",
            needed_bytes=needed,
            limit_bytes=limit,
        )
