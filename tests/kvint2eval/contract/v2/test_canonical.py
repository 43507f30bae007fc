"""The RFC 8785 form of a v2 record follows the declaration: numbers of every member as ECMAScript writes them."""

import copy
import json
from typing import Any

import pytest

from kvint2eval.adjudication import read_subject
from kvint2eval.contract.v2 import _decoder as layout
from kvint2eval.contract.v2.canonical import canonical_of_plain, canonical_v2
from kvint2eval.contract.v2.reader import decode_v2
from tests.tools.regen.vector_v2 import vector


def _places(kind: Any, value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Class, member and path of every number that the declaration has, in a record."""
    for name, (sort, inner, _) in layout.SHAPE[kind].items():
        here = value[name]
        if here is None:
            continue
        if sort in ("number", "numbers", "table"):
            ends = {"number": (), "numbers": (0,), "table": (0, 0)}[sort]
            yield (kind.__name__, name), (*path, name, *ends)
        elif sort == "object":
            yield from _places(inner, here, (*path, name))
        elif sort == "rows":
            yield from _places(inner, here[0], (*path, name, 0))


_PLACES = dict(_places(layout.Record, vector()))


def test_every_declared_number_is_among_them():
    declared = {
        (kind.__name__, name)
        for kind, fields in layout.SHAPE.items()
        for name, (sort, _, _) in fields.items()
        if sort in ("number", "numbers", "table")
    }
    assert declared == set(_PLACES)


@pytest.mark.parametrize("value", [1e22, 3e-7, 2.0, 1.5e300])
@pytest.mark.parametrize("place", _PLACES, ids=".".join)
def test_number_is_written_as_ecmascript_writes_it(place: tuple[str, str], value: float):
    record = copy.deepcopy(vector())
    holder: Any = record
    *path, last = _PLACES[place]
    for step in path:
        holder = holder[step]
    holder[last] = value
    data = json.dumps(record).encode()
    form = canonical_v2(record)
    assert read_subject(data).canonical == form
    assert canonical_of_plain(data, decode_v2(data)) in (form, None)
