"""Writes the decoder of contract v2, `kvint2eval/contract/v2/_decoder.py`, from the pydantic models."""

import types
import typing
from typing import Any

from pydantic import BaseModel

from kvint2eval.contract.v2 import model as v2

_HEADER = '''"""Decoder of contract v2. Generated from `model.py` by `make regen`; do not edit.

`SHAPE` is the same layout as a table for the strict reader: per object the member, its kind, its class or the
class of its rows, and whether it may be null.
"""

from typing import Annotated

from msgspec import Meta, Struct

UInt = Annotated[int, Meta(ge=0, le=2**53 - 1)]
'''

_KINDS = {
    str: ("string", "str"),
    int: ("uint", "UInt"),
    float: ("number", "float"),
    bool: ("boolean", "bool"),
    tuple[str, ...]: ("strings", "list[str]"),
}


def _bare(annotation: Any) -> Any:
    """An annotation without its bounds."""
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.get_args(annotation)[0]
    return annotation


def _kind(annotation: Any) -> tuple[str, str, str, bool]:
    """Kind, Python type, class, and whether null is allowed."""
    annotation = _bare(annotation)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        kind, python, inner, _ = _kind(typing.get_args(annotation)[0])
        return kind, f"{python} | None", inner, True
    if annotation in _KINDS:
        return (*_KINDS[annotation], "None", False)
    if typing.get_origin(annotation) is tuple:
        kind, python, inner, _ = _kind(typing.get_args(annotation)[0])
        plural = {"number": "numbers", "numbers": "table", "object": "rows"}[kind]
        return plural, f"list[{python}]", inner, False
    if issubclass(annotation, BaseModel):
        return "object", annotation.__name__, annotation.__name__, False
    raise TypeError(f"no decoder for a field of type {annotation!r}")


def _models(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> None:
    """The models below one, inner ones first."""
    hints = typing.get_type_hints(model)
    for name in model.model_fields:
        _, _, inner, _ = _kind(hints[name])
        if inner != "None" and inner not in found:
            _models(getattr(v2, inner), found)
    found[model.__name__] = model


def render() -> str:
    """Text of `_decoder.py`."""
    found: dict[str, type[BaseModel]] = {}
    _models(v2.Record, found)
    parts = [_HEADER]
    shape = ["\n\nSHAPE: dict[type[Struct], dict[str, tuple[str, type[Struct] | None, bool]]] = {"]
    for model in found.values():
        hints = typing.get_type_hints(model)
        parts.append(
            f"\n\nclass {model.__name__}(Struct, frozen=True, forbid_unknown_fields=True, gc=False):\n"
            f'    """Layout of `kvint2eval.contract.v2.model.{model.__name__}`."""\n\n'
        )
        shape.append(f"    {model.__name__}: {{")
        for name in model.model_fields:
            kind, python, inner, is_nullable = _kind(hints[name])
            parts.append(f"    {name}: {python}\n")
            shape.append(f'        "{name}": ("{kind}", {inner}, {is_nullable}),')
        shape.append("    },")
    return "".join(parts) + "\n".join([*shape, "}\n"])
