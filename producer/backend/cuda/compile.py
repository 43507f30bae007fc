"""Compilation of the kernels; the only caller of NVRTC.

NVRTC compiles for a GPU on a machine without one, so the digest of the compiled program can be checked by anyone:
the same source, compiler, architecture and options give the same bytes.

The program is one text: every ``.cu`` file of ``kernels/`` in the order of their names, each with the headers that it
names in place of its ``#include`` lines, each header once. NVRTC sees no file and no search path, so nothing outside
that text takes part. (CuPy is handed the compiled bytes: its own compiler call would append ``-ftz=true`` after our
options, where NVRTC takes the last, and its cache key leaves out headers.)
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from producer.backend.cuda.errors import CompilerMissingError, KernelCompileError
from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "KERNEL_FOLDER",
    "KERNEL_NAME",
    "CompiledProgram",
    "Variant",
    "compile_program",
    "compiler_version",
    "program_options",
    "program_source",
]

KERNEL_FOLDER = Path(__file__).parent / "kernels"
#: Name of the compiled program in records (`runtime.kernel`).
KERNEL_NAME = "kvint2eval-int2-attention-v1"
#: A path here wins over every other NVRTC library.
LIBRARY_VARIABLE = "KVINT2EVAL_NVRTC"

_INCLUDE = re.compile(r'^[ \t]*#include "(?P<name>[a-z0-9_]+\.cuh)"[ \t]*$', re.MULTILINE)
_ARCHITECTURE = re.compile(r"sm_[0-9]{2,3}")
# Arithmetic that the pins and the equality with the CPU rest on: nothing is fused or flushed unless it is written so,
# and quotients and roots are rounded correctly.
_NUMERIC_OPTIONS = ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")


@dataclass(frozen=True, slots=True)
class Variant:
    """What is fixed when the program is compiled.

    Parameters
    ----------
    head_dim : int
        Channels of a head, a power of two, 16 … 512.
    group_size : int
        Channels that share a scale, a power of two, 16 … `head_dim`.

    Raises
    ------
    SpecError
        If a size is not allowed.
    """

    head_dim: int = 128
    group_size: int = 128

    def __post_init__(self) -> None:
        for name, value, top in (
            ("head_dim", self.head_dim, 512),
            ("group_size", self.group_size, self.head_dim),
        ):
            if not 16 <= value <= top or value & (value - 1):
                raise SpecError(
                    f"{name} {value} is not allowed on a GPU: a power of two, 16 … {top}; the NumPy backend has "
                    "no such limit"
                )

    @property
    def defines(self) -> tuple[str, str]:
        """The variant as compiler options."""
        return (f"-DKV_HEAD_DIM={self.head_dim}", f"-DKV_GROUP_SIZE={self.group_size}")


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """The compiled kernels and what they were made from.

    Attributes
    ----------
    cubin : bytes
        What the driver loads.
    source : str
        The exact text that was compiled.
    source_sha256, cubin_sha256 : str
        64 lower-case hexadecimal characters; of the UTF-8 text and of the bytes.
    compiler : str
        Version of NVRTC, "12.9".
    architecture : str
        "sm_90", for example.
    options : tuple of str
        All options of the compilation, in order.
    log : str
        The compiler's remarks, empty as a rule.
    """

    cubin: bytes
    source: str
    source_sha256: str
    cubin_sha256: str
    compiler: str
    architecture: str
    options: tuple[str, ...]
    log: str


def _expanded(name: str, folder: Path, seen: set[str]) -> Iterator[str]:
    """Yield the parts of a file, headers in place of the lines that name them, each header once."""
    seen.add(name)
    text = (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n").replace("#pragma once\n", "")
    position = 0
    yield f"// ==== {name}\n"
    for match in _INCLUDE.finditer(text):
        yield text[position : match.start()]
        position = match.end() + 1
        if match["name"] not in seen:
            yield from _expanded(match["name"], folder, seen)
    yield text[position:]


def program_source(folder: Path = KERNEL_FOLDER) -> str:
    """Return the text of the whole program.

    Parameters
    ----------
    folder : Path
        Holds the ``.cu`` files and their ``.cuh`` headers.

    Raises
    ------
    KernelCompileError
        If a file names a header that does not exist.
    """
    seen: set[str] = set()
    try:
        return "".join(
            part for path in sorted(folder.glob("*.cu")) for part in _expanded(path.name, folder, seen)
        )
    except FileNotFoundError as error:
        raise KernelCompileError(
            f"a kernel includes {error.filename}, which does not exist; allowed: .cuh files of {folder.name}/"
        ) from error


def program_options(variant: Variant, architecture: str) -> tuple[str, ...]:
    """Return all options of a compilation, in order.

    Raises
    ------
    SpecError
        If the architecture is not spelled like sm_90.
    """
    if not _ARCHITECTURE.fullmatch(architecture):
        raise SpecError(f"architecture {architecture!r} is not allowed: sm_ and a number, as in sm_90")
    return (f"--gpu-architecture={architecture}", "--std=c++17", *_NUMERIC_OPTIONS, *variant.defines)


def compile_program(
    architecture: str, variant: Variant | None = None, source: str | None = None
) -> CompiledProgram:
    """Return the kernels compiled for an architecture; needs no GPU.

    Parameters
    ----------
    architecture : str
        "sm_89" (L4), "sm_90" (H100, H200), …
    variant : Variant, optional
        Sizes; the published ones by default.
    source : str, optional
        The text; that of `program_source` by default.

    Raises
    ------
    CompilerMissingError
        If there is no NVRTC.
    KernelCompileError
        If the text does not compile, or this NVRTC does not know the architecture; with the compiler's log.
    """
    text = program_source() if source is None else source
    options = program_options(variant or Variant(), architecture)
    cubin, log = _nvrtc().compile(text, options)
    return CompiledProgram(
        cubin=cubin,
        source=text,
        source_sha256=hashlib.sha256(text.encode()).hexdigest(),
        cubin_sha256=hashlib.sha256(cubin).hexdigest(),
        compiler=_nvrtc().version,
        architecture=architecture,
        options=options,
        log=log,
    )


def compiler_version() -> str:
    """Return the version of the NVRTC that is used, as it states it itself: "12.9".

    Raises
    ------
    CompilerMissingError
        If there is none.
    """
    return _nvrtc().version


def _library_candidates() -> Iterator[str]:
    """Yield paths and names of NVRTC libraries, the one to prefer first.

    The one that the pins were made with comes first: its programs also run under newer drivers.
    """
    if given := os.environ.get(LIBRARY_VARIABLE):
        yield given
        return
    for package, name in (("nvidia.cuda_nvrtc", "libnvrtc.so.12"), ("nvidia.cu13", "libnvrtc.so.13")):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / "lib" / name
            if path.is_file():
                yield str(path)
    for name in ("libnvrtc.so.12", "libnvrtc.so.13"):
        yield name
        home = Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")) / "lib64" / name
        if home.is_file():
            yield str(home)


class _Nvrtc:
    """NVRTC's C interface, as far as it is used.

    Parameters
    ----------
    library : ctypes.CDLL
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def _status(self, function: str, *arguments: object) -> str | None:
        """Call a function; return its error's name, or None."""
        status = int(getattr(self._library, function)(*arguments))
        if status == 0:
            return None
        text: bytes = self._library.nvrtcGetErrorString(status)
        return text.decode()

    def _call(self, function: str, *arguments: object) -> None:
        problem = self._status(function, *arguments)
        if problem is not None:
            raise KernelCompileError(f"{function} of NVRTC failed: {problem}")

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        """Return a result of a program: its size, then its bytes."""
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, source: str, options: tuple[str, ...]) -> tuple[bytes, str]:
        """Return cubin and log of a text."""
        program = ctypes.c_void_p()
        name = f"{KERNEL_NAME}.cu".encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name, 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            problem = self._status("nvrtcCompileProgram", program, len(options), given)
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if problem is not None:
                first = next((line for line in log.splitlines() if "error" in line), problem)
                raise KernelCompileError(
                    f"NVRTC {self.version} does not compile the kernels with {' '.join(options)}: {first}",
                    log=log,
                )
            return self._bytes(program, "CUBIN"), log
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))


@functools.cache
def _nvrtc() -> _Nvrtc:
    """Return the NVRTC of this machine."""
    tried = []
    for candidate in _library_candidates():
        try:
            # NVRTC opens its second library by name alone; one that is already loaded is found.
            for builtins in (
                sorted(Path(candidate).parent.glob("libnvrtc-builtins.so.*")) if "/" in candidate else ()
            ):
                ctypes.CDLL(str(builtins))
            return _Nvrtc(ctypes.CDLL(candidate))
        except OSError as error:
            tried.append(str(error))
    raise CompilerMissingError(
        f"no NVRTC library is found ({'; '.join(tried)}): pip install 'kvint2eval[gpu]', or set {LIBRARY_VARIABLE} "
        "to the path of a libnvrtc"
    )
