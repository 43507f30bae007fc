"""The steps of contract v2, in order, on a decoded record. No I/O.

The steps of docs/reference/contract-v2.md; the first that decides wins:

0. the bytes are no acceptable JSON object, or a member is missing, unknown or of a wrong type
1. the contract's version is unknown
2. the method is not in the registry
3. quantization or dialect is not one that the contract knows, or the fingerprint is not the dialect's
4. workload, environment or artifacts are incomplete
5. the evidence is modeled (delegate)
6. the evidence is neither observed nor modeled
7. there are no measurements (delegate), and yet a claim
8. something that was run is unknown, or the clock cannot be believed
9. the search is not as large as declared, or two rotations are one
10. the arms did not see the same queries, or the search saw them too
11. the figures of a trial contradict one another
12. a summary is not what the trials give
13. the comparison is not sound
14. stored bytes or bits per element do not follow
15. a claim is not what the trials give, or no claim is shown by them
16. the witness digest is not the record's, or a digest that can be bound differs
17. the observation was not made on CUDA (delegate)
18. otherwise the record is supported
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kvint2eval.codes import REASONS, Outcome, Reason
from kvint2eval.contract import V2
from kvint2eval.contract.v2.canonical import canonical_of_plain
from kvint2eval.contract.v2.reader import decode_v2
from kvint2eval.contract.v2.rules import RULES_V2, SubjectV2
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES, locate
from kvint2eval.verdict import Basis, Verdict

if TYPE_CHECKING:
    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.verdict import Finding

__all__ = ["BASIS", "judge_v2", "read_plain_v2", "subject_v2"]

BASIS = Basis(
    recomputed=(
        "trial NMSE and its split",
        "calibration objectives, chosen clips and selection",
        "summaries",
        "stored bytes and bits per element",
        "claims and their intervals",
    ),
    reported=(
        "squared errors and calibration values",
        "null checks",
        "rotation digests",
        "decode times",
        "environment",
    ),
)
"""What the figures of a v2 record rest on once its rules are met."""

_DELEGATED_BY_NATURE = Reason.RUNTIME_DELEGATION_REQUIRED


def read_plain_v2(data: bytes, pins: Pins | None, root: Root | None) -> SubjectV2 | None:
    """The v2 record of the bytes, or None where the strict reader has to look.

    Parameters
    ----------
    data, pins, root
        As for `kvint2eval.adjudication.read_subject`.
    """
    record = decode_v2(data) if len(data) <= MAX_RECORD_BYTES else None
    if record is None or record.contract_version != V2:
        return None
    canonical = canonical_of_plain(data, record)
    return None if canonical is None else SubjectV2(record, canonical, pins=pins, root=root)


def subject_v2(record: layout.Record, pins: Pins | None, root: Root | None) -> SubjectV2:
    """Subject of a record that the strict reader read."""
    return SubjectV2(record, pins=pins, root=root)


def judge_v2(subject: SubjectV2, data: bytes) -> Verdict:
    """Steps 2 to 18.

    Parameters
    ----------
    subject
        The record.
    data
        Its bytes, for the place of a finding.
    """
    for rule in RULES_V2:
        found = rule(subject)
        if found is not None:
            reason = found.code.reason
            is_sound = reason is _DELEGATED_BY_NATURE and subject.record.measurements is not None
            return Verdict(
                REASONS[reason].outcome,
                reason,
                _located(found, data),
                witness_sha256=subject.computed_witness,
                bindings=subject.bindings,
                canonical=subject.canonical,
                contract="v2",
                claims=subject.claims,
                basis=BASIS if is_sound else None,
            )
    # 18. "otherwise"
    return Verdict(
        Outcome.SUPPORTED,
        Reason.SUPPORTED,
        witness_sha256=subject.witness,
        bindings=subject.bindings,
        canonical=subject.canonical,
        contract="v2",
        claims=subject.claims,
        basis=BASIS,
    )


def _located(found: Finding, data: bytes) -> Finding:
    line, column = locate(data.decode(), found.pointer)
    return msgspec.structs.replace(found, line=line, column=column)
