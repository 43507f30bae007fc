"""Names for the array types of the producer, and the check that an input is finite."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from producer.errors import NonFiniteError

__all__ = [
    "AnyFloatArray",
    "Float32Array",
    "Float64Array",
    "UInt8Array",
    "UInt32Array",
    "require_finite",
]

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
UInt8Array: TypeAlias = npt.NDArray[np.uint8]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
AnyFloatArray: TypeAlias = npt.NDArray[np.floating]


def require_finite(values: AnyFloatArray, name: str) -> None:
    """Raise when an array holds NaN or infinity.

    Parameters
    ----------
    values : floating, any shape
    name : str
        What the array is called in the message.

    Raises
    ------
    NonFiniteError
        With the value and its first index in C order.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    first = np.unravel_index(int(np.argmin(finite)), values.shape)
    index = ", ".join(str(int(part)) for part in first)
    raise NonFiniteError(f"{name}[{index}] is {values[first]}: every value must be finite")
