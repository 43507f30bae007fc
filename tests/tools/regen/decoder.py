"""Writes the decoder of the hot path, `kvint2eval/contract/v1/_decoder.py`, from the pydantic models."""

import types
import typing
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvint2eval.contract.v1 import model as v1

# Only these may be absent from a record that the fast decoder takes: a modeled record leaves them out.
_OPTIONAL = frozenset({"candidate_count", "decode_trials", "selected_rotation", "candidates"})

_HEADER = '''"""Decoder of contract v1 for the hot path. Generated from `model.py` by `make regen`; do not edit.

A record that decodes here has every member but the four that a modeled record may leave out, each of the
declared type; anything else is read again by the strict reader, which can say what is wrong and where.
`SHAPE` is the same layout as a table for that reader: per object the member, its kind, and its class or row
class.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# msgspec's bounds end at int64: the upper bound 2**64 - 1 is checked by hand.
UInt64 = Annotated[int, Meta(ge=0)]
# An integer literal stays an integer where binary64 holds it exactly: the canonical form writes 1, not 1.0.
# A negative number is left to the strict reader: no record that holds one is supported.
Number = Annotated[int, Meta(ge=0, le=2**53)] | Annotated[float, Meta(ge=0)]
'''


def _kind(field: FieldInfo) -> tuple[str, str]:
    """Kind and Python type of a field, from the pydantic declaration."""
    annotation = field.annotation
    if typing.get_origin(annotation) is types.UnionType:  # candidates: a tuple of rows, or null
        row = typing.get_args(typing.get_args(annotation)[0])[0]
        return "rows", f"tuple[{row.__name__}, ...] | None"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "object", annotation.__name__
    if annotation is str:
        return "string", "str"
    if annotation is float:
        return "number", "Number"
    if annotation is int:
        unsigned = any(getattr(bound, "ge", None) == 0 for bound in field.metadata)
        return ("uint64", "UInt64") if unsigned else ("int64", "Int64")
    msg = f"no decoder for a field of type {annotation!r}"
    raise TypeError(msg)


def _models() -> Iterator[type[BaseModel]]:
    yield from (v1.Pin, v1.Runtime, v1.Hardware, v1.Recipe, v1.Candidate, v1.Metrics, v1.Record)


def render() -> str:
    """Text of `_decoder.py`."""
    parts = [_HEADER]
    shape = []
    for model in _models():
        lines = [
            f"\n\nclass {model.__name__}(Struct, frozen=True, forbid_unknown_fields=True, gc=False):",
            f'    """Layout of `kvint2eval.contract.v1.model.{model.__name__}`."""\n',
        ]
        members = []
        optional = model is v1.Metrics
        for name, field in model.model_fields.items():
            kind, python = _kind(field)
            members.append(f'        "{name}": ("{kind}", {_class(kind, python)}),')
            may_lack = optional and name in _OPTIONAL
            lines.append(f"    {name}: {_or_unset(python) if may_lack else python}")
        if optional:  # msgspec wants members without a default first; encoding order stays the declared one
            lines[0] = lines[0].replace("gc=False", "gc=False, kw_only=True")
        parts.append("\n".join(lines))
        shape += [f"    {model.__name__}: {{", *members, "    },"]
    table = "\n".join(
        ["\n\nSHAPE: dict[type[Struct], dict[str, tuple[str, type[Struct] | None]]] = {", *shape, "}\n"]
    )
    return "\n".join(parts) + table


def _or_unset(python: str) -> str:
    members = python.removesuffix(" | None")
    null = " | None" if members != python else ""
    return f"{members} | UnsetType{null} = UNSET"


def _class(kind: str, python: str) -> str:
    if kind == "object":
        return python
    if kind == "rows":
        return python.removeprefix("tuple[").split(",")[0]
    return "None"
