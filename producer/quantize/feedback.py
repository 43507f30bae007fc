"""Rounding with error feedback: codes that minimize the error a reader sees, not the error itself.

A row z is stored as ẑ. What readers see of the error e = z - ẑ has the expected square e A eᵀ, A the covariance of the
readers. Rounding each channel to its nearest level is best where A is a multiple of I. With
A = U D Uᵀ, U unit upper triangular, e A eᵀ = Σ Dᵢ (eᵢ + Σ_{j<i} eⱼ Uⱼᵢ)²: channel i is best rounded after the errors of
the channels before it, times their Uⱼᵢ, are added (E38). Scale, zero point and range of a row are those of its dialect;
only codes differ, so what reads a cache need not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import NonFiniteError, SpecError
from producer.quantize.base import Quantized
from producer.quantize.steps import expand, half_up_codes

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array, UInt8Array
    from producer.quantize.base import Dialect

__all__ = [
    "feedback_codes",
    "feedback_factors",
    "quantize_with_feedback",
    "require_factors",
    "require_feedback",
    "takes_feedback",
]

_TOP = 3
#: Tokens at a time: what they carry stays in a processor's second cache.
_TOKENS = 256


def takes_feedback(dialect: Dialect) -> bool:
    """Return whether the levels of a dialect are (code - zero)·scale, rounded half-up, in groups along channels."""
    numerics = dialect.numerics
    return (numerics.bits, numerics.zero_point, numerics.rounding, numerics.group_axis) == (
        2,
        "float",
        "half-up",
        "channels",
    )


def feedback_factors(metric: Float64Array) -> Float32Array:
    """Return U of A = U D Uᵀ for every head.

    Parameters
    ----------
    metric : float64, shape (num_kv_heads, d, d)
        A: symmetric and positive definite.

    Returns
    -------
    float32, shape (num_kv_heads, d, d)
        Unit upper triangular.

    Raises
    ------
    NonFiniteError
        If the metric holds NaN or infinity.
    SpecError
        If it is not positive definite.
    """
    if not np.isfinite(metric).all():
        raise NonFiniteError("metric of error feedback holds NaN or infinity")
    try:
        # Cholesky's L Lᵀ begins at the first channel; with rows and columns turned around it begins at the last.
        lower = np.linalg.cholesky(metric[:, ::-1, ::-1])
    except np.linalg.LinAlgError as error:
        raise SpecError("metric of error feedback is not allowed: it is not positive definite") from error
    unit = lower / np.diagonal(lower, axis1=-2, axis2=-1)[:, None, :]
    factors: Float32Array = np.ascontiguousarray(unit[:, ::-1, ::-1]).astype(np.float32)
    return factors


def require_factors(factors: Float32Array, where: str) -> None:
    """Raise `SpecError` unless factors are unit upper triangular: those that were transposed are not."""
    if factors.dtype != np.float32 or factors.ndim != 3 or factors.shape[1] != factors.shape[2]:
        raise SpecError(
            f"{where} of dtype {factors.dtype} and shape {factors.shape} is not allowed: float32, (num_kv_heads, d, d)"
        )
    is_unit = (np.diagonal(factors, axis1=-2, axis2=-1) == 1).all()
    if not is_unit or np.tril(factors, -1).any():
        raise SpecError(f"{where} is not allowed: 1 on the diagonal and 0 below it")


def quantize_with_feedback(
    dialect: Dialect, x: Float32Array, clip_ratio: float, group_size: int, factors: Float32Array
) -> Quantized:
    """Return codes that were rounded with error feedback, and the dialect's own metadata.

    Parameters
    ----------
    dialect : Dialect
        One that `takes_feedback`.
    x : float32, shape (num_kv_heads, tokens, channels)
    clip_ratio : float
    group_size : int
    factors : float32, shape (num_kv_heads, channels, channels)
        U of `feedback_factors`. With U = I the codes are the dialect's own.

    Raises
    ------
    SpecError
        If the dialect does not take feedback, or the shapes do not fit; and as `Dialect.quantize`.
    NonFiniteError, DegenerateGroupError
        As `Dialect.quantize`.

    Notes
    -----
    For i = 0 … d - 1: t = zᵢ + Σ_{j<i} eⱼ Uⱼᵢ, codeᵢ = trunc(t/scale + zero + ½) held to 0 … 3,
    eᵢ = zᵢ - (codeᵢ - zero)·scale, in float32, the sum in rising j. d(d - 1)/2 products a row beside the d² of its
    transform. Every step is by element, so the codes of a row do not depend on the rows beside it.
    """
    require_feedback(dialect, x.shape, factors)
    nearest = dialect.quantize(x, clip_ratio, group_size)
    return Quantized(feedback_codes(x, nearest.metadata, factors), nearest.metadata)


def require_feedback(dialect: Dialect, shape: tuple[int, ...], factors: Float32Array) -> None:
    """Raise `SpecError` unless a dialect takes feedback and the factors fit rows of (num_kv_heads, tokens, d)."""
    if not takes_feedback(dialect):
        raise SpecError(
            f"dialect {dialect.name!r} is not allowed with error feedback: one of two bits with a float zero point, "
            "half-up codes and groups along channels"
        )
    if factors.shape != (shape[0], shape[-1], shape[-1]):
        raise SpecError(
            f"factors {factors.shape} are not allowed with rows {shape}: (num_kv_heads, d, d) of the same"
        )


def feedback_codes(x: Float32Array, metadata: tuple[Float32Array, ...], factors: Float32Array) -> UInt8Array:
    """Return codes with error feedback of rows whose scales and zero points are known; see `quantize_with_feedback`.

    Parameters
    ----------
    x : float32, shape (num_kv_heads, tokens, channels)
    metadata : two of float32, shape (num_kv_heads, tokens, groups)
    factors : float32, shape (num_kv_heads, channels, channels)
    """
    codes = np.empty(x.shape, dtype=np.uint8)
    for first in range(0, x.shape[1], _TOKENS):
        part = slice(first, first + _TOKENS)
        own = tuple(scalars[:, part] for scalars in metadata)
        codes[:, part] = _codes_of_part(x[:, part], own, factors)
    return codes


def _codes_of_part(x: Float32Array, metadata: tuple[Float32Array, ...], factors: Float32Array) -> UInt8Array:
    # Channels first: a channel of all tokens is then one run of memory.
    scale, zero = (np.ascontiguousarray(expand(part, x.shape).swapaxes(1, 2)) for part in metadata)
    rows = np.ascontiguousarray(x.swapaxes(1, 2))
    codes = np.empty(rows.shape, dtype=np.uint8)
    carried = np.zeros_like(rows)
    for channel in range(rows.shape[1]):
        unit, offset = scale[:, channel], zero[:, channel]
        target = rows[:, channel] + carried[:, channel]
        target /= unit
        target += offset
        found = half_up_codes(target, _TOP)
        codes[:, channel] = found
        error = rows[:, channel] - (found.astype(np.float32) - offset) * unit
        carried[:, channel + 1 :] += factors[:, channel, channel + 1 :, None] * error[:, None]
    return codes.swapaxes(1, 2)
