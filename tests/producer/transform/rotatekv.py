"""RotateKV's pre-RoPE form: a Hadamard transform across several KV heads, then channels in the order of their sums.

Quantized rows are as wide as the heads of a group together. The map is undone, and RoPE applied, whenever keys are
read, so it takes keys *before* RoPE; it is no `DenseRotation`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.transform.hadamard_matrix import normalized_hadamard

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array

__all__ = ["GroupedHadamard", "build_rotatekv"]


def _join(x: "Float32Array", heads: int) -> "Float32Array":
    """Return (H, T, d) as (H/heads, T, heads·d), the heads of a group side by side."""
    num_heads, tokens, d = x.shape
    if num_heads % heads:
        raise SpecError(f"{num_heads} KV heads are not allowed: RotateKV transforms {heads} heads together")
    return x.reshape(num_heads // heads, heads, tokens, d).swapaxes(1, 2).reshape(-1, tokens, heads * d)


@dataclass(frozen=True, slots=True)
class GroupedHadamard:
    """Keys of `heads` heads side by side, times H/√(heads·d), with channels in a calibrated order.

    Attributes
    ----------
    heads : int
        Heads of a group.
    order : int, shape (num_kv_heads / heads, heads·head_dim)
        Transformed channel that stands at each place.
    """

    heads: int
    order: "npt.NDArray[np.intp]"

    def rotate(self, x: "Float32Array") -> "Float32Array":
        """Return pre-RoPE keys (num_kv_heads, T, d) as rows (num_kv_heads/heads, T, heads·d), float32."""
        joined = _join(x, self.heads)
        turned = joined @ normalized_hadamard(joined.shape[-1])
        return np.take_along_axis(turned, self.order[:, None, :], axis=-1)

    def undo(self, rows: "Float32Array") -> "Float32Array":
        """Return rows as pre-RoPE keys (num_kv_heads, T, d): the inverse of `rotate`, float32."""
        turned = np.empty_like(rows)
        np.put_along_axis(turned, np.broadcast_to(self.order[:, None, :], rows.shape), rows, axis=-1)
        joined = turned @ normalized_hadamard(rows.shape[-1]).T
        groups, tokens, width = joined.shape
        parts = joined.reshape(groups, tokens, self.heads, width // self.heads).swapaxes(1, 2)
        return np.ascontiguousarray(parts).reshape(groups * self.heads, tokens, width // self.heads)


def build_rotatekv(k: "Float32Array", heads: int = 4) -> GroupedHadamard:
    """Return RotateKV's map of calibration keys.

    Parameters
    ----------
    k : float32, shape (num_kv_heads, tokens, head_dim)
        Keys before RoPE.
    heads : int
        Heads that are transformed together, 4 in the public code; divides num_kv_heads.

    Raises
    ------
    SpecError
        If the heads do not divide, or no Hadamard matrix has the order heads·head_dim.

    Notes
    -----
    Channels stand in the rising order of their *signed* sums over the calibration tokens, in float64; equals in
    their old order.
    """
    joined = _join(k, heads)
    sums = (joined @ normalized_hadamard(joined.shape[-1])).sum(axis=1, dtype=np.float64)
    return GroupedHadamard(heads, np.argsort(sums, axis=-1, kind="stable"))
