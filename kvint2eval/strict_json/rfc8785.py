"""RFC 8785 (JSON Canonicalization Scheme) form of JSON values."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from kvint2eval.errors import CanonicalFormError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["canonical_json", "es_number"]

_MAX_SAFE_INTEGER = 2**53 - 1


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
