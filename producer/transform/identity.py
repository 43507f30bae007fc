"""The identity rotation: the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Identity"]


class Identity:
    """R = I.

    Parameters
    ----------
    head_dim : int
        Channels of a head.
    """

    kind = "identity"

    def __init__(self, head_dim: int) -> None:
        self.head_dim = head_dim

    def rotate(
        self,
        x: Float32Array,
        axis: int = -1,  # noqa: ARG002 - the interface
        out: Float32Array | None = None,
        scratch: Float32Array | None = None,  # noqa: ARG002
    ) -> Float32Array:
        """Return `x` itself, or its copy in `out`."""
        if out is None:
            return x
        np.copyto(out, x)
        return out

    def rotate_output(self, w_o: Float32Array, axis: int = -2) -> Float32Array:  # noqa: ARG002
        """Return `w_o` itself."""
        return w_o
