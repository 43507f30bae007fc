"""bfloat16 as bits: the upper half of a float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array

__all__ = ["bfloat16_bits", "round_to_bfloat16", "widen_bfloat16"]


def round_to_bfloat16(values: Float32Array) -> Float32Array:
    """Return values rounded half to even to bfloat16, as float32; what is too large becomes infinity.

    Adding just under half of the last place, or half where the kept part is odd, makes the cut a rounding.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def bfloat16_bits(values: Float32Array) -> npt.NDArray[np.uint16]:
    """Return the bits of values rounded half to even to bfloat16, uint16; finite input."""
    return (round_to_bfloat16(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def widen_bfloat16(bits: npt.NDArray[np.uint16]) -> Float32Array:
    """Return the float32 values of bfloat16 bits: exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
