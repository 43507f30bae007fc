"""Strict JSON: bytes to values, with the place of each fault.

`parse_text` accepts the JSON texts of RFC 8259 that every reader understands alike, and refuses the rest as
section 4 of the contract lists it. The C scanner of the standard library does the parsing; what it lets pass
(duplicate members, NaN, numbers that overflow or underflow, a negative zero, lone surrogates, deep nesting) is refused
here. Places are looked for only after something was refused, so that an accepted text does not pay for them.

Time is linear in the input, and memory is bounded by `MAX_RECORD_BYTES`.
"""

from __future__ import annotations

import json
import math
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, absent from typeshed
from typing import TYPE_CHECKING, Any

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.errors import StrictJsonError

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def __init__(self, code: Code, allowed: str) -> None:
        super().__init__(code)
        self.code = code
        self.allowed = allowed


DUPLICATE_MEMBER = Code(
    "duplicate-member",
    Reason.MALFORMED_RECORD,
    "An object has two members of one name, compared after unescaping: two readers could see different records.",
    "Remove one of the two.",
    '"seed": 6260 and later "\\u0073eed": 1 in the same object',
    v1=0,
    v2=0,
)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused(DUPLICATE_MEMBER, "each member name once in an object")
    return members


NEGATIVE_ZERO = Code(
    "negative-zero",
    Reason.MALFORMED_RECORD,
    "A number is negative zero, which readers write in different ways.",
    "Write 0.",
    '"task_accuracy_stddev": -0.0',
    v1=0,
    v2=0,
)
INTEGER_TOO_LONG = Code(
    "integer-too-long",
    Reason.MALFORMED_RECORD,
    "An integer has more than 20 digits.",
    "No member of a record needs more than 20 digits.",
    '"seed": 123456789012345678901',
    v1=0,
    v2=0,
)


def _integer(literal: str) -> int:
    if literal == "-0":
        raise _Refused(NEGATIVE_ZERO, "0")
    # The length is checked before int() sees the literal: int() is quadratic in its length.
    if len(literal) - (literal[0] == "-") > MAX_INTEGER_DIGITS:
        raise _Refused(INTEGER_TOO_LONG, f"at most {MAX_INTEGER_DIGITS} digits in an integer")
    return int(literal)


NUMBER_UNDERFLOW = Code(
    "number-underflow",
    Reason.MALFORMED_RECORD,
    "A number other than 0 is too small for binary64, which makes it 0.",
    "Write the figure that was measured.",
    '"output_nmse_mean": 1e-400',
    v1=0,
    v2=0,
)
NUMBER_OVERFLOW = Code(
    "number-overflow",
    Reason.MALFORMED_RECORD,
    "A number overflows binary64 to infinity.",
    "Write the figure that was measured.",
    '"output_nmse_mean": 1e400',
    v1=0,
    v2=0,
)


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Refused(NUMBER_OVERFLOW, "a number that binary64 can hold")
    if value == 0.0:
        if literal[0] == "-":
            raise _Refused(NEGATIVE_ZERO, "0")
        if _NOT_ZERO.match(literal):
            raise _Refused(NUMBER_UNDERFLOW, "0, or a number that binary64 can hold")
    return value


NOT_A_NUMBER = Code(
    "not-a-number",
    Reason.MALFORMED_RECORD,
    "NaN or Infinity stands where a number belongs.",
    "Find out why the figure is not finite.",
    '"output_nmse_mean": NaN',
    v1=0,
    v2=0,
)


def _constant(_literal: str) -> float:
    raise _Refused(NOT_A_NUMBER, "a finite JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
# Steps over a value without judging it: used on text that was parsed before, to find a member's place.
_SKIP = json.JSONDecoder(parse_float=len, parse_int=len).scan_once  # type: ignore[attr-defined]


EMPTY_INPUT = Code(
    "empty-input",
    Reason.MALFORMED_RECORD,
    "The input holds no JSON value.",
    "Write one JSON object.",
    "a file of zero bytes",
    v1=0,
    v2=0,
)
RECORD_TOO_LARGE = Code(
    "record-too-large",
    Reason.MALFORMED_RECORD,
    "The record is larger than 1 MiB.",
    "Keep raw trials in a file of their own.",
    "a record of 1,048,577 bytes",
    v1=0,
    v2=0,
)
UTF16 = Code(
    "utf16",
    Reason.MALFORMED_RECORD,
    "The text is UTF-16 or UTF-32.",
    "Save the file as UTF-8.",
    "a record saved as UTF-16",
    v1=0,
    v2=0,
)
BYTE_ORDER_MARK = Code(
    "byte-order-mark",
    Reason.MALFORMED_RECORD,
    "The text begins with a byte-order mark.",
    "Save the file as UTF-8 without one.",
    "EF BB BF before the first brace",
    v1=0,
    v2=0,
)
NOT_UTF8 = Code(
    "not-utf8",
    Reason.MALFORMED_RECORD,
    "A byte is not UTF-8.",
    "Save the file as UTF-8.",
    "byte E9, Latin-1 for e with acute, in hardware.os",
    v1=0,
    v2=0,
)


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
        raise StrictJsonError(EMPTY_INPUT, "no JSON value", "one JSON object")
    if len(data) > MAX_RECORD_BYTES:
        raise StrictJsonError(
            RECORD_TOO_LARGE,
            f"more than {MAX_RECORD_BYTES} bytes",
            f"at most {MAX_RECORD_BYTES} bytes a record",
        )
    head = data[:4]
    # A JSON text begins with an ASCII character, so a NUL beside it means 16 or 32 bits a character.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or (b"\0" in head[:2] and head.strip(b"\0")):
        raise StrictJsonError(UTF16, "UTF-16 or UTF-32 text", "UTF-8 text", 1, 1)
    if head[:3] == b"\xef\xbb\xbf":
        raise StrictJsonError(BYTE_ORDER_MARK, "a byte-order mark", "UTF-8 text without one", 1, 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        good = data[: error.start].decode()
        raise StrictJsonError(
            NOT_UTF8, f"byte 0x{data[error.start]:02x}", "UTF-8 text", *place(good, len(good))
        ) from error


TRAILING_CONTENT = Code(
    "trailing-content",
    Reason.MALFORMED_RECORD,
    "Something follows the JSON value.",
    "One record a file; several go into JSON Lines (.jsonl).",
    "a second object after the first",
    v1=0,
    v2=0,
)


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
            TRAILING_CONTENT, _shown(text, end), "nothing after the value", *place(text, end)
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


NESTED_TOO_DEEP = Code(
    "nested-too-deep",
    Reason.MALFORMED_RECORD,
    "Objects and arrays nest deeper than 32.",
    "A record nests four deep; remove the rest.",
    "33 opening brackets in a row",
    v1=0,
    v2=0,
)


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
                NESTED_TOO_DEEP, f"depth {depth}", f"at most {MAX_DEPTH}", *place(text, match.start(1))
            )


INVALID_JSON = Code(
    "invalid-json",
    Reason.MALFORMED_RECORD,
    "The text is not JSON.",
    "Fix the syntax at the place given.",
    "a comma after the last member",
    v1=0,
    v2=0,
)


def _syntax_error(text: str, error: json.JSONDecodeError) -> StrictJsonError:
    offset, message = error.pos, error.msg
    if message.startswith("Illegal trailing comma"):
        # Python 3.13 points at the comma; before, at what follows it. One text has one place.
        offset = _SPACE.match(text, offset + 1).end()  # type: ignore[union-attr]
        message = "Expecting " + _AFTER_COMMA[text[offset]]
    allowed = message[:1].lower() + message[1:]
    return StrictJsonError(INVALID_JSON, _shown(text, offset), allowed, *place(text, offset))


_AFTER_COMMA = {"}": "property name enclosed in double quotes", "]": "value"}


def _shown(text: str, offset: int) -> str:
    rest = text[offset : offset + _SHOWN_CHARACTERS]
    return repr(rest) if rest else "the end of the input"


def _refusal(text: str, refused: _Refused) -> StrictJsonError:
    """Error with a place, for a fault that a hook found: hooks do not know where they are."""
    if refused.code == DUPLICATE_MEMBER:
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


LONE_SURROGATE = Code(
    "lone-surrogate",
    Reason.MALFORMED_RECORD,
    "A string holds half of a surrogate pair, which is no character.",
    "Write the whole pair, or the character.",
    '"os": "\\ud800"',
    v1=0,
    v2=0,
)


def _require_no_lone_surrogate(text: str) -> None:
    for string, offset in _escaped_strings(text):
        if _SURROGATES.search(json.loads(string)):
            raise StrictJsonError(
                LONE_SURROGATE, string[:_SHOWN_CHARACTERS], "a pair of surrogates", *place(text, offset)
            )


def _escaped_strings(text: str) -> Iterator[tuple[str, int]]:
    for match in _ALL_STRINGS.finditer(text):
        if "\\u" in match[0]:
            yield match[0], match.start()
