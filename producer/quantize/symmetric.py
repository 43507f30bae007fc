"""Symmetric absmax-clip as a dialect: `producer.quantize.symmetric_absmax_clip` behind the common interface."""

from typing import TYPE_CHECKING

from producer.quantize import symmetric_absmax_clip
from producer.quantize.base import Numerics, Quantized
from producer.quantize.steps import require_input, require_stored

if TYPE_CHECKING:
    from producer.arrays import Float32Array

__all__ = ["SymmetricAbsmaxClip"]


class SymmetricAbsmaxClip:
    """The dialect of the published run: levels -s, -s/3, s/3, s with s = max|x|·clip + 10⁻¹² (E6, E7)."""

    name = "symmetric-absmax-clip"
    numerics = Numerics(
        clip_kind="range-multiplier",
        clip_scope="group",
        zero_point="none",
        rounding="half-even",
        range_floor=1e-12,
        metadata_dtype="float32",
        metadata_scalars=1,
        packing="consecutive",
    )

    def quantize(self, x: "Float32Array", clip_ratio: float, group_size: int) -> Quantized:
        """Return codes and scales; see `producer.quantize.base.Dialect.quantize`."""
        require_input(x, self.name)
        codes, scale = symmetric_absmax_clip.quantize(x, clip_ratio, group_size)
        require_stored(scale, "scale", self.name, positive=True)
        return Quantized(codes, (scale,))

    def dequantize(self, quantized: Quantized) -> "Float32Array":
        """Return (code/1.5 - 1)·scale, float32."""
        return symmetric_absmax_clip.dequantize(quantized.codes, quantized.metadata[0])
