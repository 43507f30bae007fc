"""A CUDA device behind `producer.backend.cuda.device.Device`: CuPy for memory and launches, our own programs.

CuPy's compiler is not used, and none of its own kernels: a run needs the driver, CuPy and NVRTC, no headers.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.backend.base import RuntimeInfo
from producer.backend.cuda.compile import KERNEL_NAME, Variant, compile_program
from producer.backend.cuda.device import BLOCK_THREADS
from producer.backend.cuda.environment import cuda_version, read_clocks, read_driver_version
from producer.backend.cuda.errors import DeviceMemoryError, DriverTooOldError, NoCudaError
from producer.backend.cuda.pins import compile_pinned, read_kernel_pins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from producer.backend.cuda.device import DeviceArray

__all__ = ["CudaDevice", "require_cuda"]

# Codes of the CUDA runtime.
_OUT_OF_MEMORY = 2
_INSUFFICIENT_DRIVER = 35
# Codes of the driver for a program that it cannot load.
_UNLOADABLE = (200, 209, 218, 222)
# Blocks a multiprocessor, enough to hide its memory's latency.
_BLOCKS_PER_PROCESSOR = 8


def require_cuda() -> Any:
    """Return CuPy where it can use a device.

    Raises
    ------
    NoCudaError
        If CuPy, the driver or a device is missing.
    DriverTooOldError
        If the driver is older than CuPy's CUDA.
    """
    if importlib.util.find_spec("cupy") is None:
        raise NoCudaError("CuPy is not installed: pip install 'kvint2eval[gpu]' (gpu13 for CUDA 13)")
    try:
        with warnings.catch_warnings():
            # It warns of a missing toolkit, which is not used here.
            warnings.simplefilter("ignore")
            import cupy  # noqa: PLC0415 - only where it is installed
    except ImportError as error:
        raise NoCudaError(
            f"CuPy cannot be loaded ({error}): install one CuPy package alone, with its CUDA"
        ) from error
    runtime = cupy.cuda.runtime
    try:
        devices = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise _unusable(runtime, error) from error
    if devices == 0:
        raise NoCudaError(
            "CuPy finds no CUDA device: the driver hides it (CUDA_VISIBLE_DEVICES), or there is none"
        )
    return cupy


def _unusable(runtime: Any, error: Any) -> NoCudaError | DriverTooOldError:
    """Return what an error of the first CUDA call means."""
    driver = int(runtime.driverGetVersion())
    # Without any driver CUDA reports that it is too old, with version 0.
    if error.status == _INSUFFICIENT_DRIVER and driver > 0:
        return DriverTooOldError(
            f"the driver supports CUDA {cuda_version(driver)}, CuPy needs {cuda_version(runtime.runtimeGetVersion())}: "
            "install a newer driver, or a CuPy of the driver's CUDA"
        )
    if driver == 0:
        return NoCudaError("CuPy finds no CUDA device: no NVIDIA driver is loaded (nvidia-smi shows it)")
    return NoCudaError(f"CuPy finds no CUDA device: {error}")


class CudaDevice:
    """The current CUDA device with the program of one variant.

    Parameters
    ----------
    variant : Variant, optional
    require_pin : bool
        Whether the program must be one of the pins file; records must be made with one that is.

    Raises
    ------
    BackendUnavailableError
        Of the kinds in `producer.backend.cuda.errors`.
    """

    def __init__(self, variant: Variant | None = None, *, require_pin: bool = True) -> None:
        self.variant = variant or Variant()
        self._cupy = require_cuda()
        runtime = self._cupy.cuda.runtime
        self._id = int(runtime.getDevice())
        properties = runtime.getDeviceProperties(self._id)
        capability = f"{properties['major']}{properties['minor']}"
        architecture = f"sm_{capability}"
        if require_pin:
            self.program = compile_pinned(architecture, self.variant, read_kernel_pins())
        else:
            self.program = compile_program(architecture, self.variant)
        self._module = self._load()
        self._functions: dict[str, Any] = {}
        self.blocks = int(properties["multiProcessorCount"]) * _BLOCKS_PER_PROCESSOR
        name: bytes = properties["name"]
        driver = int(runtime.driverGetVersion())
        self.runtime = RuntimeInfo(
            name="cuda",
            version=cuda_version(runtime.runtimeGetVersion()),
            driver=read_driver_version() or f"CUDA {cuda_version(driver)}",
            kernel=KERNEL_NAME,
            gpu=name.decode(),
            gpu_memory_bytes=int(properties["totalGlobalMem"]),
            sha256=self.program.cubin_sha256,
        )
        self._properties = {
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": int(properties["multiProcessorCount"]),
            "l2_cache_bytes": int(properties["l2CacheSize"]),
            "cuda_driver": cuda_version(driver),
        }

    def _load(self) -> Any:
        cupy = self._cupy
        module = cupy.cuda.function.Module()
        try:
            module.load(self.program.cubin)
        except cupy.cuda.driver.CUDADriverError as error:
            if error.status not in _UNLOADABLE:
                raise
            driver = cuda_version(cupy.cuda.runtime.driverGetVersion())
            raise DriverTooOldError(
                f"the driver (CUDA {driver}) cannot load a program for {self.program.architecture} by NVRTC "
                f"{self.program.compiler}: {error}; install a newer driver, or the NVRTC of the driver's CUDA"
            ) from error
        return module

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an uninitialised array; see `Device.empty`."""
        cupy = self._cupy
        try:
            return cupy.empty(tuple(shape), dtype=dtype)
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
            if getattr(error, "status", _OUT_OF_MEMORY) != _OUT_OF_MEMORY:
                raise
            needed = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            raise self._does_not_fit(needed, "an array") from error

    def upload(self, array: npt.NDArray[Any]) -> DeviceArray:
        """Return a copy in the device's memory; see `Device.upload`."""
        target = self.empty(array.shape, array.dtype)
        self.store(target, array)
        return target

    def store(self, target: DeviceArray, array: npt.NDArray[Any]) -> None:
        """Copy an array to a contiguous part of a device array; see `Device.store`."""
        target.set(np.ascontiguousarray(array))

    def download(self, array: DeviceArray) -> npt.NDArray[Any]:
        """Return a copy in host memory; see `Device.download`."""
        result: npt.NDArray[Any] = array.get()
        return result

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        arguments: Sequence[DeviceArray | np.generic | None],
    ) -> None:
        """Start a kernel; see `Device.launch`."""
        function = self._functions.get(kernel)
        if function is None:
            function = self._functions[kernel] = self._module.get_function(kernel)
        values = tuple(np.uintp(0) if argument is None else argument for argument in arguments)
        function(grid, (BLOCK_THREADS, 1, 1), values)

    def time_us(self, work: Callable[[], object], repeats: int) -> float:
        """Return the device's time of one call, between two events around all; see `Device.time_us`."""
        cuda = self._cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(start, end)) * 1e3 / repeats

    def require_free(self, needed_bytes: int, what: str) -> None:
        """Raise `DeviceMemoryError` when the device has not so many bytes free."""
        if needed_bytes > self._free_bytes():
            raise self._does_not_fit(needed_bytes, what)

    def _free_bytes(self) -> int:
        """Return the bytes that an array may still take: of the device, and of CuPy's own pool."""
        cupy = self._cupy
        return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def _does_not_fit(self, needed: int, what: str) -> DeviceMemoryError:
        free = self._free_bytes()
        return DeviceMemoryError(
            f"{what} needs {needed} bytes of memory on {self.runtime.gpu}, free are {free}: take fewer tokens or "
            "heads, or end other programs on the GPU",
            needed_bytes=needed,
            limit_bytes=free,
        )

    def program_bytes(self) -> bytes:
        """Return the cubin; see `Device.program_bytes`."""
        return self.program.cubin

    def describe(self) -> dict[str, object]:
        """Return device, driver, compiler and program; see `Device.describe`."""
        runtime, program = self.runtime, self.program
        bus = str(self._cupy.cuda.runtime.deviceGetPCIBusId(self._id))
        return {
            "device": "cuda",
            "gpu": runtime.gpu,
            "gpu_memory_bytes": runtime.gpu_memory_bytes,
            **self._properties,
            "driver": read_driver_version(),
            "cuda_runtime": runtime.version,
            "cupy": str(self._cupy.__version__),
            **read_clocks(bus),
            "nvrtc": program.compiler,
            "architecture": program.architecture,
            "compile_options": list(program.options),
            "source_sha256": program.source_sha256,
            "cubin_sha256": program.cubin_sha256,
        }
