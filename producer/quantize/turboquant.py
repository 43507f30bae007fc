"""TurboQuant as in vLLM: norm and nearest Lloyd-Max level for keys, uniform with a minimum for values.

Source: vllm-project/vllm, PR #40194 and after. Keys are rotated by the plain Hadamard matrix, which is a rotation
of its own here (`producer.transform`); a norm does not change under it but for rounding. Values are not rotated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Numerics, Quantized
from producer.quantize.lloyd_max import LLOYD_MAX_LEVELS, codebook_thresholds
from producer.quantize.steps import (
    as_codes,
    expand,
    half_up,
    require_input,
    require_no_clip,
    require_stored,
    round_to,
    split_groups,
    zero_guarded_quotient,
)

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["TurboQuantKey", "TurboQuantValue"]

_FLOOR = np.float32(1e-8)
_PACKING = {2: "consecutive", 3: "three-bit", 4: "nibbles"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurboQuantKey:
    """Keys: a row is its norm times a vector of Lloyd-Max levels of N(0, 1/channels).

    Parameters
    ----------
    name : str
        Name in the registry.
    bits : int
        One of the codebooks of `producer.quantize.lloyd_max`.
    norm_correction : bool
        Whether the vector of levels is brought to norm 1 when it is read.
    """

    name: str = "turboquant-3bit-key"
    bits: int = 3
    norm_correction: bool = False

    def __post_init__(self) -> None:
        if self.bits not in LLOYD_MAX_LEVELS:
            allowed = " or ".join(map(str, LLOYD_MAX_LEVELS))
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: {allowed}")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            bits=self.bits,
            clip_kind="none",
            clip_scope="none",
            zero_point="none",
            rounding="thresholds",
            range_floor=1e-8,
            metadata_dtype="float16",
            metadata_scalars=1,
            packing=_PACKING[self.bits],
        )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes and norms; see `producer.quantize.base.Dialect.quantize`.

        Parameters
        ----------
        x : float32, shape (…, tokens, channels)
            Already rotated.
        clip_ratio : float
            1.
        group_size : int
            Equal to channels: one norm a row.

        Notes
        -----
        The norm is accumulated in float64 and rounded to float32; y = x/(norm + 10⁻⁸) in float32; the code counts
        the middles between levels/√channels that are at most y; the norm is stored as float16 (D8).
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        channels = x.shape[-1]
        if group_size != channels:
            raise SpecError(
                f"{self.name}: group_size {group_size} is not allowed: one norm a row, {channels}"
            )
        norm = np.sqrt(np.square(x, dtype=np.float64).sum(axis=-1, keepdims=True))
        with np.errstate(over="ignore"):
            single = norm.astype(np.float32)
        stored = round_to(single, "float16")
        require_stored(stored, "norm", self.name)
        middles = codebook_thresholds(self.bits)[1] / np.float32(math.sqrt(channels))
        codes = np.searchsorted(middles, x / (single + _FLOOR), side="right").astype(np.uint8)
        return Quantized(codes, (stored,))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return norm·level, float32."""
        levels = codebook_thresholds(self.bits)[0] / np.float32(math.sqrt(quantized.codes.shape[-1]))
        values = levels[quantized.codes]
        if self.norm_correction:
            norm = np.sqrt(np.square(values, dtype=np.float64).sum(axis=-1, keepdims=True))
            values = values / norm.astype(np.float32)
        return values * quantized.metadata[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurboQuantValue:
    """Values: uniform codes above a stored minimum.

    Parameters
    ----------
    name : str
        Name in the registry.
    bits : int
        2, 3 or 4.
    """

    name: str = "turboquant-3bit-value"
    bits: int = 3

    def __post_init__(self) -> None:
        if self.bits not in _PACKING:
            raise SpecError(f"{self.name}: {self.bits} bits are not allowed: 2, 3 or 4")

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes."""
        return Numerics(
            bits=self.bits,
            clip_kind="none",
            clip_scope="none",
            zero_point="minimum",
            rounding="half-up",
            range_floor=1e-8,
            metadata_dtype="float16",
            metadata_scalars=2,
            packing=_PACKING[self.bits],
        )

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes, scales and minima; see `producer.quantize.base.Dialect.quantize`.

        Notes
        -----
        scale = max((max - min)/(2^bits - 1), 10⁻⁸); code = trunc((x - min)/scale + ½), held to 0 … 2^bits - 1; then
        both are rounded to float16, where 10⁻⁸ becomes 0 and a constant group is its minimum (D8).
        """
        require_input(x, self.name)
        require_no_clip(clip_ratio, self.name)
        groups = split_groups(x, group_size)
        low: Float32Array = groups.min(axis=-1, keepdims=True)
        top = 2**self.bits - 1
        with np.errstate(over="ignore"):
            scale = np.maximum((groups.max(axis=-1, keepdims=True) - low) / np.float32(top), _FLOOR)
        require_stored(scale[..., 0], "scale", self.name, positive=True)
        codes = as_codes(half_up(zero_guarded_quotient(groups - low, scale)), top)
        scale, low = (round_to(values.squeeze(-1), "float16") for values in (scale, low))
        require_stored(scale, "scale", self.name)
        require_stored(low, "minimum", self.name)
        return Quantized(codes.reshape(x.shape), (scale, low))

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return code·scale + minimum, float32."""
        scale, low = (expand(values, quantized.codes.shape) for values in quantized.metadata)
        return quantized.codes.astype(np.float32) * scale + low
