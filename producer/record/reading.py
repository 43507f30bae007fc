"""Reading of records: bytes, files and JSON Lines, of contract v1 or v2."""

from __future__ import annotations

import os
from itertools import chain

from kvint2eval import Finding, adjudicate, read_record
from kvint2eval.contract.v1.model import Record
from kvint2eval.contract.v2.model import Record as RecordV2
from kvint2eval.errors import InputError
from kvint2eval.files.digest import open_regular
from kvint2eval.files.inputs import read_record_file as read_record_bytes
from kvint2eval.files.inputs import stream_lines
from producer.errors import RecordError

__all__ = [
    "Record",
    "RecordV2",
    "parse_record",
    "read_record_file",
    "read_record_lines",
    "require_not_unsupported",
    "verdict_words",
]


def parse_record(data: bytes) -> Record | RecordV2:
    """Return the record that bytes hold, of v1 or v2.

    Raises
    ------
    RecordError
        If they are no well-formed record of a known contract; the message says what was found, what is allowed,
        and where.
    """
    record = read_record(data)
    if isinstance(record, Finding):
        place = "" if record.line is None else f", line {record.line}, column {record.column}"
        raise RecordError(
            f"{record.code} at {record.pointer or 'the record'}{place}: "
            f"found {record.found}, allowed: {record.allowed}"
        )
    return record


def read_record_file(path: str) -> Record | RecordV2:
    """Return the record in a file, of v1 or v2.

    Raises
    ------
    RecordError
        If the file cannot be read, or holds no well-formed record.
    """
    try:
        data = read_record_bytes(path)
    except InputError as error:
        raise RecordError(str(error)) from error
    return parse_record(data)


def read_record_lines(path: str) -> list[Record | RecordV2]:
    """Return the records of a JSON Lines file, of v1 or v2; empty lines are passed over.

    Raises
    ------
    RecordError
        If the file cannot be read, holds no record, or a line holds no well-formed one.
    """
    records = []
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            for number, line in enumerate(chain.from_iterable(stream_lines(stream)), 1):
                if not line.strip():
                    continue
                try:
                    records.append(parse_record(line))
                except RecordError as error:
                    raise RecordError(f"{path}, line {number}: {error}") from error
    except InputError as error:
        raise RecordError(str(error)) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    if not records:
        raise RecordError(f"{path}: found no record, allowed: one a line")
    return records


def require_not_unsupported(path: str) -> None:
    """Raise `RecordError` if any record of a file, one record or JSON Lines, is unsupported."""
    with os.fdopen(open_regular(path), "rb") as stream:
        content = stream.read()
    lines = content.splitlines() if path.endswith(".jsonl") else [content]
    for number, line in enumerate(lines, 1):
        outcome, code = verdict_words(line) if line.strip() else ("", "")
        if outcome == "unsupported":
            where = f"{path}, line {number}" if path.endswith(".jsonl") else path
            raise RecordError(f"{where}: unsupported: {code}; allowed: a supported or delegated record")


def verdict_words(data: bytes) -> tuple[str, str]:
    """Return what the adjudicator says of a record: its outcome, and the finding's code or an empty text."""
    verdict = adjudicate(data)
    return str(verdict.outcome), "" if verdict.finding is None else verdict.finding.code
