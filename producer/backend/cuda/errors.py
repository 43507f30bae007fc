"""Errors of the GPU half, each with what to do in its text.

The tree::

    BackendUnavailableError
    ├── CompilerMissingError    no NVRTC library is found
    ├── KernelCompileError      a kernel does not compile; carries the compiler's log
    ├── NoCudaError             CuPy or a CUDA device is missing
    ├── DriverTooOldError       the driver cannot run this CUDA
    ├── UnpinnedKernelError     the compiled program is not one of the pins file
    └── DeviceMemoryError       (also a MemoryLimitError) the device's memory is too small

In each case the work is valid and another machine can do it, so `run` gives the typed delegate result.
"""

from __future__ import annotations

from producer.errors import BackendUnavailableError, MemoryLimitError

__all__ = [
    "CompilerMissingError",
    "DeviceMemoryError",
    "DriverTooOldError",
    "KernelCompileError",
    "NoCudaError",
    "UnpinnedKernelError",
]


class KernelCompileError(BackendUnavailableError):
    """A kernel does not compile.

    Attributes
    ----------
    log : str
        The compiler's log.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CompilerMissingError(BackendUnavailableError):
    """No NVRTC library is found."""


class NoCudaError(BackendUnavailableError):
    """CuPy or a CUDA device is missing."""


class DriverTooOldError(BackendUnavailableError):
    """The driver cannot run this CUDA."""


class UnpinnedKernelError(BackendUnavailableError):
    """The compiled program, its compiler or its architecture is not in the pins file."""


class DeviceMemoryError(MemoryLimitError, BackendUnavailableError):
    """The device's memory is too small for what was asked."""
