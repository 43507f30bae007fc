"""Kernels on a CPU: the program's text compiled as C++ behind `shim.hpp`.

For tests, and for dry runs of what a GPU node will do. The arithmetic is the kernels' own, operation by operation;
times mean nothing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.backend.base import RuntimeInfo
from producer.backend.cuda.compile import KERNEL_NAME, Variant, program_source
from producer.backend.cuda.device import BLOCK_THREADS
from producer.backend.cuda.errors import CompilerMissingError, DeviceMemoryError, KernelCompileError
from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

__all__ = ["ShimDevice", "ShimProgram", "build_shim", "cxx_compiler"]

_HEADER = Path(__file__).parent / "shim.hpp"
_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\(THREADS\)\s+(?P<name>\w+)\(')
_MESSAGE_BYTES = 512
# As on the device: nothing contracted, nothing reassociated. -O1 compiles in a third of the time of -O2.
# Hidden, because the shared memory of a template's kernel is a static variable: two loaded programs of different sizes
# would share one.
_FLAGS = (
    "-std=c++20",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Werror",
)


def cxx_compiler() -> str | None:
    """Return the path of a C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("clang++")


class ShimProgram:
    """A program that was compiled for the CPU.

    Parameters
    ----------
    library : Path
        The shared library.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self.binary = library.read_bytes()
        self._launch = self._library.kv_shim_launch

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        threads: int,
        pointers: Sequence[int],
        seed: int,
    ) -> None:
        """Run a kernel to its end.

        Parameters
        ----------
        kernel : str
        grid : tuple of int
        threads : int
            Of a block.
        pointers : sequence of int
            Address of each argument's value.
        seed : int
            Decides the order in which the threads of a block run.

        Raises
        ------
        RuntimeError
            If the kernel does not exist, or does what would hang a device.
        """
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        values = (ctypes.c_void_p * len(pointers))(*pointers)
        sizes = (ctypes.c_uint * 4)(*grid, threads)
        status = self._launch(kernel.encode(), sizes, values, ctypes.c_uint(seed), message, _MESSAGE_BYTES)
        if status:
            raise RuntimeError(f"kernel {kernel}: {message.value.decode()}")


def _table(source: str) -> str:
    """Return the C++ text that finds kernels by name."""
    names = _KERNEL.findall(source)
    cases = "\n".join(
        f'        if (!std::strcmp(name, "{name}")) {{ return run({name}); }}' for name in names
    )
    return f"""
extern "C" __attribute__((visibility("default")))
int kv_shim_launch(const char* name, const unsigned* sizes, void** arguments, unsigned seed, char* message,
                   unsigned message_bytes) {{
    const auto run = [&](auto* kernel) {{
        shim::launch(kernel, Dim3{{sizes[0], sizes[1], sizes[2]}}, sizes[3], arguments, seed);
        return 0;
    }};
    try {{
{cases}
        std::snprintf(message, message_bytes, "no such kernel in the program");
    }} catch (const std::exception& error) {{
        std::snprintf(message, message_bytes, "%s", error.what());
    }}
    return 1;
}}
"""


def build_shim(variant: Variant | None = None, source: str | None = None) -> ShimProgram:
    """Return the program compiled for the CPU.

    Parameters
    ----------
    variant : Variant, optional
    source : str, optional
        The program's text; that of `program_source` by default.

    Raises
    ------
    CompilerMissingError
        If there is no C++ compiler.
    KernelCompileError
        If the text is no C++; with the compiler's log.
    """
    compiler = cxx_compiler()
    if compiler is None:
        raise CompilerMissingError(
            "no C++ compiler is found (g++, clang++): the kernels cannot run on the CPU"
        )
    text = program_source() if source is None else source
    with tempfile.TemporaryDirectory() as folder:
        program, library = Path(folder) / "program.cpp", Path(folder) / "program.so"
        program.write_text(f'#include "{_HEADER}"\n{text}{_table(text)}', encoding="utf-8")
        command = [compiler, *_FLAGS, *(variant or Variant()).defines, str(program), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own text
        if done.returncode:
            raise KernelCompileError(
                f"{Path(compiler).name} does not compile the kernels as C++", log=done.stderr
            )
        return ShimProgram(library)


@functools.cache
def _built(variant: Variant) -> ShimProgram:
    """Return the program of a variant, compiled once a process."""
    return build_shim(variant)


class ShimDevice:
    """A `producer.backend.cuda.device.Device` whose memory is the host's and whose kernels run in the shim.

    Parameters
    ----------
    variant : Variant, optional
    seed : int
        Decides the order in which the threads of a block run.
    blocks : int
        Blocks of a launch that strides over its rows.
    memory_bytes : int, optional
        What the device pretends to have in all; without end by default.

    Notes
    -----
    `runtime.name` is "shim", so that the adjudicator delegates a record that is made from it: it is no observation on
    a GPU.
    """

    def __init__(
        self,
        variant: Variant | None = None,
        *,
        seed: int = 0,
        blocks: int = 3,
        memory_bytes: int | None = None,
    ) -> None:
        self.variant = variant or Variant()
        self.seed = seed
        self.blocks = blocks
        self._memory_bytes = memory_bytes
        self._program = _built(self.variant)
        self.runtime = RuntimeInfo(
            name="shim",
            version="1",
            driver="none",
            kernel=KERNEL_NAME,
            gpu="",
            gpu_memory_bytes=0,
            sha256=hashlib.sha256(self._program.binary).hexdigest(),
        )

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array that is filled with 0xA5 bytes, so that a value that no kernel wrote shows."""
        array = np.empty(tuple(shape), dtype=dtype)
        self.require_free(array.nbytes, "an array")
        array.view(np.uint8).fill(0xA5)
        return array

    def upload(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy; see `Device.upload`."""
        return np.array(array, order="C")

    def store(self, target: npt.NDArray[Any], array: npt.NDArray[Any]) -> None:
        """Copy; see `Device.store`."""
        np.copyto(target, array)

    def download(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy; see `Device.download`."""
        return array.copy()

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        arguments: Sequence[npt.NDArray[Any] | np.generic | None],
    ) -> None:
        """Run a kernel to its end; see `Device.launch`.

        Raises
        ------
        SpecError
            If an array is not in C order.
        """
        values = []
        for position, argument in enumerate(arguments):
            if isinstance(argument, np.generic):
                values.append(np.array(argument))
                continue
            if argument is not None and not argument.flags.c_contiguous:
                raise SpecError(f"argument {position} of {kernel} is not in C order")
            values.append(np.array(0 if argument is None else argument.ctypes.data, dtype=np.uintp))
        pointers = [value.ctypes.data for value in values]
        self._program.launch(kernel, grid, BLOCK_THREADS, pointers, self.seed)

    def time_us(self, work: Callable[[], object], repeats: int) -> float:
        """Return the host's time of one call; it says nothing of a GPU."""
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        return 1e6 * (time.perf_counter() - start) / repeats

    def require_free(self, needed_bytes: int, what: str) -> None:
        """Raise `DeviceMemoryError` when more is asked for than the device pretends to have."""
        if self._memory_bytes is not None and needed_bytes > self._memory_bytes:
            raise DeviceMemoryError(
                f"{what} needs {needed_bytes} bytes of device memory, allowed are {self._memory_bytes}: take fewer "
                "tokens or heads",
                needed_bytes=needed_bytes,
                limit_bytes=self._memory_bytes,
            )

    def program_bytes(self) -> bytes:
        """Return the shared library; see `Device.program_bytes`."""
        return self._program.binary

    def describe(self) -> dict[str, object]:
        """Return what ran: the shim, no GPU."""
        return {"device": "shim", "gpu": None, "program_sha256": self.runtime.sha256}
