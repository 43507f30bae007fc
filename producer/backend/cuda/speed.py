"""Speed table of the kernels: times by events, beside the floors of the kernels' page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.backend.cuda import launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.backend.cuda.device import Device, DeviceArray

__all__ = ["Measurement", "measure", "speed_table"]

_REPEATS = 20
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the table.

    Attributes
    ----------
    kernel : str
    tokens, heads, head_dim : int
    floor_bytes : int
        Least number of bytes that the operation reads and writes.
    microseconds : float
        Median over rounds; each is the mean of repeated launches between two events, after a warm-up.
    bytes_per_second : float
        `floor_bytes` over the time.
    of_copy : float or None
        That as a share of the device's copy bandwidth, read and write counted.
    """

    kernel: str
    tokens: int
    heads: int
    head_dim: int
    floor_bytes: int
    microseconds: float
    bytes_per_second: float
    of_copy: float | None


def measure(device: Device, work: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Return the median device time of one call, in µs."""
    work()
    return float(np.median([device.time_us(work, repeats) for _ in range(_ROUNDS)]))


class _Table:
    """Collects measurements of one cache size."""

    def __init__(self, device: Device, tokens: int, heads: int, repeats: int) -> None:
        self.device, self.tokens, self.heads, self.repeats = device, tokens, heads, repeats
        self.copy_rate: float | None = None
        self.lines: list[Measurement] = []

    def add(self, kernel: str, floor_bytes: int, work: Callable[[], object]) -> float:
        """Measure one kernel and return its time in µs."""
        time_us = measure(self.device, work, self.repeats)
        rate = floor_bytes / time_us * 1e6
        if kernel == "copy":
            self.copy_rate = rate
        share = None if self.copy_rate is None else rate / self.copy_rate
        head_dim = self.device.variant.head_dim
        self.lines.append(
            Measurement(kernel, self.tokens, self.heads, head_dim, floor_bytes, time_us, rate, share)
        )
        return time_us


def speed_table(
    device: Device,
    tokens: int,
    heads: int,
    *,
    copy: Callable[[DeviceArray, DeviceArray], object],
    repeats: int = _REPEATS,
) -> list[dict[str, object]]:
    """Return the measurements for one cache size, as JSON values.

    Parameters
    ----------
    device : Device
    tokens, heads : int
    copy : callable
        Copies its second device array to its first on the device: the bandwidth that the others are compared with.
    repeats : int
        Launches between two events.

    Notes
    -----
    The cache is made of normals, once for 2¹⁴ rows and repeated, since generating it would take longer than all else.
    """
    table = _Table(device, tokens, heads, repeats)
    d = device.variant.head_dim
    rows = tokens * heads
    x = device.empty((heads, tokens, d), np.float32)
    flat = x.reshape(rows, d)
    some = np.random.default_rng(1).standard_normal((min(rows, 1 << 14), d)).astype(np.float32)
    for first in range(0, rows, len(some)):
        device.store(flat[first : first + len(some)], some[: rows - first])
    y = device.empty(x.shape, np.float32)
    table.add("copy", 2 * 4 * rows * d, lambda: copy(y, x))

    signs = device.upload(np.random.default_rng(2).choice(np.array([-1, 1], np.float32), d))
    k, v = (launch.empty_packed(device, (heads, tokens)) for _ in "kv")
    groups = d // device.variant.group_size
    packed_bytes = rows * (d // 4 + 4 * groups)
    table.add(
        "rotate_quantize_pack_float32",
        4 * rows * d + packed_bytes,
        lambda: launch.rotate_quantize_pack(device, x, 0.9, k, signs=signs),
    )
    halves = device.upload(some.astype(np.float16)[None])
    few = launch.empty_packed(device, halves.shape[:2])
    half_rows = halves.shape[1]
    table.add(
        f"rotate_quantize_pack_float16, {half_rows} rows",
        half_rows * (2 * d + d // 4 + 4 * groups),
        lambda: launch.rotate_quantize_pack(device, halves, 0.9, few, signs=signs),
    )
    launch.rotate_quantize_pack(device, x, 0.9, v, signs=signs)
    table.add("dequantize", packed_bytes + 4 * rows * d, lambda: launch.dequantize(device, k, y))
    for group in (1, 4):
        queries = device.upload(
            np.random.default_rng(3).standard_normal((1, heads * group, d)).astype(np.float32)
            / np.float32(d**0.5)
        )
        buffers = launch.attention_buffers(device, (1, heads * group), heads, tokens)
        table.add(
            f"attend_packed, {group} query heads a KV head",
            2 * packed_bytes,
            lambda queries=queries, buffers=buffers: launch.attend_packed(device, queries, k, v, buffers),  # type: ignore[misc]
        )
    return [asdict(line) for line in table.lines]
