"""Discovery and reading of inputs: files, folders, JSON Lines in blocks. No adjudication.

A file is opened once, must be regular, and is never read further than the limits allow. Symbolic links are
refused, not followed: a verdict on a file is a verdict on the bytes that stand there. `collect` is the one rule of
what is judged, refused or passed over, for the command, the hook, the plugin, the action and the report.
"""

from __future__ import annotations

import os
import re
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from kvint2eval.errors import InputError
from kvint2eval.files.digest import open_regular
from kvint2eval.files.names import quoted
from kvint2eval.files.walk import Entry, link_entry, walk
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

__all__ = [
    "AUDIT_SUFFIX",
    "BLOCK_BYTES",
    "ENVELOPE_SUFFIX",
    "STDIN",
    "Collected",
    "Input",
    "Refusal",
    "collect",
    "is_audit",
    "read_block",
    "read_envelope",
    "read_record_file",
    "stream_lines",
]

BLOCK_BYTES = 1 << 18
"""Bytes of JSON Lines that are read at a time: larger pieces come fresh from the system, a page fault a page."""

ENVELOPE_SUFFIX = ".dsse"
"""The envelope of `record.json` is `record.json.dsse`."""

AUDIT_SUFFIX = ".audit.json"
"""The audit of `record.json` is `record.audit.json`."""

STDIN = "-"

_LINES = (".jsonl", ".ndjson")
_RECORDS = (".json", *_LINES)
_SUFFIXES = "*.json, *.jsonl, *.ndjson"
_PACKED = re.compile(r"\.(?:json|jsonl|ndjson)\.(?:gz|bgz|bz2|xz|lzma|zst|lz4|br|zip|7z|z)$")
_SHOWN_OTHERS = 10

_KEPT_BYTES = MAX_RECORD_BYTES + 1  # enough to see that a record is too large


class Input(NamedTuple):
    """One thing to judge."""

    path: str
    """The path as given, or below a folder as found; `-` is standard input."""
    is_lines: bool
    """Whether each line is a record."""
    size: int
    """Size in bytes when it was found; 0 for standard input."""


class Refusal(NamedTuple):
    """A path that cannot be judged."""

    path: str
    message: str
    """Found, allowed, where."""
    is_given: bool = False
    """Whether the path was asked for by name, and not met below a folder."""

    def __str__(self) -> str:
        return self.message


class Collected(NamedTuple):
    """What some paths lead to."""

    inputs: list[Input]
    """In the order given, those of a folder sorted by path."""
    refused: list[Refusal]
    """What cannot be judged, with the reason: the run fails for it, and the rest is judged."""
    passed_over: list[str]
    """One line for each file that is no record, or for those of one kind: said, and no reason to fail."""


def is_audit(name: str) -> bool:
    """Whether a file is named like the audit of a record, and so is never judged as one."""
    return name.lower().endswith(AUDIT_SUFFIX)


def collect(paths: Iterable[str], *, lines: bool = False, changed: bool = False) -> Collected:
    """Inputs below the given paths, in a fixed order, what cannot be judged, and what is no record.

    Parameters
    ----------
    paths
        Files, folders (their `*.json`, `*.jsonl` and `*.ndjson` in any case, at any depth) and `-`.
    lines
        Whether every file holds one record a line; otherwise only `*.jsonl` and `*.ndjson` do.
    changed
        Whether the paths are files that a change touched: each is then taken as if it had been met below a folder, and
        an envelope stands for its record.

    Notes
    -----
    The one rule of all entrances. A link is refused by name, wherever it stands. A file below a folder is a record by
    its suffix alone, whatever the folder is called. A compressed record and an envelope without a record are refused,
    since the record that they stand for would go unjudged. Any other file is passed over, and named.
    """
    found = _Collector(lines=lines)
    for path in paths:
        if path == STDIN and not changed:
            found.inputs.append(Input(STDIN, lines, 0))
        elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114  # as in `digest`
            before = len(found.inputs) + len(found.refused)
            for entry in walk(path):
                found.entry(entry)
            if len(found.inputs) + len(found.refused) == before and not changed:
                message = f"{quoted(path)}: found no *.json, *.jsonl or *.ndjson below this folder, allowed: a record"
                found.refused.append(Refusal(path, message, is_given=True))
        elif changed:
            found.entry(entry_of(path))
        elif is_audit(path) and os.path.lexists(path):
            found.audit(path)
        else:
            found.file(path, is_given=True)
    return Collected(found.inputs, found.refused, found.said())


class _Collector:
    """Sorts what is met into records, refusals and the rest."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self.inputs: list[Input] = []
        self.refused: list[Refusal] = []
        self._said: list[str] = []
        self._others: list[str] = []
        self._taken: set[str] = set()

    def entry(self, entry: Entry) -> None:
        """Take what a walk met."""
        path, name = entry.path, os.path.basename(entry.path).lower()  # noqa: PTH119  # as in `digest`
        if entry.fault and (entry.hides_files or name.endswith((*_RECORDS, ENVELOPE_SUFFIX))):
            self.refused.append(Refusal(path, entry.fault))
        elif is_audit(name):
            self.audit(path)
        elif name.endswith(_RECORDS):
            self.file(path)
        elif name.endswith(ENVELOPE_SUFFIX):
            self._envelope(path)
        elif _PACKED.search(name):
            message = (
                f"{quoted(path)}: found a compressed record, allowed: *.json, *.jsonl or *.ndjson; unpack it"
            )
            self.refused.append(Refusal(path, message))
        elif "json" in name:
            self._said.append(
                f"passed over {quoted(path)}: no record by its name, which ends in none of {_SUFFIXES}"
            )
        else:
            self._others.append(path)

    def file(self, path: str, *, is_given: bool = False) -> None:
        """Take a record."""
        if path in self._taken and not is_given:
            return
        self._taken.add(path)
        try:
            descriptor = open_regular(path)
        except InputError as error:
            self.refused.append(Refusal(path, str(error), is_given=is_given))
            return
        size = os.fstat(descriptor).st_size
        os.close(descriptor)
        self.inputs.append(Input(path, self._lines or path.lower().endswith(_LINES), size))

    def _envelope(self, path: str) -> None:
        """Take the record of an envelope, once."""
        record = path[: -len(ENVELOPE_SUFFIX)]
        if os.path.lexists(record):
            if record.lower().endswith(_RECORDS) and not is_audit(record):
                self.file(record)
            return
        message = f"{quoted(path)}: found an envelope without {quoted(record)}, allowed: an envelope beside its record"
        self.refused.append(Refusal(path, message))

    def audit(self, path: str) -> None:
        """Say that an audit is no record, or refuse a record that is named like one."""
        try:
            data = read_record_file(path)
        except InputError as error:
            self.refused.append(Refusal(path, str(error)))
            return
        if b'"contract_version"' in data:
            message = (
                f"{quoted(path)}: found a record that is named like an audit, allowed: a name that does not end in "
                f"{AUDIT_SUFFIX}"
            )
            self.refused.append(Refusal(path, message))
        else:
            self._said.append(f"passed over {quoted(path)}: an audit by its name, and audits are no records")

    def said(self) -> list[str]:
        """What is passed over, in words."""
        others = sorted(set(self._others))
        if not others:
            return self._said
        shown = ", ".join(quoted(one) for one in others[:_SHOWN_OTHERS])
        more = f" and {len(others) - _SHOWN_OTHERS} more" if len(others) > _SHOWN_OTHERS else ""
        return [*self._said, f"passed over, no records by their names: {shown}{more}"]


def entry_of(path: str) -> Entry:
    """A path as a walk gives it."""
    if os.path.islink(path):  # noqa: PTH114
        return link_entry(path)
    return Entry(path, "", hides_files=False)


def read_record_file(path: str) -> bytes:
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
        raise InputError(f"{quoted(path)}: {error.strerror or error}") from error


def read_envelope(path: str) -> bytes | InputError | None:
    """Bytes of the envelope of a record's file, cut as a record is; None without one, or why it is unreadable."""
    envelope = path + ENVELOPE_SUFFIX
    if not os.path.lexists(envelope):
        return None
    try:
        return read_record_file(envelope)
    except InputError as error:
        return error


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
