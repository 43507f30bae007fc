"""A stand-in for CuPy whose kernels run in the shim: it exercises `CudaDevice` where there is no GPU.

It keeps to what CuPy documents: device arrays are not NumPy arrays, `set` wants the same shape and dtype, a launch
wants device arrays and NumPy scalars. Nothing that is made with it is an observation.
"""

import time
import types

import numpy as np

from producer.backend.cuda.compile import Variant
from producer.backend.cuda.shim import _built


class CUDARuntimeError(RuntimeError):
    def __init__(self, status, text="error"):
        super().__init__(text)
        self.status = status


class CUDADriverError(RuntimeError):
    def __init__(self, status, text="error"):
        super().__init__(text)
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


class Array:
    """A device array: memory that only launches and copies reach."""

    def __init__(self, memory):
        self._memory = memory
        self.shape, self.dtype, self.size = memory.shape, memory.dtype, memory.size
        self.nbytes = memory.nbytes

    def get(self):
        return self._memory.copy()

    def set(self, array):
        if (array.shape, array.dtype) != (self.shape, self.dtype):
            raise ValueError("shape or dtype mismatch")
        if not self._memory.flags.c_contiguous or not array.flags.c_contiguous:
            raise RuntimeError("Cannot set to non-contiguous array")
        self._memory[...] = array

    def __getitem__(self, index):
        return Array(self._memory[index])

    def reshape(self, *shape):
        return Array(self._memory.reshape(*shape))


class Event:
    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass


class Function:
    def __init__(self, program, name):
        self._program, self._name = program, name

    def __call__(self, grid, block, arguments):
        values = []
        for argument in arguments:
            if isinstance(argument, Array):
                values.append(np.array(argument._memory.ctypes.data, np.uintp))
            elif isinstance(argument, np.generic):
                values.append(np.array(argument))
            else:
                raise TypeError(f"Unsupported type {type(argument)}")
        self._program.launch(self._name, grid, block[0], [value.ctypes.data for value in values], 0)


class Module:
    load_status = 0

    def load(self, cubin):
        if self.load_status:
            raise CUDADriverError(
                self.load_status, "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid"
            )
        assert cubin[:4] == b"\x7fELF"
        self._program = _built(Variant())

    def get_function(self, name):
        return Function(self._program, name)


def make(*, devices=1, driver=12090, count_status=0, free=2**30, load_status=0, capability=(8, 9)):
    """A module to put in place of `cupy`."""

    def device_count():
        if count_status:
            raise CUDARuntimeError(count_status, "cudaErrorInsufficientDriver")
        return devices

    def empty(shape, dtype):
        memory = np.empty(shape, dtype)
        if memory.nbytes > free:
            raise OutOfMemoryError
        return Array(memory)

    properties = {
        "name": b"stand-in, no GPU", "major": capability[0], "minor": capability[1], "multiProcessorCount": 2,
        "totalGlobalMem": 2**31, "l2CacheSize": 2**20,
    }  # fmt: skip
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=device_count,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: 12090,
        getDevice=lambda: 0,
        getDeviceProperties=lambda _: properties,
        deviceGetPCIBusId=lambda _: "0000:00:00.0",
        memGetInfo=lambda: (free, 2**31),
    )
    module_class = type("Module", (Module,), {"load_status": load_status})
    cuda = types.SimpleNamespace(
        runtime=runtime,
        function=types.SimpleNamespace(Module=module_class),
        driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Event=Event,
        get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time),
    )
    cupy = types.ModuleType("cupy")
    cupy.__spec__ = types.SimpleNamespace(name="cupy")
    cupy.__version__ = "0"
    cupy.cuda = cuda
    cupy.empty = empty
    cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: 0)
    return cupy
