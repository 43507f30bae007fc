"""Bindings of the digests of a v1 record: against pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvint2eval.pins.roles import ROLES

if TYPE_CHECKING:
    from kvint2eval.contract.v1 import _decoder as layout
    from kvint2eval.pins.pins import Pins
    from kvint2eval.verdict import Binding, Finding

__all__ = ["bind_v1"]


def bind_v1(record: layout.Record, pins: Pins) -> tuple[tuple[Binding, ...], Finding | None]:
    """How far each digest of a record is bound, and the first that is mismatched.

    Parameters
    ----------
    record
        The record's layout; its digests are well-formed.
    pins
        Digests that are known from elsewhere.

    Returns
    -------
    tuple of Binding
        One a role, in declared order.
    Finding or None
        The first mismatch.
    """
    bindings = []
    first = None
    for role in ROLES:
        binding, mismatch = _bind_role(record, role, pins)
        bindings.append(binding)
        first = first or mismatch
    return tuple(bindings), first


def _bind_role(record: layout.Record, role: str, pins: Pins) -> tuple[Binding, Finding | None]:
    part: Any = getattr(record, role)
    identity = part.kernel if role == "runtime" else part.id
    return pins.bind_digest(role, identity, part.version, part.sha256, f"/{role}/sha256")
