"""Four 2-bit codes in a byte, and back.

Bit order: the first code of a group of four occupies the lowest two bits of its byte, the fourth the highest.
"""

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.arrays import UInt8Array

__all__ = ["CODES_PER_BYTE", "pack", "unpack"]

CODES_PER_BYTE = 4


def pack(codes: "UInt8Array", axis: int = -1) -> "UInt8Array":
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


def unpack(packed: "UInt8Array", axis: int = -1) -> "UInt8Array":
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
