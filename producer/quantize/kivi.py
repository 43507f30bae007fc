"""KIVI: keys per channel along time, values per token; scale and minimum in float16, no clip.

Source: jy-yuan/KIVI. The public code divides by a scale of 0 in a constant group and converts the NaN to an
undefined integer. The stored minimum makes every code mean the same value there, so that code 0 is taken.
"""

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
    """

    name: str
    group_axis: Literal["tokens", "channels"]

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
        )

    @property
    def _axis(self) -> int:
        return -2 if self.group_axis == "tokens" else -1

    def quantize(self, x: "Float32Array", clip_ratio: float, group_size: int) -> Quantized:
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
        minimum = float16(min); scale = float16((max - min)/3); code = round half to even of (x - minimum)/scale,
        held to 0 … 3; arithmetic in float32 (D7).
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        axis = x.ndim + self._axis
        groups = split_groups(x, group_size, axis)
        low: Float32Array = groups.min(axis=axis + 1, keepdims=True)
        with np.errstate(over="ignore"):
            span = groups.max(axis=axis + 1, keepdims=True) - low
        scale, low = round_to(span / _TOP, "float16"), round_to(low, "float16")
        require_stored(scale.squeeze(axis + 1), "scale", self.name)
        require_stored(low.squeeze(axis + 1), "minimum", self.name)
        codes = as_codes(np.rint(zero_guarded_quotient(groups - low, scale)), 3)
        return Quantized(codes.reshape(x.shape), (scale.squeeze(axis + 1), low.squeeze(axis + 1)))

    def dequantize(self, quantized: Quantized) -> "Float32Array":
        """Return code·scale + minimum, float32."""
        scale, low = (expand(values, quantized.codes.shape, self._axis) for values in quantized.metadata)
        return quantized.codes.astype(np.float32) * scale + low
