"""Strict JSON: bytes to values, with the place of each fault.

`parse_text` accepts the JSON texts of RFC 8259 that every reader understands alike, and refuses the rest as
section 4 of the contract lists it. The C scanner of the standard library does the parsing; what it lets pass
(duplicate members, NaN, numbers that overflow or underflow, a negative zero, lone surrogates, deep nesting) is refused
here. Places are looked for only after something was refused, so that an accepted text does not pay for them.

Time is linear in the input, and memory is bounded by `MAX_RECORD_BYTES`.
"""

import json
import math
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, absent from typeshed
from typing import Any

from kvint2eval.errors import StrictJsonError

__all__ = [
    "MAX_DEPTH",
    "MAX_INTEGER_DIGITS",
    "MAX_RECORD_BYTES",
    "MAY_UNDERFLOW",
    "decode_bytes",
    "locate",
    "parse_text",
    "place",
]

MAX_RECORD_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_INTEGER_DIGITS = 20

MAY_UNDERFLOW = re.compile(rb"-[0-9]{3}|0{200}")
"""In every text with a literal other than 0 that binary64 rounds to 0: an exponent of three digits, or many zeros.

A decoder that gives 0 for such a literal leaves no trace of it. A text that only looks like one costs time alone.
"""

_SPACE = re.compile(r"[ \t\n\r]*")
# A string, closed or not. Possessive, and matching in every case, so that no search starts twice at one place.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_NUMBER = re.compile(rf"{_STRING}|(-?(?:Infinity|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|NaN)", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|([\[\]{{}}])", re.DOTALL)
_TOKEN = re.compile(rf"({_STRING})([ \t\n\r]*+:)?|([\[\]{{}}])", re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_ALL_STRINGS = re.compile(_STRING, re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")

_NOT_ZERO = re.compile(r"[0.]*[1-9]")

_SHOWN_CHARACTERS = 40


class _Refused(Exception):  # noqa: N818  # a signal inside this module, not an error that callers see
    """A hook of the scanner met what the contract refuses."""

    def __init__(self, code: str, allowed: str) -> None:
        super().__init__(code)
        self.code = code
        self.allowed = allowed


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused("duplicate-member", "each member name once in an object")
    return members


def _integer(literal: str) -> int:
    if literal == "-0":
        raise _Refused("negative-zero", "0")
    # The length is checked before int() sees the literal: int() is quadratic in its length.
    if len(literal) - (literal[0] == "-") > MAX_INTEGER_DIGITS:
        raise _Refused("integer-too-long", f"at most {MAX_INTEGER_DIGITS} digits in an integer")
    return int(literal)


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Refused("number-overflow", "a number that binary64 can hold")
    if value == 0.0:
        if literal[0] == "-":
            raise _Refused("negative-zero", "0")
        if _NOT_ZERO.match(literal):
            raise _Refused("number-underflow", "0, or a number that binary64 can hold")
    return value


def _constant(_literal: str) -> float:
    raise _Refused("not-a-number", "a finite JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
# Steps over a value without judging it: used on text that was parsed before, to find a member's place.
_SKIP = json.JSONDecoder(parse_float=len, parse_int=len).scan_once  # type: ignore[attr-defined]


def decode_bytes(data: bytes) -> str:
    """Text of the bytes of one record.

    Parameters
    ----------
    data
        The bytes, whole. Of a record longer than `MAX_RECORD_BYTES` the first `MAX_RECORD_BYTES + 1` suffice.

    Raises
    ------
    StrictJsonError
        The input is empty or too large, or is not UTF-8 without a byte-order mark.
    """
    if not data.strip(b" \t\r\n"):
        raise StrictJsonError("empty-input", "no JSON value", "one JSON object")
    if len(data) > MAX_RECORD_BYTES:
        raise StrictJsonError(
            "record-too-large",
            f"more than {MAX_RECORD_BYTES} bytes",
            f"at most {MAX_RECORD_BYTES} bytes a record",
        )
    head = data[:4]
    # A JSON text begins with an ASCII character, so a NUL beside it means 16 or 32 bits a character.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or (b"\0" in head[:2] and head.strip(b"\0")):
        raise StrictJsonError("utf16", "UTF-16 or UTF-32 text", "UTF-8 text", 1, 1)
    if head[:3] == b"\xef\xbb\xbf":
        raise StrictJsonError("byte-order-mark", "a byte-order mark", "UTF-8 text without one", 1, 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        good = data[: error.start].decode()
        raise StrictJsonError(
            "not-utf8", f"byte 0x{data[error.start]:02x}", "UTF-8 text", *place(good, len(good))
        ) from error


def parse_text(text: str) -> Any:
    """Value of a strict JSON text.

    Parameters
    ----------
    text
        The text, as `decode_bytes` gives it.

    Returns
    -------
    Any
        dict, list, str, int, float, bool or None. Integers are exact; a number with a fraction or an exponent
        is the nearest binary64 value.

    Raises
    ------
    StrictJsonError
        The text is refused; the error says why and where.
    """
    _require_depth(text)
    start = _SPACE.match(text).end()  # type: ignore[union-attr]  # matches the empty string
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _syntax_error(text, error) from error
    except _Refused as refused:
        raise _refusal(text, refused) from refused
    end = _SPACE.match(text, end).end()  # type: ignore[union-attr]
    if end != len(text):
        raise StrictJsonError(
            "trailing-content", _shown(text, end), "nothing after the value", *place(text, end)
        )
    if _SURROGATE_ESCAPE.search(text):
        _require_no_lone_surrogate(text)
    return value


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1; lines end at LF, columns count code points."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def locate(text: str, pointer: str) -> tuple[int, int]:
    """Line and column of a value.

    Parameters
    ----------
    text
        A text that `parse_text` accepted.
    pointer
        JSON pointer (RFC 6901) of the value. Where the text lacks it, the place of the innermost container
        on its way is given.
    """
    offset = _SPACE.match(text).end()  # type: ignore[union-attr]
    for step in pointer.split("/")[1:]:
        found = _child(text, offset, step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            break
        offset = found
    return place(text, offset)


def _child(text: str, offset: int, step: str) -> int | None:
    """Offset of a member's or element's value in the container at an offset, or None."""
    opening = text[offset]
    if opening not in "{[":
        return None
    offset = _SPACE.match(text, offset + 1).end()  # type: ignore[union-attr]
    position = 0
    while text[offset] not in "}]":
        name = str(position)
        if opening == "{":
            name, offset = scanstring(text, offset + 1, True)  # noqa: FBT003  # C function, positional only
            offset = _SPACE.match(text, _SPACE.match(text, offset).end() + 1).end()  # type: ignore[union-attr]
        if name == step:
            return offset
        _, offset = _SKIP(text, offset)
        offset = _SPACE.match(text, offset).end()  # type: ignore[union-attr]
        if text[offset] == ",":
            offset = _SPACE.match(text, offset + 1).end()  # type: ignore[union-attr]
        position += 1
    return None


def _require_depth(text: str) -> None:
    # Few brackets cannot nest deeply; the published record has 18.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKET.finditer(text):
        if match[1]:
            depth += 1 if match[1] in "[{" else -1
        if depth > MAX_DEPTH:
            raise StrictJsonError(
                "nested-too-deep", f"depth {depth}", f"at most {MAX_DEPTH}", *place(text, match.start(1))
            )


def _syntax_error(text: str, error: json.JSONDecodeError) -> StrictJsonError:
    offset, message = error.pos, error.msg
    if message.startswith("Illegal trailing comma"):
        # Python 3.13 points at the comma; before, at what follows it. One text has one place.
        offset = _SPACE.match(text, offset + 1).end()  # type: ignore[union-attr]
        message = "Expecting " + _AFTER_COMMA[text[offset]]
    allowed = message[:1].lower() + message[1:]
    return StrictJsonError("invalid-json", _shown(text, offset), allowed, *place(text, offset))


_AFTER_COMMA = {"}": "property name enclosed in double quotes", "]": "value"}


def _shown(text: str, offset: int) -> str:
    rest = text[offset : offset + _SHOWN_CHARACTERS]
    return repr(rest) if rest else "the end of the input"


def _refusal(text: str, refused: _Refused) -> StrictJsonError:
    """Error with a place, for a fault that a hook found: hooks do not know where they are."""
    if refused.code == "duplicate-member":
        name, offset = _first_duplicate(text)
        return StrictJsonError(
            refused.code, f"a second member {name!r}", refused.allowed, *place(text, offset)
        )
    for match in _NUMBER.finditer(text):
        literal = match[1]
        if not literal:
            continue
        try:
            if literal[-1] in "yN":
                _constant(literal)
            (_integer if literal.lstrip("-").isdecimal() else _float)(literal)
        except _Refused as first:
            found = (
                literal
                if len(literal) <= _SHOWN_CHARACTERS
                else f"{literal[:20]}… ({len(literal)} characters)"
            )
            return StrictJsonError(first.code, found, first.allowed, *place(text, match.start(1)))
    return StrictJsonError(refused.code, "a refused number", refused.allowed)  # pragma: no cover


def _first_duplicate(text: str) -> tuple[str, int]:
    """Name and offset of the first member that repeats a name, compared after unescaping."""
    open_objects: list[set[str]] = []
    for match in _TOKEN.finditer(text):
        if match[3]:
            if match[3] in "[{":
                open_objects.append(set())
            else:
                open_objects.pop()
        elif match[2]:
            name = json.loads(match[1])
            if name in open_objects[-1]:
                return name, match.start()
            open_objects[-1].add(name)
    raise AssertionError("unreachable: the scanner found a duplicate")  # pragma: no cover


def _require_no_lone_surrogate(text: str) -> None:
    for string, offset in _escaped_strings(text):
        if _SURROGATES.search(json.loads(string)):
            raise StrictJsonError(
                "lone-surrogate", string[:_SHOWN_CHARACTERS], "a pair of surrogates", *place(text, offset)
            )


def _escaped_strings(text: str) -> Iterator[tuple[str, int]]:
    for match in _ALL_STRINGS.finditer(text):
        if "\\u" in match[0]:
            yield match[0], match.start()
