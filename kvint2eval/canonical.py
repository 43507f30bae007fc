"""Canonical bytes of a v1 record: the input of its witness digest.

v1 has a form of its own: compact JSON in declared order with an empty witness. The C encoder of msgspec writes
it, and the few places where its layout differs from ECMAScript's are fixed in the text: writing each number
from Python would take ten times as long. `canonical_json` writes the RFC 8785 form of any value;
`kvint2eval.canonical_v2` writes the same for a whole v2 record, faster.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from kvint2eval.contract import _v1_decoder as layout
from kvint2eval.contract import read_v1
from kvint2eval.digest import sha256_hex
from kvint2eval.errors import CanonicalFormError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvint2eval.contract import v1

__all__ = ["canonical_json", "canonical_v1", "canonical_v1_of_layout", "es_number", "witness_v1"]

_ENCODER = msgspec.json.Encoder()
_METRICS = b',"metrics":'
_WITNESS = b',"witness_sha256":'
EMPTY_WITNESS = b',"witness_sha256":""}'

_FRACTION_ZERO = re.compile(rb"\.0([,}])")
_EXPONENT_NUMBER = re.compile(rb"(?<=:)-?[0-9.]+e[+-]?[0-9]+")
# Beyond what JSON must escape: characters that would be markup or a line end inside HTML or JavaScript.
_MARKUP = re.compile(rb"[<>&]|\xe2\x80[\xa8\xa9]")
_MARKUP_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}

# How often the letter e stands in the member names: one more means that a number has an exponent.
_E_IN_METRICS = sum(name.count("e") for name in layout.Metrics.__struct_fields__)
_E_IN_CANDIDATE = sum(name.count("e") for name in layout.Candidate.__struct_fields__)


def es_number(value: float) -> str:
    """A finite number as ECMAScript writes it.

    The shortest digits that round-trip; plain notation for 1e-6 <= |x| < 1e21, else an exponent with its
    sign. An integer beyond 2**53 is written as its digits only if it is an `int`.

    Source: ECMA-262, Number::toString; RFC 8785, section 3.2.2.3.
    """
    text = repr(value)
    if isinstance(value, int):
        return text
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    # The value is 0.digits x 10**point.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if 0 < point <= 21:
        body = digits + "0" * (point - count) if count <= point else f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        body = "0." + "0" * -point + digits
    else:
        fraction = f".{digits[1:]}" if count > 1 else ""
        body = f"{digits[0]}{fraction}e{point - 1:+d}"
    return sign + body


def canonical_v1_of_layout(record: layout.Record) -> bytes:
    """Canonical bytes of a decoded record, its witness empty and its absent members as section 3 writes them."""
    metrics = record.metrics
    if metrics.candidates is UNSET or UNSET in (
        metrics.candidate_count,
        metrics.decode_trials,
        metrics.selected_rotation,
    ):
        record = replace(record, metrics=_with_absent_members(metrics))
    encoded = _ENCODER.encode(record)
    # Neither separator can stand inside a string, where its quotes would be escaped.
    head, _, tail = encoded.partition(_METRICS)
    figures, _, _ = tail.rpartition(_WITNESS)
    if b"<" in head or b">" in head or b"&" in head or not head.isascii():
        head = _MARKUP.sub(lambda match: _MARKUP_ESCAPES[match[0]], head)
    if _FRACTION_ZERO.search(figures):
        figures = _FRACTION_ZERO.sub(_without_fraction, figures)
    rows = metrics.candidates
    if figures.count(b"e") != _E_IN_METRICS + (_E_IN_CANDIDATE * len(rows) if rows else 0):
        figures = _EXPONENT_NUMBER.sub(lambda match: es_number(float(match[0])).encode(), figures)
    return b"".join((head, _METRICS, figures, EMPTY_WITNESS))


def _without_fraction(match: re.Match[bytes]) -> bytes:
    return match[1]


def _with_absent_members(metrics: layout.Metrics) -> layout.Metrics:
    return replace(
        metrics,
        candidate_count=0 if metrics.candidate_count is UNSET else metrics.candidate_count,
        decode_trials=0 if metrics.decode_trials is UNSET else metrics.decode_trials,
        selected_rotation=0 if metrics.selected_rotation is UNSET else metrics.selected_rotation,
        candidates=None if metrics.candidates is UNSET else metrics.candidates,
    )


def canonical_v1(record: v1.Record) -> bytes:
    """Canonical bytes of a record, its witness empty.

    Parameters
    ----------
    record
        The record; its `witness_sha256` is not looked at.

    Returns
    -------
    bytes
        ASCII and UTF-8 JSON in declared order, as section 3 of the contract lays it out.
    """
    layout_of_record, _ = read_v1(record.model_dump(mode="json"))
    return canonical_v1_of_layout(layout_of_record)


def witness_v1(record: v1.Record) -> str:
    """Witness digest of a record: SHA-256 of its canonical bytes, 64 lower-case hexadecimal characters."""
    return sha256_hex(canonical_v1(record))


_MAX_SAFE_INTEGER = 2**53 - 1


def canonical_json(value: Any) -> bytes:
    """RFC 8785 form of a JSON value: sorted members, shortest numbers, least escapes, UTF-8.

    Parameters
    ----------
    value
        dict with string names, list, tuple, str, int, float, bool or None, nested as JSON is.

    Raises
    ------
    CanonicalFormError
        The value has no form that every reader understands alike: an integer of 2**53 or more, which
        ECMAScript would round, so that two integers had one form; NaN or infinity; half of a surrogate pair;
        a name that is no string; a type that JSON does not have; more levels than Python can follow.

    Notes
    -----
    Source: RFC 8785. Members are sorted by the UTF-16 code units of their names (section 3.2.3).
    """
    try:
        return "".join(_pieces(value)).encode()
    except UnicodeEncodeError as error:
        raise CanonicalFormError("found half of a surrogate pair, allowed: whole characters") from error
    except RecursionError as error:
        raise CanonicalFormError("found a value that nests too deep") from error


def _pieces(value: Any) -> Iterator[str]:
    """Pieces of the canonical text."""
    if isinstance(value, str):
        yield json.dumps(value, ensure_ascii=False)
    elif value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int | float):
        yield _number(value)
    elif isinstance(value, list | tuple):
        yield "["
        for index, one in enumerate(value):
            yield from (",",) if index else ()
            yield from _pieces(one)
        yield "]"
    elif isinstance(value, dict):
        yield from _object_pieces(value)
    else:
        raise CanonicalFormError(f"found a {type(value).__name__}, allowed: what JSON can hold")


def _object_pieces(members: dict[Any, Any]) -> Iterator[str]:
    for name in members:
        if not isinstance(name, str):
            raise CanonicalFormError(f"found the member name {name!r}, allowed: a string")
    yield "{"
    for index, name in enumerate(sorted(members, key=lambda name: name.encode("utf-16-be"))):
        yield f"{',' if index else ''}{json.dumps(name, ensure_ascii=False)}:"
        yield from _pieces(members[name])
    yield "}"


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) > _MAX_SAFE_INTEGER:
        raise CanonicalFormError(
            f"found the integer {value}, allowed: at most {_MAX_SAFE_INTEGER} in magnitude"
        )
    if not math.isfinite(value):
        raise CanonicalFormError(f"found {value}, allowed: a finite number")
    return es_number(value)
