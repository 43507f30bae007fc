"""The seam between launchers and what runs the kernels: a CUDA device, or the shim on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from producer.backend.base import RuntimeInfo
    from producer.backend.cuda.compile import Variant

__all__ = ["BLOCK_THREADS", "NULL", "Device", "DeviceArray"]

#: A CuPy array, or a NumPy array on the shim.
DeviceArray: TypeAlias = Any
#: Stands for a null pointer among the arguments of a launch.
NULL = None
#: Threads of a block, THREADS of kernels/common.cuh.
BLOCK_THREADS = 256


class Device(Protocol):
    """Memory and launches.

    Attributes
    ----------
    variant : Variant
        What the loaded program was compiled for.
    runtime : RuntimeInfo
        What a record says of it.
    blocks : int
        Blocks of a launch whose blocks run over their rows in strides: enough to fill the device.
    """

    variant: Variant
    runtime: RuntimeInfo
    blocks: int

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an uninitialised array in the device's memory, C order.

        Raises
        ------
        DeviceMemoryError
            If it does not fit.
        """
        ...

    def upload(self, array: npt.NDArray[Any]) -> DeviceArray:
        """Return a copy in the device's memory, C order."""
        ...

    def store(self, target: DeviceArray, array: npt.NDArray[Any]) -> None:
        """Copy an array to a part of a device array of its shape."""
        ...

    def download(self, array: DeviceArray) -> npt.NDArray[Any]:
        """Return a copy in host memory; waits for all launches before it."""
        ...

    def launch(
        self, kernel: str, grid: tuple[int, int, int], arguments: Sequence[DeviceArray | np.generic | None]
    ) -> None:
        """Start a kernel with `BLOCK_THREADS` threads a block; in order with all other work.

        Parameters
        ----------
        kernel : str
            Its name in the program.
        grid : tuple of int
            Blocks.
        arguments : sequence
            Device arrays, NumPy scalars of the parameters' exact types, and `NULL`.
        """
        ...

    def time_us(self, work: Callable[[], object], repeats: int) -> float:
        """Return the device's time of one of `repeats` calls of `work`, in µs; waits once, at the end."""
        ...

    def require_free(self, needed_bytes: int, what: str) -> None:
        """Raise `DeviceMemoryError` when the device has not so many bytes free."""
        ...

    def program_bytes(self) -> bytes:
        """Return the compiled program, whose digest is ``runtime.sha256``."""
        ...

    def describe(self) -> dict[str, object]:
        """Return device, driver, compiler and program as names to JSON values, None where unknown."""
        ...
