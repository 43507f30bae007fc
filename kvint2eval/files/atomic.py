"""Atomic file writes: a reader sees the old file or the whole new one."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["replacing", "rewrite_whole", "write_whole"]


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Descriptor of a temporary file beside `path` that takes its place when the block ends without an error.

    Raises
    ------
    OSError
        The folder or the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        temporary.replace(path)
    finally:
        # Also after an interrupt that came with the opening.
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file: a reader sees the old one or the whole new one.

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
    with replacing(path) as descriptor:
        _write(descriptor, data)


def rewrite_whole(path: Path, data: bytes) -> None:
    """Give a file that is there another content, whole or never in part; its permissions stay.

    Parameters
    ----------
    path
        The file.
    data
        Its new content.

    Raises
    ------
    OSError
        The folder or the file cannot be written.
    """
    with replacing(path) as descriptor:
        _write(descriptor, data)
        os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(data)
