"""Error of a transformed query held in 16 bits, which grows with the transform's condition number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.quantize.steps import round_to
from producer.transform.covariance import queries_by_kv_head

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.quantize.base import FloatType
    from producer.transform.dense import DenseTransform

__all__ = ["QueryPathError", "query_path_error"]

#: Unit roundoff u: rounding moves a normal number by at most u of itself.
_UNIT: dict[FloatType, float] = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True, slots=True)
class QueryPathError:
    """Error of logits, by KV head, float64, shape (num_kv_heads,).

    Attributes
    ----------
    relative : root mean square error over the root mean square of the logits
    bound : what it cannot exceed
    """

    relative: Float64Array
    bound: Float64Array


def query_path_error(
    transform: DenseTransform, q: Float32Array, k: Float32Array, dtype: FloatType
) -> QueryPathError:
    """Return the error of logits from rounding q M⁻ᵀ to a narrower type, keys exact (E36).

    Parameters
    ----------
    transform : DenseTransform
    q : float32, shape (num_heads, queries, head_dim)
    k : float32, shape (num_kv_heads, tokens, head_dim)
        As they are stored: centred, if they are.
    dtype : {"float32", "float16", "bfloat16"}

    Notes
    -----
    With q' = q M⁻ᵀ, k' = k M in float64 and δ = round(q') - q': √(Σ (δ k'ᵀ)² / Σ (q kᵀ)²) over all pairs, and by the
    Cauchy-Schwarz inequality at most u·√(Σ‖q'‖² Σ‖k'‖² / Σ (q kᵀ)²). Not counted: float16 below 2⁻¹⁴, where rounding
    is coarser than u.
    """
    queries = queries_by_kv_head(q, k.shape[0]).astype(np.float64)
    keys = k.astype(np.float64)
    turned = queries @ np.swapaxes(transform.inverses.astype(np.float64), -1, -2)
    stored = keys @ transform.matrices.astype(np.float64)
    rounded = round_to(turned.astype(np.float32), dtype).astype(np.float64) - turned
    errors, logits = (
        _square(one @ np.swapaxes(other, -1, -2)) for one, other in ((rounded, stored), (queries, keys))
    )
    # The first rounding, to float32, is one more.
    unit = _UNIT[dtype] + _UNIT["float32"] * (1 + _UNIT[dtype])
    bound = unit * np.sqrt(_square(turned) * _square(stored) / logits)
    return QueryPathError(np.sqrt(errors / logits), bound)


def _square(x: Float64Array) -> Float64Array:
    """Return Σ x² of every head."""
    total: Float64Array = np.square(x).sum(axis=(1, 2))
    return total
