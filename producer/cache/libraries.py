"""The libraries of the cache, torch and transformers, and the versions whose cache interface is known."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from producer.errors import ExtraMissingError

__all__ = ["NEWEST", "OLDEST", "Tensor", "load_libraries", "require_version"]

#: First and last minor version whose interface the tests run against; it changes between minor versions.
OLDEST, NEWEST = (5, 16), (5, 24)

Tensor: TypeAlias = Any
"""A torch tensor; torch may be absent when types are checked."""


def require_version(version: str) -> None:
    """Raise `ExtraMissingError` unless a version of transformers is one of those known here."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        oldest, newest = (".".join(map(str, part)) for part in (OLDEST, NEWEST))
        raise ExtraMissingError(
            f"transformers {version} is not allowed: the packed cache knows the cache interface of {oldest} to "
            f"{newest}: pip install 'transformers>={oldest},<{NEWEST[0]}.{NEWEST[1] + 1}'"
        )


def load_libraries() -> tuple[Any, Any]:
    """Return torch and transformers.

    Raises
    ------
    ExtraMissingError
        If one is not installed, or transformers is of a version that is not known here.
    """
    try:
        import torch  # noqa: PLC0415 - an extra, and slow to import
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise ExtraMissingError(
            "the packed cache needs torch and transformers: pip install 'kvint2eval[trace]'"
        ) from error
    require_version(transformers.__version__)
    return torch, transformers
