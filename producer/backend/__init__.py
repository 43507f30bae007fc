"""Backends: where the work that grows with the number of tokens is done."""

import importlib.util
from typing import TYPE_CHECKING

from producer.backend.cpu import NumpyBackend
from producer.errors import BackendUnavailableError, SpecError

if TYPE_CHECKING:
    from producer.backend.base import Backend

__all__ = ["BACKENDS", "cuda_problem", "select_backend"]

BACKENDS = ("auto", "numpy", "cupy")


def cuda_problem() -> str | None:
    """Return why no run on a GPU is possible here, or None when one is."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy  # noqa: PLC0415 - only where it is installed

    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no CUDA device: {error}"
    if devices == 0:
        return "CuPy finds no CUDA device"
    if importlib.util.find_spec("producer.gpu") is None:
        return "this version has no GPU kernels"
    return None


def select_backend(name: str, workers: int | None = None) -> "Backend":
    """Return a backend by name.

    Parameters
    ----------
    name : {"auto", "numpy", "cupy"}
        `auto` takes the GPU where there is one.
    workers : int, optional
        Cores that the CPU backend may use.

    Raises
    ------
    SpecError
        If the name is unknown or the number of workers not allowed.
    BackendUnavailableError
        If `cupy` is asked for and cannot run here.
    """
    if name not in BACKENDS:
        raise SpecError(f"backend {name!r} is not allowed: one of {', '.join(BACKENDS)}")
    if name == "cupy" and (problem := cuda_problem()) is not None:
        raise BackendUnavailableError(f"backend cupy cannot run here: {problem}")
    return NumpyBackend(workers)
