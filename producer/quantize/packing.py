"""Packing of codes into bytes, and the orders in which they lie in memory.

Basic order: the first code of a group of four occupies the lowest two bits of its byte, the fourth the highest.

===========  ====  ==========================================================================
name         bits  order along the channel axis
===========  ====  ==========================================================================
consecutive  2     four consecutive codes a byte, the first in the lowest bits
quartered    2     byte i: channels i, d/4+i, d/2+i, 3d/4+i, the first in the lowest bits
int32        2     sixteen consecutive codes a 32-bit word, the first in the lowest bits
three-bit    3     eight consecutive codes in 24 bits, little endian, the first in the lowest
nibbles      4     two consecutive codes a byte, the first in the lower half
bytes        8     a code a byte
===========  ====  ==========================================================================

Read in the wrong order a row is a permutation of itself: norms and histograms cannot tell, only its elements.
The layouts take the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.numerics.arrays import UInt8Array

__all__ = ["CODES_PER_BYTE", "LAYOUTS", "Layout", "get_layout", "pack", "unpack"]

_WORD = np.dtype("<i4")
CODES_PER_BYTE = 4


def pack(codes: UInt8Array, axis: int = -1) -> UInt8Array:
    """Return codes packed four to a byte along an axis (E8).

    Parameters
    ----------
    codes : uint8, each 0 … 3
        Length along `axis` is a multiple of 4.
    axis : int
        Axis whose consecutive codes share a byte.

    Returns
    -------
    uint8
        Same shape, but a quarter of the length along `axis`: byte j is
        c[4j] + 4·c[4j+1] + 16·c[4j+2] + 64·c[4j+3].

    Raises
    ------
    SpecError
        If the length is no multiple of 4 or a code is above 3.
    """
    length = codes.shape[axis]
    if length % CODES_PER_BYTE:
        raise SpecError(f"{length} codes along axis {axis} do not fill bytes: a multiple of 4 is needed")
    if codes.size and int(codes.max()) > 3:
        raise SpecError(f"code {int(codes.max())} is not allowed: a 2-bit code is 0 … 3")
    axis %= codes.ndim
    groups = codes.reshape(*codes.shape[:axis], length // 4, 4, *codes.shape[axis + 1 :])
    lanes = np.moveaxis(groups, axis + 1, 0)
    # Horner's scheme: NumPy multiplies bytes about seven times faster than it shifts them to the left.
    four = np.uint8(4)
    packed: UInt8Array = lanes[3] * four
    for index in (2, 1):
        packed += lanes[index]
        packed *= four
    packed += lanes[0]
    return packed


def unpack(packed: UInt8Array, axis: int = -1) -> UInt8Array:
    """Return the codes of packed bytes, four times as long along `axis`: the inverse of `pack`.

    Parameters
    ----------
    packed : uint8, any shape
    axis : int
        Axis along which the codes were packed.

    Returns
    -------
    uint8, each 0 … 3
    """
    axis %= packed.ndim
    shape = packed.shape
    codes = np.empty((*shape[: axis + 1], 4, *shape[axis + 1 :]), dtype=np.uint8)
    for index, lane in enumerate(np.moveaxis(codes, axis + 1, 0)):
        np.right_shift(packed, 2 * index, out=lane)
    codes &= 3
    return codes.reshape(*shape[:axis], shape[axis] * 4, *shape[axis + 1 :])


@dataclass(frozen=True, slots=True)
class Layout:
    """One order of codes.

    Attributes
    ----------
    name : str
    bits : int
        Bits of a code.
    codes_per_unit : int
        The number of codes is a multiple of it.
    pack : callable
        Codes, uint8, shape (…, n) → stored array, uint8 or little-endian int32, its last axis shorter.
    unpack : callable
        The inverse of `pack`.
    """

    name: str
    bits: int
    codes_per_unit: int
    _pack: Callable[[UInt8Array], npt.NDArray[np.integer]]
    _unpack: Callable[[npt.NDArray[np.integer]], UInt8Array]

    def pack(self, codes: UInt8Array) -> npt.NDArray[np.integer]:
        """Return codes as stored.

        Raises
        ------
        SpecError
            If the number of codes does not fill whole units, or a code has more bits than the layout.
        """
        count = codes.shape[-1]
        if count % self.codes_per_unit:
            raise SpecError(
                f"{count} codes do not fill units of layout {self.name}: a multiple of {self.codes_per_unit} is needed"
            )
        top = 2**self.bits - 1
        if codes.size and int(codes.max()) > top:
            raise SpecError(f"code {int(codes.max())} is not allowed in layout {self.name}: 0 … {top}")
        return self._pack(codes)

    def unpack(self, stored: npt.NDArray[np.integer]) -> UInt8Array:
        """Return the codes of a stored array, uint8."""
        return self._unpack(stored)


def _pack_quartered(codes: UInt8Array) -> UInt8Array:
    quarters = codes.reshape(*codes.shape[:-1], 4, codes.shape[-1] // 4)
    return pack(quarters, axis=-2)[..., 0, :]


def _unpack_quartered(stored: npt.NDArray[np.integer]) -> UInt8Array:
    quarters = unpack(stored.astype(np.uint8, copy=False)[..., None, :], axis=-2)
    return quarters.reshape(*stored.shape[:-1], stored.shape[-1] * 4)


def _pack_words(codes: UInt8Array) -> npt.NDArray[np.integer]:
    # Four consecutive codes a byte, and the bytes of a little-endian word in rising order, are the same bits.
    return np.ascontiguousarray(pack(codes)).view(_WORD)


def _unpack_words(stored: npt.NDArray[np.integer]) -> UInt8Array:
    return unpack(np.ascontiguousarray(stored, dtype=_WORD).view(np.uint8))


def _pack_three_bit(codes: UInt8Array) -> UInt8Array:
    units = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 8, 8).astype(np.uint32)
    words = (units << np.arange(0, 24, 3, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32)
    stored: UInt8Array = (words[..., None] >> np.arange(0, 24, 8, dtype=np.uint32)).astype(np.uint8)
    return stored.reshape(*codes.shape[:-1], codes.shape[-1] // 8 * 3)


def _unpack_three_bit(stored: npt.NDArray[np.integer]) -> UInt8Array:
    units = stored.reshape(*stored.shape[:-1], stored.shape[-1] // 3, 3).astype(np.uint32)
    words = (units << np.arange(0, 24, 8, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32)
    codes: UInt8Array = ((words[..., None] >> np.arange(0, 24, 3, dtype=np.uint32)) & 7).astype(np.uint8)
    return codes.reshape(*stored.shape[:-1], stored.shape[-1] // 3 * 8)


def _pack_nibbles(codes: UInt8Array) -> UInt8Array:
    return codes[..., ::2] | (codes[..., 1::2] << np.uint8(4))


def _unpack_nibbles(stored: npt.NDArray[np.integer]) -> UInt8Array:
    codes = np.stack([stored & 15, stored >> 4], axis=-1).astype(np.uint8)
    return codes.reshape(*stored.shape[:-1], stored.shape[-1] * 2)


_ALL = (
    Layout("consecutive", 2, 4, pack, lambda stored: unpack(stored.astype(np.uint8, copy=False))),
    Layout("quartered", 2, 4, _pack_quartered, _unpack_quartered),
    Layout("int32", 2, 16, _pack_words, _unpack_words),
    Layout("three-bit", 3, 8, _pack_three_bit, _unpack_three_bit),
    Layout("nibbles", 4, 2, _pack_nibbles, _unpack_nibbles),
    Layout("bytes", 8, 1, np.ascontiguousarray, lambda stored: stored.astype(np.uint8, copy=False)),
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _ALL}


def get_layout(name: str) -> Layout:
    """Return a layout by its name.

    Raises
    ------
    SpecError
        If there is none of that name.
    """
    if name not in LAYOUTS:
        raise SpecError(f"layout {name!r} is not allowed: one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
