"""KIVI: keys per channel along time, values per token; scale and minimum in float16, no clip.

Source: jy-yuan/KIVI, `quant/new_pack.py`, which encodes a float16 cache with float16 arithmetic, and
`quant/csrc/gemv_cuda.cu`, which reads codes as float32(scale)·code + float32(minimum).

`kivi-key` and `kivi-value` are that computation. `kivi-float32-key` and `kivi-float32-value` decide the codes in
float32 and round scale and minimum once, before the codes: what this project called `kivi` before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from producer.quantize.base import Numerics, Quantized
from producer.quantize.steps import (
    as_codes,
    expand,
    require_input,
    require_no_clip,
    require_stored,
    round_to,
    split_groups,
    zero_guarded_quotient,
)

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Kivi"]

_TOP = np.float32(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kivi:
    """KIVI's quantizer.

    Parameters
    ----------
    name : str
        Name in the registry.
    group_axis : {"tokens", "channels"}
        Along time, as for keys, or along the channels of a token, as for values.
    encoding_dtype : {"float16", "float32"}
        Type of the encoder's arithmetic. The public encoder's is float16.
    """

    name: str
    group_axis: Literal["tokens", "channels"]
    encoding_dtype: Literal["float16", "float32"] = "float16"

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            clip_kind="none",
            clip_scope="none",
            zero_point="minimum",
            rounding="half-even",
            range_floor=0.0,
            metadata_dtype="float16",
            metadata_scalars=2,
            packing="int32",
            group_axis=self.group_axis,
            encoding_dtype=self.encoding_dtype,
        )

    @property
    def _axis(self) -> int:
        return -2 if self.group_axis == "tokens" else -1

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and minima; see `producer.quantize.base.Dialect.quantize`.

        Parameters
        ----------
        x : float32, shape (…, tokens, channels)
            Of keys, the tokens are a multiple of `group_size`: what is left over stays in the residual window,
            and no padding and no other request may share a group.
        clip_ratio : float
            1.
        group_size : int
            Tokens of a group for keys, channels of a group for values.

        Notes
        -----
        In float16 x is first rounded to float16, as a float16 cache holds it; then minimum = min,
        scale = (max - min)/3, code = round half to even of (x - minimum)/scale, held to 0 … 3, each difference and
        quotient rounded to float16 once (D7). PyTorch on a GPU multiplies by float32(1/3) in place of the division by
        3: for every float16 range that rounds to the same float16. Where the stored scale is 0 a value above the
        minimum has code 3 and the minimum code 0, the integer that CUDA makes of NaN; all mean the minimum.

        In float32 minimum = float16(min), scale = float16((max - min)/3), and the codes are those of float32
        differences and quotients; where the stored scale is 0 code 0 is taken.
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        axis = x.ndim + self._axis
        groups = split_groups(x, group_size, axis)
        encode = _encode_float16 if self.encoding_dtype == "float16" else _encode_float32
        numbers, scale, low = encode(groups, axis + 1)
        require_stored(scale.squeeze(axis + 1), "scale", self.name)
        require_stored(low.squeeze(axis + 1), "minimum", self.name)
        codes = as_codes(numbers, 3)
        return Quantized(codes.reshape(x.shape), (scale.squeeze(axis + 1), low.squeeze(axis + 1)))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return code·scale + minimum, float32: one rounding, since a product of 2 and 11 bits is exact."""
        scale, low = (expand(values, quantized.codes.shape, self._axis) for values in quantized.metadata)
        return quantized.codes.astype(np.float32) * scale + low


def _encode_float16(groups: Float32Array, axis: int) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return whole numbers, scales and minima of groups along an axis, each step rounded to float16.

    Every operand is a float16 value held as float32, and rounding a sum, difference or quotient of two float16 values
    to float32 first changes nothing: 24 bits are at least twice 11, and two more.
    """
    held = round_to(groups, "float16")
    low: Float32Array = held.min(axis=axis, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = round_to(round_to(held.max(axis=axis, keepdims=True) - low, "float16") / _TOP, "float16")
        quotients = round_to(round_to(held - low, "float16") / scale, "float16")
    # 0/0 is NaN, of which a conversion to an integer on a GPU makes 0; a difference over 0 is held to the top code.
    return np.rint(np.nan_to_num(quotients, nan=0.0, posinf=np.inf)), scale, low


def _encode_float32(groups: Float32Array, axis: int) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return whole numbers, scales and minima of groups along an axis, the codes decided in float32."""
    low: Float32Array = groups.min(axis=axis, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        span = groups.max(axis=axis, keepdims=True) - low
        scale, low = round_to(span / _TOP, "float16"), round_to(low, "float16")
        return np.rint(zero_guarded_quotient(groups - low, scale)), scale, low
