"""The signed Hadamard rotation: x → H(s∘x)/√d."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.transform.fast_hadamard import hadamard_transform, require_power_of_two

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["SignedHadamard"]


def _along(values: Float32Array, ndim: int, axis: int) -> Float32Array:
    """Return `values` shaped to broadcast along one axis of an array of `ndim` dimensions."""
    shape = [1] * ndim
    shape[axis] = values.size
    return values.reshape(shape)


class SignedHadamard:
    """R = H·diag(s)/√d, H the Sylvester-Hadamard matrix of size d.

    Parameters
    ----------
    signs : float32, shape (head_dim,)
        Each +1 or -1; `head_dim` is a power of two.

    Raises
    ------
    SpecError
        If the size is no power of two or a sign is neither +1 nor -1.
    """

    kind = "signed-hadamard"

    def __init__(self, signs: Float32Array) -> None:
        self.head_dim = signs.size
        require_power_of_two(self.head_dim)
        wrong = np.flatnonzero(np.abs(signs) != 1)
        if wrong.size:
            raise SpecError(f"signs[{int(wrong[0])}] is {signs[wrong[0]]}: a sign is +1 or -1")
        self.signs = signs.astype(np.float32)
        self.signs.setflags(write=False)

    def rotate(
        self,
        x: Float32Array,
        axis: int = -1,
        out: Float32Array | None = None,
        scratch: Float32Array | None = None,
    ) -> Float32Array:
        """Return H(s∘x)/√d along `axis`; see `producer.transform.base.Rotation.rotate`."""
        out = np.empty(x.shape, dtype=np.float32) if out is None else out
        np.multiply(x, _along(self.signs, x.ndim, axis), out=out)
        return hadamard_transform(out, axis, scratch)

    def rotate_output(self, w_o: Float32Array, axis: int = -2) -> Float32Array:
        """Return H(s∘w)/√d along `axis`: signs first, as for the values."""
        return self.rotate(w_o, axis)

    def rotate_output_signs_last(self, w_o: Float32Array, axis: int = -2) -> Float32Array:
        """Return s∘(H w)/√d along `axis`: what the published run did to W_O.

        It is the transpose of the value rotation, not its inverse on W_O, so it does not undo the rotation.
        """
        return hadamard_transform(np.array(w_o, order="C"), axis) * _along(self.signs, w_o.ndim, axis)
