"""8-bit floating point: the nearest value of a table of 256, and no scale.

The formats are those of the Open Compute Project's OFP8 specification (2023), which CUDA and PyTorch have under the
same names: E4M3 without infinities, largest value 448, and E5M2, largest finite value 57344. A serving engine that
stores keys and values as float8 with all scales left at 1 computes this. What is too large is held to the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Numerics, Quantized
from producer.quantize.steps import require_group_size, require_input, require_no_clip

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Float8"]

#: Exponent bits, mantissa bits and the code of the largest finite value.
_FORMATS = {"e4m3": (4, 3, 0x7E), "e5m2": (5, 2, 0x7B)}
_SIGN = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8:
    """8-bit floating point.

    Parameters
    ----------
    name : str
        Name in the registry.
    form : {"e4m3", "e5m2"}
    """

    name: str
    form: str

    def __post_init__(self) -> None:
        if self.form not in _FORMATS:
            raise SpecError(f"{self.name}: form {self.form!r} is not allowed: {' or '.join(_FORMATS)}")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            bits=8,
            clip_kind="none",
            clip_scope="none",
            zero_point="none",
            rounding="half-even",
            range_floor=0.0,
            metadata_dtype="float32",
            metadata_scalars=0,
            packing="bytes",
        )

    def _values(self) -> Float32Array:
        """Return the values of the codes without a sign, from 0 to the largest, float32, rising."""
        exponent_bits, mantissa_bits, top = _FORMATS[self.form]
        codes = np.arange(top + 1)
        exponent, mantissa = codes >> mantissa_bits, codes & (2**mantissa_bits - 1)
        bias = 2 ** (exponent_bits - 1) - 1
        # The lowest exponent has no leading 1.
        significand = mantissa + np.where(exponent > 0, 2**mantissa_bits, 0)
        values: Float32Array = np.ldexp(significand, np.maximum(exponent, 1) - bias - mantissa_bits).astype(
            np.float32
        )
        return values

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes alone; see `producer.quantize.base.Dialect.quantize`.

        Notes
        -----
        The nearest value of the table, of two as near the one with the even code; sign in the highest bit (D10).
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        require_group_size(x.shape[-1], group_size)
        values = self._values()
        middles = (values[1:] + values[:-1]) / np.float32(2)
        magnitude = np.abs(x)
        below = np.searchsorted(middles, magnitude, side="left")
        above = np.searchsorted(middles, magnitude, side="right")
        # The two differ at a tie, of which the even code is taken.
        codes = np.where(below % 2 == 0, below, above).astype(np.uint8)
        return Quantized(codes | np.where(np.signbit(x), np.uint8(_SIGN), np.uint8(0)), ())

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return the values of codes, float32."""
        values = self._values()
        sign = np.where(quantized.codes & _SIGN, np.float32(-1), np.float32(1))
        magnitude: Float32Array = values[quantized.codes & np.uint8(_SIGN - 1)]
        return magnitude * sign
