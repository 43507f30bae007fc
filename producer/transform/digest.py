"""Digest of a rotation up to sign: R and -R have the same one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.transform.base import Rotation

__all__ = ["rotation_digest"]


def rotation_digest(rotation: Rotation) -> str:
    """Return the SHA-256 of the rotation's float32 matrix, its first element that is not zero made positive.

    Notes
    -----
    The matrix is what the rotation makes of the unit vectors, one a row: row c is R e_c. Row-major, little-endian;
    a negative zero counts as zero.
    """
    matrix = rotation.rotate(np.eye(rotation.head_dim, dtype=np.float32))
    flat = matrix.reshape(-1)
    first = flat[np.flatnonzero(flat)[0]]
    signed = np.where(matrix == 0, np.float32(0), matrix * np.sign(first)).astype("<f4")
    return hashlib.sha256(np.ascontiguousarray(signed).tobytes()).hexdigest()
