"""Quantization of a layer's heads: a clip ratio for each, and error feedback where a scheme has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.base import Quantized
from producer.quantize.feedback import feedback_codes, require_feedback

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect

__all__ = ["quantize_heads"]


def quantize_heads(
    dialect: Dialect,
    x: Float32Array,
    clips: tuple[float, ...],
    group_size: int,
    factors: Float32Array | None = None,
) -> Quantized:
    """Return what a dialect makes of heads.

    Parameters
    ----------
    dialect : Dialect
    x : float32, shape (num_kv_heads, tokens, head_dim)
    clips : tuple of float
        One ratio, or one a head.
    group_size : int
    factors : float32, shape (num_kv_heads, head_dim, head_dim), or None
        Of `producer.quantize.feedback`; None rounds to the nearest level.

    Raises
    ------
    SpecError, NonFiniteError, DegenerateGroupError
        As `Dialect.quantize` and `quantize_with_feedback`.
    """
    if dialect.numerics.group_axis == "heads" and (len(set(clips)) > 1 or factors is not None):
        raise SpecError(
            f"dialect {dialect.name!r} is not allowed with clips by head or error feedback: its groups span the heads"
        )
    if factors is not None:
        require_feedback(dialect, x.shape, factors)
    if len(set(clips)) == 1:
        nearest = dialect.quantize(x, clips[0], group_size)
    else:
        heads = [
            dialect.quantize(x[head, None], clip, group_size)
            for head, clip in zip(range(len(x)), clips, strict=True)
        ]
        nearest = Quantized(
            np.concatenate([head.codes for head in heads]),
            tuple(
                np.concatenate(scalars) for scalars in zip(*(head.metadata for head in heads), strict=True)
            ),
        )
    if factors is None:
        return nearest
    return Quantized(feedback_codes(x, nearest.metadata, factors), nearest.metadata)
