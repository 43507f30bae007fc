"""RFC 8785 form of a v2 record, written by the C encoder of msgspec.

The encoder sorts members and writes shortest digits, but lays some numbers out in another way than ECMAScript.
Columns of numbers are encoded one by one, so that their text holds nothing but numbers and can be fixed.
`kvint2eval.strict_json.rfc8785.canonical_json` is the plain form of the same; a property test holds the two equal.
"""

from __future__ import annotations

import re
from typing import Any

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

# Names of the numbers and of the columns of numbers, by class.
_FIELDS: dict[type[Struct], tuple[tuple[str, ...], tuple[str, ...]]] = {
    kind: (
        tuple(name for name, (sort, _, _) in fields.items() if sort == "number"),
        tuple(name for name, (sort, _, _) in fields.items() if sort == "numbers"),
    )
    for kind, fields in layout.SHAPE.items()
}


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


def _written(part: Any) -> Any:
    """A struct whose own numbers and columns are texts."""
    numbers, columns = _FIELDS[type(part)]
    texts = {name: Raw(_text([getattr(part, name)])[1:-1]) for name in numbers}
    for name in columns:
        values = getattr(part, name)
        if values is not None:
            texts[name] = Raw(_text(values))
    return replace(part, **texts) if texts else part


def _written_arm(arm: layout.Arm) -> layout.Arm:
    calibration = _written(arm.calibration)
    table = b",".join(map(_text, arm.calibration.query_nmse))
    written: layout.Arm = replace(
        _written(arm),
        calibration=replace(calibration, query_nmse=Raw(b"[" + table + b"]")),
        summary=_written(arm.summary),
        trials=_written(arm.trials),
    )
    return written


def _written_record(record: layout.Record) -> layout.Record:
    recipe, workload, measurements = record.recipe, record.workload, record.measurements
    if recipe.dialect is not None:
        recipe = replace(recipe, dialect=_written(recipe.dialect))
    if workload.synthetic is not None:
        workload = replace(workload, synthetic=_written(workload.synthetic))
    if measurements is not None:
        measurements = replace(
            _written(measurements),
            null_checks=list(map(_written, measurements.null_checks)),
            arms=list(map(_written_arm, measurements.arms)),
            storage=_written(measurements.storage),
        )
    return replace(
        record,
        recipe=_written(recipe),
        workload=workload,
        measurements=measurements,
        claims=list(map(_written, record.claims)),
    )


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
        return _without_witness(_ENCODE_SORTED(_written_record(record)))
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
        sealed = _ENCODE_SORTED(_written_record(record))
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
