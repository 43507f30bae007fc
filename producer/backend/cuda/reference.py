"""CPU twins of GPU-only operations: the rotation by a dense matrix, and 16-bit inputs."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array

__all__ = ["bfloat16_bits", "rotate_dense", "widen_bfloat16"]


def rotate_dense(x: "Float32Array", matrix: "Float32Array") -> "Float32Array":
    """Return x R of every head, float32, shape of `x`.

    Parameters
    ----------
    x : float32, shape (heads, seq_len, head_dim)
    matrix : float32, shape (heads, head_dim, head_dim)

    Notes
    -----
    Products rounded to float32, then added in float32 in the order of the channels of `x`: the GPU twin,
    kernels/rotate_quantize_pack_dense.cu, does the same. A matrix product of NumPy has no such order.
    """
    out = np.zeros(x.shape, dtype=np.float32)
    for k in range(x.shape[2]):
        out += x[:, :, k, None] * matrix[:, None, k]
    return out


def bfloat16_bits(x: "Float32Array") -> "npt.NDArray[np.uint16]":
    """Return the bits of bfloat16 values, uint16, rounded half to even; finite input."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )


def widen_bfloat16(bits: "npt.NDArray[np.uint16]") -> "Float32Array":
    """Return the float32 values of bfloat16 bits: exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
