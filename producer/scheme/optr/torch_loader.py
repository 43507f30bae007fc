"""Lazy import of torch."""

from __future__ import annotations

from typing import Any, TypeAlias

from producer.errors import BackendUnavailableError, ExtraMissingError, SpecError

__all__ = ["Tensor", "load_torch", "require_device"]

Tensor: TypeAlias = Any
"""A torch tensor; torch may be absent when types are checked."""


def load_torch() -> Any:
    """Return torch.

    Raises
    ------
    ExtraMissingError
        If it is not installed.
    """
    try:
        import torch  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError("OptR needs torch: pip install 'kvint2eval[trace]'") from error
    return torch


def require_device(name: str) -> None:
    """Raise unless torch can compute on a device.

    Raises
    ------
    SpecError
        If there is no device of such a name.
    BackendUnavailableError
        If this machine or this build of torch does not have it.
    """
    torch = load_torch()
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise SpecError(f"device {name!r} is not allowed: cpu, cuda or cuda:N") from error
    if kind not in {"cpu", "cuda"}:
        raise SpecError(f"device {name!r} is not allowed: cpu, cuda or cuda:N")
    if kind == "cuda":
        try:
            torch.zeros(1, device=name)
        except (RuntimeError, AssertionError) as error:
            raise BackendUnavailableError(f"torch cannot use {name}: {error}") from error
