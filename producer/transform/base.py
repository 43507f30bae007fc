"""The interface of a rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["Rotation", "Side"]

#: What of a cache a transform is for.
Side: TypeAlias = Literal["key", "value"]


class Rotation(Protocol):
    """An orthogonal map R of the channels of a head.

    Attributes
    ----------
    kind : str
        Name in the registry.
    head_dim : int
        Channels that it rotates.
    """

    kind: str
    head_dim: int

    def rotate(
        self,
        x: Float32Array,
        axis: int = -1,
        out: Float32Array | None = None,
        scratch: Float32Array | None = None,
    ) -> Float32Array:
        """Return R x along one axis.

        Parameters
        ----------
        x : float32, any shape
            Not changed, unless it is `out`.
        axis : int
            Axis of length `head_dim`.
        out, scratch : float32, shape of `x`, C-contiguous, optional
            Where the result goes, and room to work in; new arrays by default.

        Returns
        -------
        float32, shape of `x`
            `out`, or `x` itself where nothing changes and no `out` is given.
        """
        ...

    def rotate_output(self, w_o: Float32Array, axis: int = -2) -> Float32Array:
        """Return the output weights that undo the rotation of the values: R applied along `axis`.

        With y = Σ_c v_c W_c and v' = R v the weights W' = R W give Σ_c v'_c W'_c = y, since RᵀR = I (E5).
        """
        ...
