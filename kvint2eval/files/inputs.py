"""Discovery and reading of inputs: files, folders, JSON Lines in blocks. No adjudication.

A file is opened once, must be regular, and is never read further than the limits allow. Symbolic links are
refused, not followed: a verdict on a file is a verdict on the bytes that stand there.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from kvint2eval.errors import InputError
from kvint2eval.files.digest import open_regular
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

__all__ = [
    "BLOCK_BYTES",
    "ENVELOPE_SUFFIX",
    "STDIN",
    "Input",
    "collect",
    "read_block",
    "read_envelope",
    "read_record",
    "stream_lines",
]

BLOCK_BYTES = 1 << 18
"""Bytes of JSON Lines that are read at a time: larger pieces come fresh from the system, a page fault a page."""

ENVELOPE_SUFFIX = ".dsse"
"""The envelope of `record.json` is `record.json.dsse`."""

STDIN = "-"

_KEPT_BYTES = MAX_RECORD_BYTES + 1  # enough to see that a record is too large


class Input(NamedTuple):
    """One thing to judge."""

    path: str
    """The path as given, or below a folder as found; `-` is standard input."""
    is_lines: bool
    """Whether each line is a record."""
    size: int
    """Size in bytes when it was found; 0 for standard input."""


def collect(paths: Iterable[str], *, lines: bool = False) -> tuple[list[Input], list[str]]:
    """Inputs below the given paths, in a fixed order, and what could not be taken.

    Parameters
    ----------
    paths
        Files, folders (their `*.json` and `*.jsonl`, at any depth) and `-`.
    lines
        Whether every file holds one record a line; otherwise only `*.jsonl` does.

    Returns
    -------
    list of Input
        In the order given, those of a folder sorted by path.
    list of str
        One message for each path that cannot be judged.
    """
    inputs: list[Input] = []
    errors: list[str] = []
    for path in paths:
        if path == STDIN:
            inputs.append(Input(STDIN, lines, 0))
        elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114  # as in `digest`
            before = len(inputs) + len(errors)
            for found in _walk(path, errors):
                _add(found, inputs, errors, lines=lines)
            if len(inputs) + len(errors) == before:
                errors.append(f"{path}: found no *.json and no *.jsonl below this folder")
        else:
            _add(path, inputs, errors, lines=lines)
    return inputs, errors


def _add(path: str, inputs: list[Input], errors: list[str], *, lines: bool) -> None:
    try:
        descriptor = open_regular(path)
    except InputError as error:
        errors.append(str(error))
        return
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    inputs.append(Input(path, lines or path.endswith(".jsonl"), size))


def _walk(folder: str, errors: list[str]) -> Iterator[str]:
    """Paths of the records below a folder, sorted; a link to a folder is refused, so no loop can arise."""
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            errors.append(f"{current}: {error.strerror or error}")
            continue
        for entry in found:
            if entry.is_symlink() and entry.is_dir():
                errors.append(f"{entry.path}: found a symbolic link to a folder, which is not followed")
            elif not entry.is_dir(follow_symlinks=False) and entry.name.endswith((".json", ".jsonl")):
                yield entry.path
        pending += [entry.path for entry in reversed(found) if entry.is_dir(follow_symlinks=False)]


def read_record(path: str) -> bytes:
    """Bytes of a file that holds one record, cut one byte after the largest record.

    Raises
    ------
    InputError
        The file cannot be read or is not a regular file.
    """
    descriptor = open_regular(path)
    try:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            return _read_up_to(stream, _KEPT_BYTES)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def read_envelope(path: str) -> bytes | None:
    """Bytes of the envelope of a record's file, None where there is none that can be read; cut as a record is."""
    try:
        return read_record(path + ENVELOPE_SUFFIX)
    except InputError:
        return None


def _read_up_to(stream: BinaryIO, count: int) -> bytes:
    parts = []
    while count > 0 and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_block(descriptor: int, start: int, stop: int) -> list[bytes]:
    """Lines of a file that begin in a range of offsets.

    Parameters
    ----------
    descriptor
        The file, open for reading.
    start, stop
        The range; the file is cut into ranges that follow one another.

    Returns
    -------
    list of bytes
        The lines without their LF. The last one is read beyond `stop` as far as it goes; one that is longer
        than a record may be is cut after `MAX_RECORD_BYTES + 1` bytes.
    """
    # One byte before the range tells whether a line begins at its first byte.
    ahead = 1 if start else 0
    data = os.pread(descriptor, stop - start + ahead, start - ahead)
    if start:
        first = data.find(b"\n")
        if first < 0:
            return []
        data = data[first + 1 :]
    if not data:
        return []
    lines = data.split(b"\n")
    last = lines.pop()
    # A block that ends at a line's end leaves the next line to the next block.
    if last:
        lines.append(_complete(descriptor, last, stop))
    return [*map(_cut, lines)]


def _complete(descriptor: int, line: bytes, offset: int) -> bytes:
    while len(line) < _KEPT_BYTES:
        more = os.pread(descriptor, _KEPT_BYTES - len(line), offset)
        end = more.find(b"\n")
        if end >= 0 or not more:
            return line + more[: max(end, 0)]
        line += more
        offset += len(more)
    return line


def stream_lines(stream: BufferedReader, head: bytes = b"") -> Iterator[list[bytes]]:
    """Lines of a stream, in blocks, without their LF; a long line is cut as in `read_block`.

    Parameters
    ----------
    stream
        Read to its end, a block at a time.
    head
        Bytes that were read from the stream before.
    """
    held: list[bytes] = []
    held_bytes = 0
    for block in chain((head,), iter(lambda: stream.read1(BLOCK_BYTES), b"")):
        begun, newline, rest = block.partition(b"\n")
        if held_bytes < _KEPT_BYTES:
            held.append(begun)
            held_bytes += len(begun)
        if newline:
            lines = rest.split(b"\n")
            last = lines.pop()
            yield [_cut(b"".join(held)), *map(_cut, lines)]
            held, held_bytes = [last], len(last)
    if held_bytes:
        yield [_cut(b"".join(held))]


def _cut(line: bytes) -> bytes:
    return line if len(line) <= _KEPT_BYTES else line[:_KEPT_BYTES]
