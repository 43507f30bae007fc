"""Backends: the work that grows with the number of tokens, on a CPU or a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.backend.cpu import NumpyBackend
from producer.errors import BackendUnavailableError, SpecError

if TYPE_CHECKING:
    from producer.backend.base import Backend

__all__ = ["BACKENDS", "cuda_problem", "select_backend"]

BACKENDS = ("auto", "numpy", "cupy")


def cuda_problem() -> str | None:
    """Return why no run on a GPU is possible here, with what to do, or None when one is."""
    from producer.backend.cuda.cupy_device import require_cuda  # noqa: PLC0415 - imports CuPy

    try:
        require_cuda()
    except BackendUnavailableError as error:
        return str(error)
    return None


def select_backend(name: str, workers: int | None = None) -> Backend:
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
    problem = None if name == "numpy" else cuda_problem()
    if name == "cupy" and problem is not None:
        raise BackendUnavailableError(f"backend cupy cannot run here: {problem}")
    if name != "numpy" and problem is None:
        from producer.backend.cuda.backend import open_cuda_backend  # noqa: PLC0415

        return open_cuda_backend()
    return NumpyBackend(workers)
