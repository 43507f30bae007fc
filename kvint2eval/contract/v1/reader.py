"""Decoding of a v1 record, from bytes or parsed members.

Two readers with one result. `decode_v1` is the fast one: it takes a complete record in plain ASCII without
escapes, which is what records are, and gives None for anything else. `read_v1` takes what the strict parser
made of any other text, and says which member is at fault. A property test holds the two equal.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from kvint2eval.contract.shape import (
    FRACTION_IN_INTEGER,
    INTEGER_OUT_OF_RANGE,
    UNKNOWN_MEMBER,
    WRONG_TYPE,
    ShapeFault,
)
from kvint2eval.contract.v1 import _decoder as layout
from kvint2eval.strict_json.describe import describe
from kvint2eval.strict_json.parse import MAY_UNDERFLOW

__all__ = ["decode_v1", "is_plain", "read_v1"]

_DECODER = msgspec.json.Decoder(layout.Record)

# What the decoder would let pass although the strict parser refuses it: a negative zero, also by underflow.
_NEGATIVE_ZERO = re.compile(rb"-(?:0|[0-9][0-9.]*[eE])")

_UINT64_MAX = 2**64 - 1
_INT64_MAX = 2**63 - 1
_EXACT = 2**53


def _quotes(*objects: type[Struct]) -> int:
    """Quotation marks that the names and the string values of these objects take."""
    kinds = [kind for one in objects for kind, _ in layout.SHAPE[one].values()]
    return 2 * (len(kinds) + kinds.count("string"))


_QUOTES = _quotes(
    layout.Record,
    layout.Pin,
    layout.Pin,
    layout.Pin,
    layout.Runtime,
    layout.Hardware,
    layout.Recipe,
    layout.Metrics,
)
_ROW_QUOTES = _quotes(layout.Candidate)


def decode_v1(data: bytes) -> layout.Record | None:
    """Layout of a record that `is_plain` has yet to confirm, or None where the strict reader has to look.

    Parameters
    ----------
    data
        Bytes of one record, at most `kvint2eval.strict_json.parse.MAX_RECORD_BYTES` of them.
    """
    try:
        record = _DECODER.decode(data)
    except msgspec.MsgspecError:
        return None
    hardware = record.hardware
    return None if hardware.seed > _UINT64_MAX or hardware.gpu_memory_bytes > _UINT64_MAX else record


def is_plain(data: bytes, record: layout.Record) -> bool:
    """Whether the bytes of a decoded record hold nothing that the strict parser would refuse.

    Parameters
    ----------
    data
        The bytes, in any layout.
    record
        What `decode_v1` made of them.

    Returns
    -------
    bool
        False also for texts that may be acceptable: those with escapes or with characters beyond ASCII.

    Notes
    -----
    The decoder keeps the last of several members of one name. Every member takes a known number of quotation
    marks, and without a backslash no mark is escaped; so the count of marks tells whether a name stands twice.
    """
    if b"\\" in data or not data.isascii() or _NEGATIVE_ZERO.search(data) or MAY_UNDERFLOW.search(data):
        return False
    metrics = record.metrics
    rows = metrics.candidates
    quotes = _QUOTES
    if rows is UNSET:
        quotes -= 2
    elif rows:
        quotes += _ROW_QUOTES * len(rows)
    for counter in (metrics.candidate_count, metrics.decode_trials, metrics.selected_rotation):
        if counter is UNSET:
            quotes -= 2
    return data.count(b'"') == quotes


def read_v1(members: dict[str, Any]) -> tuple[layout.Record, frozenset[str]]:
    """Layout of a record, and the pointers of its absent members.

    Parameters
    ----------
    members
        The record as `kvint2eval.strict_json.parse.parse_text` gives it.

    Returns
    -------
    layout.Record
        Absent members take the value that the witness digest gives them.
    frozenset of str
        JSON pointers of the absent members; an absent object is named itself, not its members.

    Raises
    ------
    ShapeFault
        A member is unknown or has a wrong type, the first in the order of the text.
    """
    missing: set[str] = set()
    record = _object(layout.Record, members, "", missing)
    return record, frozenset(missing)


def _object(kind: type[Any], members: Any, pointer: str, missing: set[str]) -> Any:
    if type(members) is not dict:
        raise ShapeFault(WRONG_TYPE, pointer, describe(members), "an object")
    fields = layout.SHAPE[kind]
    values: dict[str, Any] = {}
    for name, value in members.items():
        field = fields.get(name)
        at = f"{pointer}/{name}"
        if field is None:
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            raise ShapeFault(UNKNOWN_MEMBER, at, f"member {describe(name)}", f"one of {', '.join(fields)}")
        values[name] = _value(field[0], field[1], value, at, missing)
    if len(values) != len(fields):
        for name, (sort, inner) in fields.items():
            if name not in values:
                missing.add(f"{pointer}/{name}")
                values[name] = (
                    _ABSENT[sort] if inner is None or sort == "rows" else _object(inner, {}, "", set())
                )
    return kind(**values)


_ABSENT: dict[str, Any] = {"string": "", "int64": 0, "uint64": 0, "number": 0, "rows": None}


def _value(sort: str, inner: type[Any] | None, value: Any, at: str, missing: set[str]) -> Any:
    """Value of one member, checked against its kind; bool is no number here, though Python has it so."""
    kind = type(value)
    if sort == "number" and kind in (int, float):
        return value if kind is float or -_EXACT <= value <= _EXACT else float(value)
    if sort == "string" and kind is str:
        return value
    if inner is not None:
        return _container(sort, inner, value, at, missing)
    if kind in (int, float) and sort != "string":
        return _integer(sort, value, at)
    raise ShapeFault(WRONG_TYPE, at, describe(value), _ALLOWED[sort])


def _container(sort: str, inner: type[Any], value: Any, at: str, missing: set[str]) -> Any:
    if sort == "object":
        return _object(inner, value, at, missing)
    if value is None:
        missing.add(at)
        return None
    if type(value) is not list:
        raise ShapeFault(WRONG_TYPE, at, describe(value), _ALLOWED[sort])
    return tuple(_object(inner, row, f"{at}/{index}", missing) for index, row in enumerate(value))


def _integer(sort: str, value: float, at: str) -> int:
    if not isinstance(value, int):
        raise ShapeFault(FRACTION_IN_INTEGER, at, describe(value), "an integer, written as plain digits")
    least, most = (0, _UINT64_MAX) if sort == "uint64" else (-_INT64_MAX - 1, _INT64_MAX)
    if not least <= value <= most:
        raise ShapeFault(INTEGER_OUT_OF_RANGE, at, describe(value), f"an integer from {least} to {most}")
    return value


_ALLOWED = {
    "string": "a string",
    "number": "a number",
    "int64": "an integer",
    "uint64": "an unsigned integer",
    "rows": "an array of objects, or null",
}
