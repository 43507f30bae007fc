"""PyTorch and transformers, imported when a model is asked for, offline and quiet."""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from typing import Any

from producer.errors import BackendUnavailableError, ExtraMissingError, SpecError

__all__ = ["DTYPES", "libraries", "require_device", "versions"]

#: Types in which a model can run.
DTYPES = ("float32", "float16", "bfloat16")


def libraries() -> tuple[Any, Any]:
    """Return torch and transformers, offline.

    Raises
    ------
    ExtraMissingError
        If one of them is not installed.
    """
    # A model is a file of the user's; nothing is looked up elsewhere.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch  # noqa: PLC0415 - an extra, and slow to import
            import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExtraMissingError(
            "models need torch and transformers: pip install 'kvint2eval[trace]'"
        ) from error
    return torch, transformers


def versions(*, is_gguf: bool) -> tuple[str, ...]:
    """Return the versions of the libraries that decide a model's numbers, without the suffixes of builds."""
    names = ("torch", "transformers", *(("gguf",) if is_gguf else ()))
    return tuple(f"{name} {importlib.metadata.version(name).partition('+')[0]}" for name in names)


def require_device(device: str, dtype: str) -> None:
    """Raise unless a model can run on a device in a type.

    Raises
    ------
    SpecError
        If one of the two is not known.
    BackendUnavailableError
        If the device is not there.
    """
    if dtype not in DTYPES:
        raise SpecError(f"dtype {dtype!r} is not allowed: {', '.join(DTYPES)}")
    kind, _, place = device.partition(":")
    if kind not in ("cpu", "cuda") or (place and not (place.isascii() and place.isdigit())):
        raise SpecError(f"device {device!r} is not allowed: cpu, cuda or cuda:N")
    if kind == "cuda":
        torch, _ = libraries()
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(place or 0) >= count:
            raise BackendUnavailableError(f"device {device} is not there: PyTorch finds {count} CUDA devices")
