"""SHA-256 of bytes, of files, and of text in LF form."""

from __future__ import annotations

import hashlib
import os
import stat
from binascii import unhexlify

from kvint2eval.errors import InputError
from kvint2eval.files.names import look_alike, quoted

__all__ = ["is_digest", "line_end_hint", "open_regular", "sha256_file", "sha256_hex", "sha256_text_file"]

DIGEST_LENGTH = 64
_CHUNK_BYTES = 1 << 20


def sha256_hex(data: bytes) -> str:
    """SHA-256 of bytes, 64 lower-case hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Whether a text is 64 lower-case hexadecimal characters, and nothing more."""
    try:
        # A round trip refuses what either step alone would take: upper case, and digits outside ASCII.
        return len(text) == DIGEST_LENGTH and unhexlify(text).hex() == text
    except ValueError:
        return False


def open_regular(path: str | os.PathLike[str]) -> int:
    """File descriptor of a regular file, opened for reading; the caller closes it.

    Raises
    ------
    InputError
        The path cannot be opened, or is a symbolic link, a device, a pipe or a folder. A pipe is refused
        without waiting for its writer.
    """
    try:
        # The kind is asked of the open file: a check of the path could be overtaken by a swap.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114  # pathlib takes a sixth of the command's start
            raise InputError(f"{quoted(path)}: found a symbolic link, allowed: a regular file") from error
        hint = look_alike(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{quoted(path)}: {error.strerror or error}{hint}") from error
    except ValueError as error:  # a NUL byte in the path
        raise InputError(f"{quoted(path)}: found {error}, allowed: a path") from error
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise InputError(f"{quoted(path)}: found {_kind_name(kind)}, allowed: a regular file")
    return descriptor


def _kind_name(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a named pipe" if stat.S_ISFIFO(mode) else "a device or socket"


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's raw bytes.

    Raises
    ------
    InputError
        The file cannot be read or is not a regular file.
    """
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path), "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_text_file(path: str | os.PathLike[str]) -> str:
    r"""SHA-256 of a text file in LF form: every CR LF counts as LF, so that a checkout cannot change it.

    A CR that no LF follows stays as it is.

    Raises
    ------
    InputError
        The file cannot be read or is not a regular file.
    """
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path), "rb") as stream:
        held = b""
        while chunk := held + stream.read(_CHUNK_BYTES):
            # A CR at the end of a chunk waits for the byte after it, unless there is none.
            held = b"\r" if chunk[-1:] == b"\r" and chunk != held else b""
            digest.update(chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def line_end_hint(path: str | os.PathLike[str], stated: str, *, is_text: bool) -> str:
    """What is said of a file whose digest differs from a stated one by its line ends alone; empty where it does not.

    Parameters
    ----------
    path
        The file.
    stated
        The digest that it should have.
    is_text
        Whether it was hashed in LF form.
    """
    try:
        if is_text and sha256_file(path) == stated:
            return "; the file as it is, with its CR LF line ends, has it: leave out text = true, or state the LF form"
        if not is_text and sha256_text_file(path) == stated:
            return "; in LF form the file has it: say text = true, or check it out with LF line ends"
    except InputError:
        pass
    return ""
