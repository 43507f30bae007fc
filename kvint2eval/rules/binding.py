"""Step 10: the digests of the record against the pins that were given."""

from kvint2eval.rules.subject import Rule, Subject
from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_pins(subject: Subject) -> Finding | None:
    """Step 10: no digest of the record and no pinned file differs from the pins."""
    if subject.pins is None:
        return None
    subject.bindings, mismatch = subject.pins.bind(subject.record)
    return mismatch


RULES: tuple[Rule, ...] = (check_pins,)
