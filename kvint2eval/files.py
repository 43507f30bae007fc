"""Atomic file writes: to a temporary name beside the target, then renamed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old file or the whole new one.

    Parameters
    ----------
    path
        The file; replaced where it is there.
    data
        Its content.

    Raises
    ------
    OSError
        The folder or the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
