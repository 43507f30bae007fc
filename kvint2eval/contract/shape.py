"""Faults of a record's layout, and the version that decides which layout it is."""

from __future__ import annotations

from typing import Any

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.strict_json.describe import describe

__all__ = ["ShapeFault", "contract_version"]


UNKNOWN_MEMBER = Code(
    "unknown-member",
    Reason.MALFORMED_RECORD,
    "The contract has no member of this name here.",
    "Remove it, or fix its spelling.",
    '"Seed": 6260 in hardware',
    v1=0,
    v2=0,
)
FRACTION_IN_INTEGER = Code(
    "fraction-in-integer",
    Reason.MALFORMED_RECORD,
    "An integer member is written with a fraction or an exponent.",
    "Write plain digits: 7, not 7.0 or 7e0.",
    '"bits": 2.0',
    v1=0,
    v2=0,
)
INTEGER_OUT_OF_RANGE = Code(
    "integer-out-of-range",
    Reason.MALFORMED_RECORD,
    "An integer is out of its member's range.",
    "Write the figure that was measured.",
    '"seed": -1',
    v1=0,
    v2=0,
)
MISSING_MEMBER = Code(
    "missing-member",
    Reason.MALFORMED_RECORD,
    "A member is missing; v2 has no optional members.",
    "Write the member; null where the contract allows an unknown value.",
    "protocol without warmup",
    v2=0,
)


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

    def __init__(self, code: Code, pointer: str, found: str, allowed: str) -> None:
        super().__init__(f"{pointer}: {code}")
        self.code = code
        self.pointer = pointer
        self.found = found
        self.allowed = allowed


WRONG_TYPE = Code(
    "wrong-type",
    Reason.MALFORMED_RECORD,
    "A member has a wrong type.",
    "Write the type that is allowed; null is not a value.",
    '"bits": "2"',
    v1=0,
    v2=0,
)


def contract_version(members: dict[str, Any]) -> str:
    """Version that a record names, empty when it names none; judged before any other member.

    Raises
    ------
    ShapeFault
        The version is not a string.
    """
    version = members.get("contract_version", "")
    if not isinstance(version, str):
        raise ShapeFault(WRONG_TYPE, "/contract_version", describe(version), "a string")
    return version
