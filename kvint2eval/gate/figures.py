"""Expected text of a figure: the values at JSON pointers of a record, in a format.

A number is rounded from the decimal digits of the record, half to even. Rounding its binary value would print
19187.1855 as 19187.185 with three places, for the nearest binary64 lies just below, and no reader who rounds
the published digits would agree.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

from kvint2eval.errors import PinsError

__all__ = ["FormatMismatch", "Template", "at_pointer", "parse_template"]

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SPEC = re.compile(r":(?:(d)|(,d)|(\+?)(,?)(\.[0-9]{1,2})([feEg%]))")

_NUMBER = r"[-+\u2212]?[0-9](?:[0-9,.]*[0-9])?(?:[eE][-+]?[0-9]+)?%?"
_WORD = r"\S+"


class FormatMismatch(Exception):  # noqa: N818  # becomes a finding of the gate
    """A value that cannot be written in a format."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(f"found {found}, allowed: {allowed}")
        self.found = found
        self.allowed = allowed


class _Field(NamedTuple):
    spec: str
    """Format specification without its colon; empty writes the value as it stands."""
    is_integer: bool


class Template(NamedTuple):
    """A parsed format: literal texts with fields between them."""

    source: str
    literals: tuple[str, ...]
    """One more than there are fields."""
    fields: tuple[_Field, ...]

    def render(self, values: list[Any]) -> str:
        """Text of the values, one a field.

        Raises
        ------
        FormatMismatch
            A value cannot be written in its field's format.
        """
        parts = [self.literals[0]]
        for field, value, literal in zip(self.fields, values, self.literals[1:], strict=True):
            parts += [_write(field, value), literal]
        return "".join(parts)

    @property
    def pattern(self) -> str:
        """Regular expression of a text in this format, whatever its values are."""
        parts = [_flexible(self.literals[0])]
        for field, literal in zip(self.fields, self.literals[1:], strict=True):
            parts += [_NUMBER if field.spec else rf"(?:{_NUMBER}|{_WORD})", _flexible(literal)]
        return "".join(parts)


def _flexible(literal: str) -> str:
    r"""Pattern of a text in which any white space may stand for any other."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", literal))


def parse_template(source: str) -> Template:
    """Template of a format such as `{:.6f} ± {:.6f}`.

    Parameters
    ----------
    source
        Text with fields: `{}` writes a text, an integer or a number as the record has it; `{:d}` and `{:,d}`
        an integer; `{:.3f}`, and likewise with `e`, `E`, `g` and `%`, a number, with `,` for thousands and
        `+` for its sign. `{{` and `}}` stand for the braces themselves.

    Raises
    ------
    PinsError
        A field is none of these, or there is none.
    """
    literals = [""]
    fields = []
    end = 0
    for match in _PIECE.finditer(source):
        literals[-1] += source[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            literals[-1] += match[0][0]
            continue
        spec = match[1]
        shape = _SPEC.fullmatch(spec) if spec else None
        if spec is None or (spec and shape is None):
            raise PinsError(
                f"found {match[0]!r} in format {source!r}, allowed: {{}}, {{:d}}, {{:,d}}, {{:.3f}} and the like"
            )
        fields.append(_Field(spec[1:], is_integer=bool(shape and (shape[1] or shape[2]))))
        literals.append("")
    literals[-1] += source[end:]
    if not fields:
        raise PinsError(f"found format {source!r} without a field, allowed: one {{}} or more")
    return Template(source, tuple(literals), tuple(fields))


def _write(field: _Field, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        raise FormatMismatch(repr(value), "a text, an integer or a number")
    if not field.spec:
        return value if isinstance(value, str) else format(_decimal(value), "f")
    if isinstance(value, str):
        raise FormatMismatch(f"the text {value!r}", f"a number for {{:{field.spec}}}")
    if field.is_integer:
        if not isinstance(value, int):
            raise FormatMismatch(repr(value), f"an integer for {{:{field.spec}}}")
        return format(value, field.spec)
    return format(_decimal(value), field.spec)


def _decimal(value: float) -> Decimal:
    """The shortest decimal that reads back as the number: the digits that a record shows."""
    return Decimal(repr(value))


def at_pointer(document: Any, pointer: str) -> Any:
    """Value at a JSON pointer (RFC 6901).

    Raises
    ------
    LookupError
        Nothing stands there; the message names the first step that leads nowhere.
    """
    value = document
    walked = ""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        walked += f"/{step}"
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise LookupError(f"nothing at {walked}")
    return value
