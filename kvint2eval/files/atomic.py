"""Atomic file writes: a reader sees the old file or the whole new one.

What stands at the path decides how it is written. A regular file is replaced by a temporary file that is renamed, with
its permissions and owner as they were; so is the file that a symbolic link leads to, and the link stays. Anything else,
a device, a pipe or what a descriptor of this process leads to, is written through, for a rename would destroy it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["replacing", "write_whole"]

_PIPE_SECONDS = 10.0
_LINKS = 40


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Descriptor that takes the new content of `path`, which is whole when the block ends without an error.

    Parameters
    ----------
    path
        The file. Where it is regular, or absent, its old content stays until the block ends.

    Raises
    ------
    OSError
        The folder or the file cannot be written; the pipe has no reader within ten seconds; the path is a folder.
    """
    target, old = _target(path)
    if old is None or stat.S_ISREG(old.st_mode):
        yield from _replacing_regular(target, old)
        return
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    descriptor = _open_through(target, is_pipe=stat.S_ISFIFO(old.st_mode))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _replacing_regular(target: Path, old: os.stat_result | None) -> Iterator[int]:
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        try:
            if old is not None:
                with suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            yield descriptor
        finally:
            os.close(descriptor)
        temporary.replace(target)
    finally:
        # Also after an interrupt that came with the opening.
        temporary.unlink(missing_ok=True)


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """The path to write, at the end of all links, and what stands there.

    Raises
    ------
    OSError
        The links lead in a circle, or a folder on the way cannot be searched.
    """
    target = path
    for _ in range(_LINKS):
        if os.path.realpath(target.parent).startswith("/proc/"):
            # A descriptor of a process. Where it leads to a regular file, others go on writing there.
            old = target.stat()
            return target, os.stat_result((stat.S_IFCHR, *old[1:])) if stat.S_ISREG(old.st_mode) else old
        if not target.is_symlink():
            break
        target = target.parent / target.readlink()
    try:
        return target, target.stat()
    except FileNotFoundError:
        return target, None


def _own_descriptor(target: Path) -> int | None:
    """Number of the descriptor of this process that a path below /proc stands for; None for another path."""
    whole = f"{os.path.realpath(target.parent)}/{target.name}"
    found = re.fullmatch(rf"/proc/{os.getpid()}/fd/([0-9]+)", whole)
    return None if found is None else int(found[1])


def _open_through(target: Path, *, is_pipe: bool) -> int:
    own = _own_descriptor(target)
    if own is not None:
        return os.dup(own)  # opened again it would begin at an offset of its own
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_APPEND
    end = time.monotonic() + _PIPE_SECONDS
    while True:
        try:
            descriptor = os.open(target, flags | (os.O_NONBLOCK if is_pipe else 0))
        except OSError as error:
            if not is_pipe or error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "found a pipe without a reader", str(target)) from error
            time.sleep(0.02)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def write_whole(path: Path, data: bytes) -> None:
    """Write a file: a reader sees the old one or the whole new one.

    Parameters
    ----------
    path
        The file, as `replacing` takes it.
    data
        Its content.

    Raises
    ------
    OSError
        The folder or the file cannot be written.
    """
    with replacing(path) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(data)
