"""The interface of a quantizer dialect, and the description of its numerics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, UInt8Array

__all__ = ["METADATA_BITS", "Dialect", "FloatType", "Numerics", "Quantized"]

FloatType: TypeAlias = Literal["float32", "float16", "bfloat16"]

#: Bits of one stored scalar.
METADATA_BITS: dict[FloatType, int] = {"float32": 32, "float16": 16, "bfloat16": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What a dialect computes, in the words of a record: a name alone does not fix a computation.

    Attributes
    ----------
    bits : int
        Bits of a code.
    clip_kind : {"none", "range-multiplier", "order-statistic", "binary-search", "midpoint-shrink"}
        What a clip ratio means.
    clip_scope : {"none", "group", "row", "token"}
        Over which values the clip is taken: a row is all channels of one token and head, a token those of all heads.
    zero_point : {"none", "float", "integer", "minimum", "mean"}
        What is stored beside the scale: a zero point in code units, or the value that is added to the levels.
    rounding : {"half-even", "half-up", "thresholds"}
        How a value between two codes is decided.
    range_floor : float
        Least range, or scale where `zero_point` is "none", of a group; 0 where there is none.
    metadata_dtype : {"float32", "float16", "bfloat16"}
        Type of a stored scalar.
    metadata_scalars : int
        Stored scalars a group.
    dequantization_dtype : {"float32", "float16", "bfloat16"}
        Type in which levels are multiplied out.
    packing : str
        Name of the order of the codes in memory, one of `producer.quantize.packing.LAYOUTS`.
    group_axis : {"channels", "tokens", "heads"}
        Axis along which values share a scale; "heads" where all channels of all heads of a token do.
    encoding_dtype : {"float32", "float16"}
        Type in which scale, differences and quotients are computed when a value is encoded.
    """

    bits: int = 2
    clip_kind: Literal["none", "range-multiplier", "order-statistic", "binary-search", "midpoint-shrink"]
    clip_scope: Literal["none", "group", "row", "token"]
    zero_point: Literal["none", "float", "integer", "minimum", "mean"]
    rounding: Literal["half-even", "half-up", "thresholds"]
    range_floor: float
    metadata_dtype: FloatType
    metadata_scalars: int
    dequantization_dtype: FloatType = "float32"
    packing: str
    group_axis: Literal["channels", "tokens", "heads"] = "channels"
    encoding_dtype: FloatType = "float32"


@dataclass(frozen=True, slots=True)
class Quantized:
    """An array as a dialect stores it, before packing.

    Attributes
    ----------
    codes : uint8, shape (…, tokens, channels)
        0 … 2^bits - 1.
    metadata : tuple of float32
        The stored scalars in their stored order, the scale first, each already rounded to the dialect's
        metadata dtype. Shape (…, tokens, groups), (…, groups, channels) where groups run along tokens, and
        (…, 1, tokens, 1) where one group is a token of all heads. None where a dialect stores codes alone.
    """

    codes: UInt8Array
    metadata: tuple[Float32Array, ...]


class Dialect(Protocol):
    """One exact quantizer.

    Arrays have shape (…, tokens, channels); leading axes are heads, layers or batches, and nothing is shared
    across them, but for the last of them where the group axis is "heads". No tokens are allowed: the result is as
    empty as its input.
    """

    @property
    def name(self) -> str:
        """Name in the registry `producer.quantize.DIALECTS`."""
        ...

    @property
    def numerics(self) -> Numerics:
        """What the dialect computes, as a record states it."""
        ...

    def quantize(self, x: Float32Array, clip_ratio: float, group_size: int) -> Quantized:
        """Return codes and metadata.

        Parameters
        ----------
        x : float32, shape (…, tokens, channels)
            Finite; not changed.
        clip_ratio : float
            In the dialect's own meaning; dialects without a clip take 1.
        group_size : int
            Values that share a scale; divides the group axis.

        Raises
        ------
        SpecError
            If the shape, the dtype, the clip ratio or the group size is not allowed.
        NonFiniteError
            If `x` holds NaN or infinity.
        DegenerateGroupError
            If a group has no scale or zero point that the dialect can store.
        """
        ...

    def dequantize(self, quantized: Quantized) -> Float32Array:
        """Return the values of codes, float32, shape of the codes."""
        ...
