"""CPU twin of the rotation by a dense matrix, which only the GPU half has in this order of sums."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array

__all__ = ["rotate_dense"]


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
