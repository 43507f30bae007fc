"""Step 16: the witness digest matches, and pinned digests agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.shared import WITNESS_MALFORMED, WITNESS_MISMATCH, WITNESS_MISSING
from kvint2eval.contract.v2.bind import bind_v2
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding
from kvint2eval.files.digest import is_digest

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]


def check_witness(subject: SubjectV2) -> Finding | None:
    """Step 16: `witness_sha256` is the digest of the record's RFC 8785 form without it."""
    stated = subject.record.witness_sha256
    if stated == subject.witness:
        return None
    allowed = f'"{subject.witness}"'
    if not stated:
        return finding(WITNESS_MISSING, "/witness_sha256", stated, allowed)
    if not is_digest(stated):
        return finding(WITNESS_MALFORMED, "/witness_sha256", stated, "64 lower-case hexadecimal characters")
    return finding(WITNESS_MISMATCH, "/witness_sha256", stated, allowed)


def check_bindings(subject: SubjectV2) -> Finding | None:
    """Step 16: no digest differs from a pin that was given, nor from its file below a root that was given."""
    if subject.pins is None and subject.root is None:
        return None
    subject.bindings, mismatch = bind_v2(subject.record, subject.pins, subject.root)
    return mismatch


RULES: tuple[RuleV2, ...] = (check_witness, check_bindings)
