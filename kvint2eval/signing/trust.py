"""The trust that a verified signature gives a record, for the steps after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Trust"]


PRODUCER_NOT_ALLOWED = Code(
    "producer-not-allowed",
    Reason.UNTRUSTED,
    "The record's producer is not one that the policy allows.",
    "Run an allowed producer, or add this one to the policy.",
    "a producer digest that the policy does not list",
)


class Trust(NamedTuple):
    """Who signed a record, and which producers the policy allows."""

    signers: tuple[str, ...]
    """Ids of the policy's keys whose signatures were verified."""
    producers: frozenset[str] | None
    """Digests of the allowed producers; None allows all."""

    def check_producers(self, digests: Iterable[tuple[str, str]]) -> Finding | None:
        """Finding for the first producer that is not allowed.

        Parameters
        ----------
        digests
            JSON pointer and digest of each producer of the record.
        """
        if self.producers is None:
            return None
        for pointer, digest in digests:
            if digest not in self.producers:
                allowed = f"one of {', '.join(sorted(self.producers))}"
                return Finding(PRODUCER_NOT_ALLOWED, pointer, f'"{digest}"', allowed)
        return None
