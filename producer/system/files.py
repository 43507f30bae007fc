"""Atomic file writes: a reader sees the old file or the whole new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["require_writable", "temporary_beside", "write_text"]


def require_writable(path: Path) -> None:
    """Raise when a file cannot be written to this path; called before any work.

    Raises
    ------
    SpecError
        If its folder is missing or not writable, or the path is no regular file.
    """
    if not path.parent.is_dir():
        raise SpecError(f"output {path} is not allowed: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise SpecError(f"output {path} is not allowed: the folder {path.parent} cannot be written")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise SpecError(f"output {path} is not allowed: it exists and is no regular file")


@contextlib.contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; renamed to `path` at the end, removed when anything fails."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files for their owner alone; a record is for others to read.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with LF line ends to a temporary name and rename it."""
    with temporary_beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
