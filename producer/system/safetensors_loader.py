"""Lazy import of safetensors, an extra."""

from __future__ import annotations

from typing import Any

from producer.errors import ExtraMissingError

__all__ = ["load_safetensors"]


def load_safetensors(what: str) -> Any:
    """Return the module that reads and writes safetensors as arrays.

    Parameters
    ----------
    what : str
        What needs it, for the message.

    Raises
    ------
    ExtraMissingError
        If it is not installed.
    """
    try:
        import safetensors.numpy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissingError(f"{what} safetensors: pip install 'kvint2eval[trace]'") from error
    return safetensors
