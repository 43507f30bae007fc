"""The steps of contract v1, in order, on a record of known layout. No I/O.

The steps of docs/reference/contract-v1.md, section 2; the first that decides wins:

0. the bytes are no acceptable JSON object, or a member has a wrong type or is unknown
1. the contract's version is unknown
2. the method is not the one that the contract covers
3. nor is the quantization, the objective or the baseline
4. a pin, the runtime, or the hardware and model envelope is incomplete
5. the evidence is modeled (delegate)
6. the evidence is neither observed nor modeled
7. the runtime is not CUDA, or no GPU is named (delegate)
8. a measurement is missing, impossible, or contradicts another one
9. the witness digest is not the record's
10. a pin that was given differs
11. otherwise the record is supported
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvint2eval.codes import REASONS, Outcome, Reason
from kvint2eval.contract import V1
from kvint2eval.contract.v1.reader import decode_v1, is_plain
from kvint2eval.contract.v1.rules import RULES_V1, Subject
from kvint2eval.contract.v1.rules.provenance import incomplete_part
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES, locate
from kvint2eval.verdict import Verdict

if TYPE_CHECKING:
    from kvint2eval.contract.v1 import _decoder as layout
    from kvint2eval.pins.pins import Pins

__all__ = ["judge_v1", "read_plain_v1", "subject_v1"]


def read_plain_v1(data: bytes, pins: Pins | None) -> Subject | None:
    """The v1 record of the bytes, or None where the strict reader has to look.

    Parameters
    ----------
    data, pins
        As for `kvint2eval.adjudication.read_subject`.
    """
    record = decode_v1(data) if len(data) <= MAX_RECORD_BYTES else None
    if record is None or record.contract_version != V1:
        return None
    subject = Subject(record, frozenset(), pins)
    return subject if data == subject.sealed or is_plain(data, record) else None


def subject_v1(record: layout.Record, missing: frozenset[str], pins: Pins | None) -> Subject:
    """Subject of a record that the strict reader read."""
    return Subject(record, missing, pins, is_plain=False)


def judge_v1(subject: Subject, data: bytes) -> Verdict:
    """Steps 2 to 11.

    Parameters
    ----------
    subject
        The record.
    data
        Its bytes, for the place of a finding.
    """
    for rule in RULES_V1:
        found = rule(subject)
        if found is not None:
            line, column = locate(data.decode(), found.pointer)
            reason = found.code.reason
            return Verdict(
                REASONS[reason].outcome,
                reason,
                replace(found, line=line, column=column),
                detail=incomplete_part(found.pointer) if reason is Reason.INCOMPLETE_PROVENANCE else "",
                witness_sha256=subject.computed_witness,
                bindings=subject.bindings,
                canonical=subject.canonical,
                contract="v1",
            )
    # 11. "otherwise"
    return Verdict(
        Outcome.SUPPORTED,
        Reason.SUPPORTED,
        witness_sha256=subject.witness,
        bindings=subject.bindings,
        canonical=subject.canonical,
        contract="v1",
    )
