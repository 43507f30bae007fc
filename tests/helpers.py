"""What several tests use."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
TESTDATA = ROOT / "testdata"
RECORDS = TESTDATA / "records" / "v1"


def manifest() -> list[dict[str, Any]]:
    """Rows of the manifest of testdata/records/v1."""
    return [json.loads(line) for line in (TESTDATA / "manifest-v1.jsonl").read_text().splitlines()]


def published() -> bytes:
    """The published record, as checked in."""
    return (RECORDS / "supported" / "l4-published.json").read_bytes()


class Members(NamedTuple):
    """A JSON object as a list of members, which may hold a name twice."""

    pairs: list[tuple[str, Any]]


def as_members(value: Any) -> Any:
    """A parsed value with each object as `Members`."""
    if isinstance(value, dict):
        return Members([(name, as_members(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        return [as_members(inner) for inner in value]
    return value


def dump(value: Any) -> str:
    """JSON text of a value that may hold `Members`."""
    if isinstance(value, Members):
        return "{" + ",".join(f"{json.dumps(name)}:{dump(inner)}" for name, inner in value.pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


def pointers(value: Any, pointer: str = "") -> Iterator[str]:
    """JSON pointers of all members and elements of a parsed value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, inner in children:
        at = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
        yield at
        yield from pointers(inner, at)


def holder_of(value: Any, pointer: str) -> tuple[Any, Any]:
    """Container and key that a pointer leads to."""
    *path, name = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    for step in path:
        value = value[int(step) if isinstance(value, list) else step]
    return value, int(name) if isinstance(value, list) else name


def slow_canonical(record: dict[str, Any]) -> bytes:
    """Canonical bytes by a second implementation, a value at a time: section 3 of the contract, in Python.

    Takes a complete record in declared order.
    """
    return _slow({**record, "witness_sha256": ""}).encode()


def _slow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_slow(name)}:{_slow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_slow, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(_slow_character, value)) + '"'
    return "null" if value is None else _slow_number(value)


def _slow_character(character: str) -> str:
    named = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if character in named:
        return named[character]
    return f"\\u{ord(character):04x}" if character < " " or character in "<>&\u2028\u2029" else character


def _slow_number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    is_negative, numerals, exponent = Decimal(repr(value)).normalize().as_tuple()
    sign, digits = "-" * is_negative, "".join(map(str, numerals))
    point = len(digits) + exponent
    if digits == "0":
        return "0"
    if -6 < point <= 21:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return sign + padded[:point] + (f".{padded[point:]}" if padded[point:] else "")
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
