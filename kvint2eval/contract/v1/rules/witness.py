"""Step 9: the witness digest matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.shared import WITNESS_MALFORMED, WITNESS_MISMATCH, WITNESS_MISSING
from kvint2eval.contract.v1.rules.provenance import malformed_digest
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
from kvint2eval.files.digest import is_digest

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_witness(subject: Subject) -> Finding | None:
    """Step 9: `witness_sha256` is the digest of the record's canonical bytes."""
    stated = subject.record.witness_sha256
    if stated == subject.witness:
        return None
    if not stated:
        return finding(subject, WITNESS_MISSING, "/witness_sha256", stated, f'"{subject.witness}"')
    if not is_digest(stated):
        return malformed_digest(subject, WITNESS_MALFORMED, "/witness_sha256", stated)
    return finding(subject, WITNESS_MISMATCH, "/witness_sha256", stated, f'"{subject.witness}"')


RULES: tuple[Rule, ...] = (check_witness,)
