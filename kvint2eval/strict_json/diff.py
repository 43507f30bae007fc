"""Differences between two records, by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ABSENT", "Difference", "differences"]


ABSENT = object()
"""Stands for a member that a record lacks."""


class Difference(NamedTuple):
    """One place where two records differ."""

    pointer: str
    """JSON pointer of the place."""
    first: Any
    """Value of the first record, `ABSENT` where it has none."""
    second: Any
    """Value of the second record, `ABSENT` where it has none."""


def differences(first: Any, second: Any, pointer: str = "") -> Iterator[Difference]:
    """Places where two parsed JSON values differ, in the order of the first.

    Parameters
    ----------
    first, second
        Values as `kvint2eval.strict_json.parse.parse_text` gives them.
    pointer
        JSON pointer of the two values.

    Notes
    -----
    The order of members does not count. Numbers are equal when their values are, so 1 and 1.0 do not differ;
    a number and a boolean always do.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        for name in (*first, *(name for name in second if name not in first)):
            step = name.replace("~", "~0").replace("/", "~1")
            yield from differences(first.get(name, ABSENT), second.get(name, ABSENT), f"{pointer}/{step}")
    elif isinstance(first, list) and isinstance(second, list):
        for index in range(max(len(first), len(second))):
            one, other = (values[index] if index < len(values) else ABSENT for values in (first, second))
            yield from differences(one, other, f"{pointer}/{index}")
    elif first != second or isinstance(first, bool) != isinstance(second, bool):
        yield Difference(pointer, first, second)
