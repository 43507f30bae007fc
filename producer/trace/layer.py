"""Arrays of one layer and one sequence, in the order of axes that everything inside uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.numerics.arrays import require_finite

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["LAST_QUERIES", "LayerTrace"]

#: Query positions at the end of a sequence over which errors are taken.
LAST_QUERIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrace:
    """Attention inputs of one layer for one sequence.

    Parameters
    ----------
    layer_idx : int
    q : float32, shape (num_heads, tokens, head_dim)
        Queries after RoPE, not scaled.
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
        Keys after RoPE, and values.
    w_o : float32, shape (num_heads, head_dim, hidden_size), or None
        Output weights by query head; a dump of a serving engine has none.
    scaling : float
        What scores are multiplied by, 1/√head_dim in most models.

    Raises
    ------
    SpecError
        If shapes, dtypes or head counts do not fit.
    NonFiniteError
        If an array holds NaN or infinity.
    """

    layer_idx: int
    q: Float32Array
    k: Float32Array
    v: Float32Array
    w_o: Float32Array | None
    scaling: float

    def __post_init__(self) -> None:
        where = f"layer {self.layer_idx}"
        for name in ("q", "k", "v", "w_o"):
            values = getattr(self, name)
            if values is None:
                continue
            if values.dtype != np.float32 or values.ndim != 3:
                raise SpecError(
                    f"{where}: {name} of dtype {values.dtype} and shape {values.shape} is not allowed: float32, 3 axes"
                )
            require_finite(values, f"{where}: {name}")
        heads, tokens, head_dim = self.q.shape
        kv_heads = self.k.shape[0]
        if self.k.shape != self.v.shape or self.k.shape[1:] != (tokens, head_dim):
            raise SpecError(
                f"{where}: q {self.q.shape}, k {self.k.shape}, v {self.v.shape} are not allowed: the same tokens and "
                "head_dim, and as many keys as values"
            )
        if kv_heads < 1 or heads % kv_heads:
            raise SpecError(
                f"{where}: {heads} query heads are not allowed: a multiple of the {kv_heads} KV heads"
            )
        if self.w_o is not None and self.w_o.shape[:2] != (heads, head_dim):
            raise SpecError(
                f"{where}: w_o of shape {self.w_o.shape} is not allowed: ({heads}, {head_dim}, hidden_size)"
            )
        if not 0 < self.scaling < float("inf"):
            raise SpecError(f"{where}: scaling {self.scaling!r} is not allowed: above 0")

    @property
    def seq_len(self) -> int:
        """Tokens."""
        return int(self.q.shape[1])

    @property
    def num_kv_heads(self) -> int:
        """KV heads."""
        return int(self.k.shape[0])

    @property
    def group(self) -> int:
        """Query heads that read one KV head."""
        return int(self.q.shape[0] // self.k.shape[0])
