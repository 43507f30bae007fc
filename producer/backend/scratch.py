"""Scratch memory of NumPy's inner loops: aligned arrays, arrays used again, and the ufunc buffer.

None of this changes a value; it decides whether a pass over a tile runs from the cache or not.
"""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer.numerics.arrays import Float32Array

__all__ = ["Scratch", "aligned_empty", "unbuffered"]

# A cache line, and the width of the widest vector register.
_ALIGNMENT_BYTES = 64
# Smallest that NumPy takes.
_SMALL_BUFFER = 16


def aligned_empty(shape: tuple[int, ...]) -> Float32Array:
    """Return an uninitialised float32 array that starts on a cache line.

    Vector loads and stores that cross cache lines take about twice as long; plain NumPy arrays start 16 bytes
    after one.
    """
    items = math.prod(shape)
    raw = np.empty(items * 4 + _ALIGNMENT_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[start : start + items * 4].view(np.float32).reshape(shape)


class Scratch(threading.local):
    """Arrays that a thread uses again and again, by name: fresh large ones would cost page faults."""

    def __init__(self) -> None:
        self._arrays: dict[str, Float32Array] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Float32Array:
        """Return this thread's array of that name, with the contents it was left with."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape:
            array = self._arrays[name] = aligned_empty(shape)
        return array


@contextlib.contextmanager
def unbuffered() -> Iterator[None]:
    """Keep NumPy from copying strided operands to its buffer before an operation.

    With the default buffer, operations whose inner loop is shorter than about 2000 elements run four times
    slower although no operand needs a conversion. The setting is per thread and is restored.
    """
    before = np.setbufsize(_SMALL_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)
