"""Faults of a record's layout, and the version that decides which layout it is."""

from __future__ import annotations

from typing import Any

from kvint2eval.strict_json.describe import describe

__all__ = ["ShapeFault", "contract_version"]


class ShapeFault(Exception):  # noqa: N818  # becomes a finding; never leaves adjudication
    """A member that has no place in the layout.

    Parameters
    ----------
    code
        `unknown-member`, `wrong-type`, `fraction-in-integer` or `integer-out-of-range`.
    pointer
        JSON pointer of the member.
    found, allowed
        What stands there, and what may stand there.
    """

    def __init__(self, code: str, pointer: str, found: str, allowed: str) -> None:
        super().__init__(f"{pointer}: {code}")
        self.code = code
        self.pointer = pointer
        self.found = found
        self.allowed = allowed


def contract_version(members: dict[str, Any]) -> str:
    """Version that a record names, empty when it names none; judged before any other member.

    Raises
    ------
    ShapeFault
        The version is not a string.
    """
    version = members.get("contract_version", "")
    if not isinstance(version, str):
        raise ShapeFault("wrong-type", "/contract_version", describe(version), "a string")
    return version
