"""Step 10: the digests of the record against the pins that were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvint2eval.contract.v1.rules.subject import Rule, Subject
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_pins(subject: Subject) -> Finding | None:
    """Step 10: no digest of the record and no pinned file differs from the pins."""
    if subject.pins is None:
        return None
    from kvint2eval.contract.v1.bind import bind_v1  # noqa: PLC0415  # most runs have no pins

    subject.bindings, mismatch = bind_v1(subject.record, subject.pins)
    return mismatch


RULES: tuple[Rule, ...] = (check_pins,)
