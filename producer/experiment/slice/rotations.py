"""Rotations of a slice protocol: its candidates, and W_O rotated by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.transform.identity import Identity
from producer.transform.signed_hadamard import SignedHadamard
from producer.transform.signs import draw_signs, index_parity_signs

if TYPE_CHECKING:
    from producer.experiment.slice.spec import OutputRotation, SliceProtocol
    from producer.numerics.arrays import Float32Array
    from producer.transform.base import Rotation

__all__ = ["build_candidates", "rotated_output"]


def build_candidates(protocol: SliceProtocol, seed: int, head_dim: int) -> list[Rotation]:
    """Return the candidates of a protocol: the identity first, then its signed Hadamard rotations.

    Parameters
    ----------
    protocol : SliceProtocol
    seed : int
        The run's seed (used when the signs are drawn).
    head_dim : int
        Channels of a head, a power of two.

    Raises
    ------
    SpecError
        If `head_dim` is no power of two, or has too few distinct sign vectors.
    """
    count = protocol.num_rotations
    if protocol.sign_source == "drawn":
        signs = draw_signs(seed, count, head_dim)
    else:
        signs = [index_parity_signs(index, head_dim) for index in range(1, count + 1)]
    return [Identity(head_dim), *(SignedHadamard(vector) for vector in signs)]


def rotated_output(rotation: Rotation, w_o: Float32Array, how: OutputRotation) -> Float32Array:
    """Return W_O as a protocol rotates it, shape (num_kv_heads, head_dim, output_dim), float32."""
    if how == "signs-last" and isinstance(rotation, SignedHadamard):
        return rotation.rotate_output_signs_last(w_o)
    return rotation.rotate_output(w_o)
