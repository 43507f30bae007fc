"""RFC 8785 form of a v2 record, written by the C encoder of msgspec.

The encoder sorts members and writes shortest digits, but lays some numbers out in another way than ECMAScript.
Columns of numbers are encoded one by one, so that their text holds nothing but numbers and can be fixed.
`kvint2eval.strict_json.rfc8785.canonical_json` is the plain form of the same; a property test holds the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from kvint2eval.contract.v2 import _decoder as layout
from kvint2eval.files.digest import sha256_hex
from kvint2eval.strict_json.parse import MAY_UNDERFLOW
from kvint2eval.strict_json.rfc8785 import canonical_json, es_number

__all__ = ["canonical_of_plain", "canonical_v2", "canonical_v2_of_layout", "witness_v2"]

_ENCODE_NUMBERS = msgspec.json.Encoder().encode
_ENCODE_SORTED = msgspec.json.Encoder(order="sorted").encode
_WITNESS = b',"witness_sha256":'
_WORKLOAD = b',"workload":'

_FRACTION_ZERO = re.compile(rb"\.0(?=[,\]])")
_EXPONENT_NUMBER = re.compile(rb"(?<![0-9.])[0-9.]++e[+-]?[0-9]+")
# What a decoder cannot tell apart after the fact: -0, and an integer literal that binary64 rounded.
_DOUBTFUL = re.compile(rb"-0\.0[,\]]|[0-9]{16}\.0[,\]]|e[0-9]")

# The same of an integer member, which leaves no trace in the layout. A text that looks like one costs time alone.
_NEGATIVE_ZERO_INTEGER = re.compile(rb"-0(?![.0-9])")

_Writer = Callable[[Any], Any]
_Part = TypeVar("_Part", bound=Struct)


class _Doubtful(Exception):  # noqa: N818  # a signal inside this module
    """A number that only the strict reader can judge."""


def _text(values: list[float]) -> bytes:
    """Text of an array of numbers, as RFC 8785 writes it."""
    text = _ENCODE_NUMBERS(values)
    has_exponent = b"e" in text
    if has_exponent or b".0," in text or b".0]" in text:
        if _DOUBTFUL.search(text):
            raise _Doubtful
        text = _FRACTION_ZERO.sub(b"", text)
    if has_exponent:
        text = _EXPONENT_NUMBER.sub(lambda match: es_number(float(match[0])).encode(), text)
    return text


def _written(part: _Part) -> _Part:
    """A struct whose numbers, at any depth, are texts."""
    texts = {}
    for name, write in _WRITERS[type(part)]:
        value = getattr(part, name)
        if value is not None:
            texts[name] = write(value)
    return replace(part, **texts) if texts else part


def _written_rows(rows: list[Any]) -> list[Any]:
    return list(map(_written, rows))


_WRITE: dict[str, _Writer] = {
    "number": lambda value: Raw(_text([value])[1:-1]),
    "numbers": lambda values: Raw(_text(values)),
    "table": lambda rows: Raw(b"[" + b",".join(map(_text, rows)) + b"]"),
    "object": _written,
    "rows": _written_rows,
}


def _holds_numbers(kind: type[Struct]) -> bool:
    """Whether an object has a number at any depth."""
    return any(
        sort in ("number", "numbers", "table") or (inner is not None and _holds_numbers(inner))
        for sort, inner, _ in layout.SHAPE[kind].values()
    )


# How the members that hold numbers are written, by class: what the declaration says, and nothing by hand.
_WRITERS: dict[type[Struct], tuple[tuple[str, _Writer], ...]] = {
    kind: tuple(
        (name, _WRITE[sort])
        for name, (sort, inner, _) in fields.items()
        if sort in _WRITE and (inner is None or _holds_numbers(inner))
    )
    for kind, fields in layout.SHAPE.items()
}


def _without_witness(sealed: bytes) -> bytes:
    # Neither separator can stand inside a string, where its quotes would be escaped.
    return sealed[: sealed.rindex(_WITNESS)] + sealed[sealed.rindex(_WORKLOAD) :]


def canonical_v2_of_layout(record: layout.Record) -> bytes:
    """RFC 8785 form of a record without its witness.

    Parameters
    ----------
    record
        The layout, read by the strict reader: every number in it is what its literal says.
    """
    try:
        return _without_witness(_ENCODE_SORTED(_written(record)))
    except _Doubtful:
        return canonical_json(_members(record))


def _members(record: layout.Record) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(record)
    del members["witness_sha256"]
    return members


def canonical_of_plain(data: bytes, record: layout.Record) -> bytes | None:
    """RFC 8785 form of a record without its witness, or None where the strict reader has to look.

    Parameters
    ----------
    data
        The bytes of the record.
    record
        What `kvint2eval.contract.v2.reader.decode_v2` made of them.

    Notes
    -----
    The decoder keeps the last of several members of one name. The text that is written from the layout has each
    member once, and without a backslash no quotation mark is escaped; so a second member shows as marks too many.
    """
    if b"\\" in data or _NEGATIVE_ZERO_INTEGER.search(data) or MAY_UNDERFLOW.search(data):
        return None
    try:
        sealed = _ENCODE_SORTED(_written(record))
    except _Doubtful:
        return None
    return _without_witness(sealed) if data.count(b'"') == sealed.count(b'"') else None


def canonical_v2(members: dict[str, Any]) -> bytes:
    """RFC 8785 form of a v2 record without its witness.

    Parameters
    ----------
    members
        The record as JSON values; `witness_sha256` is left out where it stands.

    Raises
    ------
    CanonicalFormError
        A value has no such form.
    """
    return canonical_json({name: value for name, value in members.items() if name != "witness_sha256"})


def witness_v2(members: dict[str, Any]) -> str:
    """Witness digest of a v2 record: SHA-256 of `canonical_v2`, 64 lower-case hexadecimal characters."""
    return sha256_hex(canonical_v2(members))
