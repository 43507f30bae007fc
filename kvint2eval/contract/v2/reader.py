"""Decoding of a v2 record, from bytes or parsed members.

Two readers with one result. `decode_v2` is the fast one; it gives None for any text that needs a closer look.
`read_v2` takes what the strict parser made of such a text and says which member is at fault.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from kvint2eval.contract.shape import (
    FRACTION_IN_INTEGER,
    INTEGER_OUT_OF_RANGE,
    MISSING_MEMBER,
    UNKNOWN_MEMBER,
    WRONG_TYPE,
    ShapeFault,
)
from kvint2eval.contract.v2 import _decoder as layout
from kvint2eval.strict_json.describe import describe

__all__ = ["MAX_SAFE_INTEGER", "decode_v2", "read_v2"]

MAX_SAFE_INTEGER = 2**53 - 1

_DECODER = msgspec.json.Decoder(layout.Record)


def decode_v2(data: bytes) -> layout.Record | None:
    """Layout of a record, or None where the strict reader has to look.

    Parameters
    ----------
    data
        Bytes of one record, at most `kvint2eval.strict_json.parse.MAX_RECORD_BYTES` of them.

    Notes
    -----
    Three things pass here that the strict parser refuses: a member that stands twice, a negative zero, and an
    integer literal beyond 2**53 in the place of a number. `kvint2eval.contract.v2.canonical.canonical_of_plain` sees
    them when it writes the record again.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError:
        return None


def read_v2(members: dict[str, Any]) -> layout.Record:
    """Layout of a record.

    Parameters
    ----------
    members
        The record as `kvint2eval.strict_json.parse.parse_text` gives it.

    Raises
    ------
    ShapeFault
        A member is missing, unknown or of a wrong type: the first unknown or wrong one in the order of the
        text, else the first missing one in declared order.
    """
    record: layout.Record = _object(layout.Record, members, "")
    return record


def _object(kind: type[Any], members: Any, pointer: str) -> Any:
    if type(members) is not dict:
        raise ShapeFault(WRONG_TYPE, pointer, describe(members), "an object")
    fields = layout.SHAPE[kind]
    values = {}
    for name, value in members.items():
        field = fields.get(name)
        if field is None:
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            raise ShapeFault(UNKNOWN_MEMBER, at, f"member {describe(name)}", f"one of {', '.join(fields)}")
        values[name] = _nullable(*field, value, f"{pointer}/{name}")
    for name, (sort, _, is_nullable) in fields.items():
        if name not in values:
            allowed = _ALLOWED[sort] + (" or null" if is_nullable else "")
            raise ShapeFault(MISSING_MEMBER, f"{pointer}/{name}", "nothing: the member is missing", allowed)
    return kind(**values)


def _nullable(sort: str, inner: type[Any] | None, is_nullable: bool, value: Any, at: str) -> Any:  # noqa: FBT001
    if value is None and is_nullable:
        return None
    try:
        return _value(sort, inner, value, at)
    except ShapeFault as fault:
        if is_nullable and fault.pointer == at and fault.code == WRONG_TYPE:
            raise ShapeFault(fault.code, at, fault.found, f"{fault.allowed} or null") from fault
        raise


def _value(sort: str, inner: type[Any] | None, value: Any, at: str) -> Any:
    """Value of one member, checked against its kind; bool is no number here, though Python has it so."""
    if sort in _SCALARS:
        return _scalar(sort, value, at)
    if sort == "object":
        return _object(cast("type[Any]", inner), value, at)
    if type(value) is not list:
        raise ShapeFault(WRONG_TYPE, at, describe(value), _ALLOWED[sort])
    element = _ELEMENTS[sort]
    # Whole columns are of one type as a rule; an integer literal in a column of numbers takes the other way.
    if element in _SCALARS and set(map(type, value)) <= {_SCALARS[element]}:
        return value
    return [_value(element, inner, one, f"{at}/{index}") for index, one in enumerate(value)]


def _scalar(sort: str, value: Any, at: str) -> Any:
    if type(value) is _SCALARS[sort]:
        if sort == "uint" and not 0 <= value <= MAX_SAFE_INTEGER:
            raise _out_of_range(value, at, 0)
        return value
    if sort == "number" and type(value) is int:
        if abs(value) > MAX_SAFE_INTEGER:
            raise _out_of_range(value, at, -MAX_SAFE_INTEGER)
        return float(value)
    if sort == "uint" and type(value) is float:
        raise ShapeFault(FRACTION_IN_INTEGER, at, describe(value), "an integer, written as plain digits")
    raise ShapeFault(WRONG_TYPE, at, describe(value), _ALLOWED[sort])


def _out_of_range(value: int, at: str, least: int) -> ShapeFault:
    allowed = f"an integer from {least} to {MAX_SAFE_INTEGER}; larger ones are not exact in every reader"
    return ShapeFault(INTEGER_OUT_OF_RANGE, at, describe(value), allowed)


_SCALARS: dict[str, type[Any]] = {"string": str, "uint": int, "number": float, "boolean": bool}

_ELEMENTS = {"strings": "string", "numbers": "number", "table": "numbers", "rows": "object"}

_ALLOWED = {
    "string": "a string",
    "uint": "an unsigned integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "strings": "an array of strings",
    "numbers": "an array of numbers",
    "table": "an array of arrays of numbers",
    "rows": "an array of objects",
}
