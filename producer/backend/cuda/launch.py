"""Launches of the kernels: sizes, grids and arguments, under the names of the CPU functions.

Every function takes a `Device` first, and device arrays of the shapes that the kernel's header states. Nothing here
waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.backend.cuda.device import BLOCK_THREADS, NULL
from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.backend.cuda.device import Device, DeviceArray

__all__ = [
    "AttentionBuffers",
    "PackedRows",
    "attend_float",
    "attend_packed",
    "attention_buffers",
    "dequantize",
    "empty_packed",
    "project",
    "rotate",
    "rotate_quantize_pack",
    "rotate_quantize_pack_dense",
    "split_tokens",
    "squared_error",
    "unpack",
]

_LANE_CHANNELS = 16
_MIN_SPLIT_TOKENS = 256
_MAX_SPLIT_TOKENS = 1024
_SPLITS_WANTED = 256
_INPUTS = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}


def _blocks(wanted: int, device: Device) -> int:
    return max(1, min(wanted, device.blocks))


def _input_name(x: DeviceArray) -> str:
    """Return the kernel suffix of an input; bfloat16 comes as its bits, uint16."""
    name = _INPUTS.get(str(x.dtype))
    if name is None:
        raise SpecError(
            f"dtype {x.dtype} is not allowed: float32, float16, or uint16 that holds the bits of bfloat16"
        )
    return name


def _require_rows(x: DeviceArray, device: Device) -> int:
    """Return the number of rows of an array, and raise unless its last axis is a head."""
    head_dim = device.variant.head_dim
    if x.shape[-1] != head_dim or x.size == 0:
        raise SpecError(f"shape {x.shape} is not allowed: (…, {head_dim}), nothing empty")
    return math.prod(x.shape[:-1])


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Quantized rows in the device's memory.

    Attributes
    ----------
    packed : uint8, shape (…, head_dim / 4)
        Four consecutive channels a byte, the first in the lowest bits.
    scales : float32, shape (…, groups)
    nonfinite : int32, shape (1,)
        1 when an input was infinite or NaN since it was last set to 0.
    """

    packed: DeviceArray
    scales: DeviceArray
    nonfinite: DeviceArray


def empty_packed(device: Device, lead: tuple[int, ...]) -> PackedRows:
    """Return room for quantized rows; `lead` is the shape without its channel axis."""
    variant = device.variant
    return PackedRows(
        device.empty((*lead, variant.head_dim // 4), np.uint8),
        device.empty((*lead, variant.head_dim // variant.group_size), np.float32),
        device.upload(np.zeros(1, dtype=np.int32)),
    )


def rotate(device: Device, x: DeviceArray, signs: DeviceArray, out: DeviceArray) -> None:
    """Write H(s∘x)/√d of every row to `out`; twin of `SignedHadamard.rotate`, equal bit for bit.

    Parameters
    ----------
    device : Device
    x, out : float32, shape (…, head_dim)
        May be the same.
    signs : float32, shape (head_dim,)
    """
    rows = _require_rows(x, device)
    lanes = rows * device.variant.head_dim // _LANE_CHANNELS
    grid = (_blocks(-(-lanes // BLOCK_THREADS), device), 1, 1)
    device.launch("rotate", grid, (x, signs, _norm(device), np.int64(rows), out))


def _norm(device: Device) -> np.float32:
    """Return float32(1/√d), as `producer.transform.fast_hadamard` computes it."""
    return np.float32(1) / np.float32(math.sqrt(device.variant.head_dim))


def rotate_quantize_pack(
    device: Device,
    x: DeviceArray,
    clip_ratio: float,
    out: PackedRows,
    *,
    signs: DeviceArray | None = NULL,
    mean: DeviceArray | None = NULL,
) -> None:
    """Rotate, quantize and pack rows in one pass; codes and scales equal those of the CPU functions bit for bit.

    Parameters
    ----------
    device : Device
    x : float32, float16, or uint16 that holds bfloat16 bits, shape (heads, seq_len, head_dim)
    clip_ratio : float
        Above 0, at most 1.
    out : PackedRows
        For (heads, seq_len).
    signs : float32, shape (head_dim,), optional
        Of a signed Hadamard rotation; none for the identity.
    mean : float32, shape (heads, head_dim), optional
        Taken off before the rotation.

    Raises
    ------
    SpecError
        If shape, dtype or clip ratio is not allowed.
    """
    rows = _require_rows(x, device)
    _require_ratio(clip_ratio)
    lanes = rows * device.variant.head_dim // _LANE_CHANNELS
    device.launch(
        f"rotate_quantize_pack_{_input_name(x)}",
        (_blocks(-(-lanes // BLOCK_THREADS), device), 1, 1),
        (
            x,
            signs,
            mean,
            _norm(device),
            np.float32(clip_ratio),
            np.int64(x.shape[-2]),
            np.int64(rows),
            out.packed,
            out.scales,
            out.nonfinite,
        ),
    )


def rotate_quantize_pack_dense(
    device: Device,
    x: DeviceArray,
    matrix: DeviceArray,
    clip_ratio: float,
    out: PackedRows,
    *,
    mean: DeviceArray | None = NULL,
) -> None:
    """Multiply every row with its head's matrix (x R), quantize and pack; see `rotate_quantize_pack`.

    Parameters
    ----------
    device : Device
    x : float32, float16, or uint16 that holds bfloat16 bits, shape (heads, seq_len, head_dim)
    matrix : float32, shape (heads, head_dim, head_dim)
    clip_ratio : float
    out : PackedRows
        For (heads, seq_len).
    mean : float32, shape (heads, head_dim), optional
        Taken off before the product.

    Notes
    -----
    Products rounded, sums in the order of the channels; the tests have the twin in NumPy.
    """
    _require_rows(x, device)
    _require_ratio(clip_ratio)
    heads, seq_len, head_dim = x.shape
    if matrix.shape != (heads, head_dim, head_dim):
        raise SpecError(f"matrix {matrix.shape} is not allowed: {(heads, head_dim, head_dim)}")
    block_rows = BLOCK_THREADS * _LANE_CHANNELS // head_dim
    device.launch(
        f"rotate_quantize_pack_dense_{_input_name(x)}",
        (_blocks(-(-seq_len // block_rows), device), heads, 1),
        (
            x,
            matrix,
            mean,
            np.float32(clip_ratio),
            np.int64(seq_len),
            out.packed,
            out.scales,
            out.nonfinite,
        ),
    )


def _require_ratio(clip_ratio: float) -> None:
    if not 0 < clip_ratio <= 1:
        raise SpecError(f"clip ratio {clip_ratio!r} is not allowed: above 0, at most 1")


def unpack(device: Device, packed: DeviceArray, out: DeviceArray) -> None:
    """Write one byte a code, 0 … 3; twin of `producer.quantize.packing.unpack`.

    Parameters
    ----------
    device : Device
    packed : uint8, shape (…, head_dim / 4)
    out : uint8, shape (…, head_dim)
    """
    words = packed.size // 4
    grid = (_blocks(-(-words // BLOCK_THREADS), device), 1, 1)
    device.launch("unpack", grid, (packed, np.int64(words), out))


def dequantize(device: Device, rows: PackedRows, out: DeviceArray) -> None:
    """Write the values of quantized rows; twin of `symmetric_absmax_clip.dequantize`, equal bit for bit.

    Parameters
    ----------
    device : Device
    rows : PackedRows
    out : float32, shape (…, head_dim)
    """
    words = rows.packed.size // 4
    grid = (_blocks(-(-words // BLOCK_THREADS), device), 1, 1)
    device.launch("dequantize", grid, (rows.packed, rows.scales, np.int64(_require_rows(out, device)), out))


def split_tokens(seq_len: int) -> int:
    """Return the tokens of a split of the first pass: a power of two, 256 … 1024.

    It depends on the number of tokens alone, so that the order of all sums does too.
    """
    wanted = max(1, seq_len // _SPLITS_WANTED)
    return min(_MAX_SPLIT_TOKENS, max(_MIN_SPLIT_TOKENS, 1 << (wanted.bit_length() - 1)))


@dataclass(frozen=True, slots=True)
class AttentionBuffers:
    """Room for the two passes of an attention.

    Attributes
    ----------
    top, total : float32, shape (num_kv_heads, rows, splits)
    sums : float32, shape (num_kv_heads, rows, splits, head_dim)
    outputs : float32, shape (queries, num_heads, head_dim)
    """

    top: DeviceArray
    total: DeviceArray
    sums: DeviceArray
    outputs: DeviceArray


def attention_buffers(
    device: Device, queries: tuple[int, int], num_kv_heads: int, seq_len: int
) -> AttentionBuffers:
    """Return room for an attention.

    Parameters
    ----------
    device : Device
    queries : (int, int)
        Queries and query heads.
    num_kv_heads : int
    seq_len : int

    Raises
    ------
    SpecError
        If the KV heads do not divide the query heads.
    """
    count, num_heads = queries
    if num_heads % num_kv_heads:
        raise SpecError(
            f"{num_heads} query heads on {num_kv_heads} KV heads are not allowed: a multiple is needed"
        )
    rows = count * num_heads // num_kv_heads
    splits = -(-seq_len // split_tokens(seq_len))
    head_dim = device.variant.head_dim
    lead = (num_kv_heads, rows, splits)
    return AttentionBuffers(
        device.empty(lead, np.float32),
        device.empty(lead, np.float32),
        device.empty((*lead, head_dim), np.float32),
        device.empty((count, num_heads, head_dim), np.float32),
    )


def attend_packed(
    device: Device, queries: DeviceArray, k: PackedRows, v: PackedRows, buffers: AttentionBuffers
) -> None:
    """Write attention outputs that read the packed cache to ``buffers.outputs``.

    Twin of `NumpyBackend.attend_packed`, equal within the bound of docs/methods/kernels.md.

    Parameters
    ----------
    device : Device
    queries : float32, shape (queries, num_heads, head_dim)
        Rotated as the keys are, divided by √head_dim.
    k, v : PackedRows
        For (num_kv_heads, seq_len).
    buffers : AttentionBuffers
    """
    heads, seq_len = k.packed.shape[:2]
    cache = (k.packed, k.scales, v.packed, v.scales)
    _attend(device, "attend_packed", queries, cache, heads, seq_len, buffers)


def attend_float(
    device: Device, queries: DeviceArray, k: DeviceArray, v: DeviceArray, buffers: AttentionBuffers
) -> None:
    """Write attention outputs of the unquantized cache to ``buffers.outputs``; see `attend_packed`.

    Parameters
    ----------
    device : Device
    queries : float32, shape (queries, num_heads, head_dim)
    k, v : float32, shape (num_kv_heads, seq_len, head_dim)
    buffers : AttentionBuffers
    """
    heads, seq_len = k.shape[:2]
    _attend(device, "attend_float", queries, (k, v), heads, seq_len, buffers)


def _attend(
    device: Device,
    kernel: str,
    queries: DeviceArray,
    cache: tuple[DeviceArray, ...],
    num_kv_heads: int,
    seq_len: int,
    buffers: AttentionBuffers,
) -> None:
    """Launch both passes."""
    _require_rows(queries, device)
    count, num_heads, _ = queries.shape
    group = num_heads // num_kv_heads
    rows = count * group
    split = split_tokens(seq_len)
    splits = -(-seq_len // split)
    tile = next(size for size in (4, 2, 1) if rows >= size)
    device.launch(
        f"{kernel}_{tile}",
        (splits, num_kv_heads, -(-rows // tile)),
        (
            queries,
            *cache,
            np.int32(rows),
            np.int32(group),
            np.int64(seq_len),
            np.int32(split),
            buffers.top,
            buffers.total,
            buffers.sums,
        ),
    )
    device.launch(
        "merge_partials",
        (rows, num_kv_heads, 1),
        (buffers.top, buffers.total, buffers.sums, np.int32(splits), np.int32(group), buffers.outputs),
    )


def project(device: Device, heads: DeviceArray, w_o: DeviceArray, out: DeviceArray) -> None:
    """Write head outputs times W_O; twin of `NumpyBackend.project`.

    Parameters
    ----------
    device : Device
    heads : float32, shape (queries, num_heads, head_dim)
    w_o : float32, shape (num_heads, head_dim, output_dim)
    out : float32, shape (queries, output_dim)
    """
    count, output_dim = out.shape
    width = heads.size // count
    grid = (-(-output_dim // BLOCK_THREADS), count, 1)
    device.launch("project", grid, (heads, w_o, np.int32(width), np.int32(output_dim), out))


def squared_error(
    device: Device,
    observed: DeviceArray,
    reference: DeviceArray,
    error: DeviceArray,
    power: DeviceArray,
) -> None:
    """Write Σ(a - b)² and Σb² of every query, the two sums of `producer.numerics.nmse.nmse`.

    Parameters
    ----------
    device : Device
    observed, reference : float32, shape (queries, width)
    error, power : float64, shape (queries,)
    """
    count, width = observed.shape
    device.launch("squared_error", (count, 1, 1), (observed, reference, np.int64(width), error, power))
