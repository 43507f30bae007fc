"""Bytes of one record to a verdict: the numbered steps of the contract, in order. No I/O.

The steps of docs/contract-v1.md, section 2; the first that decides wins:

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

import msgspec

from kvint2eval.codes import FINDINGS, REASONS, Outcome, Reason
from kvint2eval.contract import KNOWN_VERSIONS, V1, ShapeFault, contract_version, decode_v1, is_plain, read_v1
from kvint2eval.contract.read import describe
from kvint2eval.errors import StrictJsonError
from kvint2eval.rules import RULES_V1, Subject
from kvint2eval.rules.provenance import incomplete_part
from kvint2eval.strictjson import MAX_RECORD_BYTES, decode_bytes, locate, parse_text
from kvint2eval.verdict import Finding, Verdict

if TYPE_CHECKING:
    from kvint2eval.contract import _v1_decoder as layout
    from kvint2eval.pins import Pins

__all__ = ["adjudicate", "read_subject"]


def adjudicate(data: bytes, *, pins: Pins | None = None) -> Verdict:
    """Verdict on the bytes of one record.

    Parameters
    ----------
    data
        The bytes. A record longer than 1 MiB is refused; its first `MAX_RECORD_BYTES + 1` bytes suffice.
    pins
        Pins to hold the record's digests against, as `kvint2eval.pins.read_pins` gives them.

    Returns
    -------
    Verdict
        Always: nothing that a record holds raises. It depends on `data` and `pins` alone.

    Notes
    -----
    A complete record in plain ASCII takes a fast decoder; any other text, and any text with a finding, takes
    the strict reader, which knows the place of each member. Both give the same verdict.
    """
    subject = read_subject(data, pins)
    if isinstance(subject, Finding):
        reason = FINDINGS[subject.code].reason
        return Verdict(REASONS[reason].outcome, reason, subject)
    return _judge(subject, data)


def read_subject(data: bytes, pins: Pins | None = None) -> Subject | Finding:
    """Steps 0 and 1: the record that the bytes hold, or why they hold none.

    Parameters
    ----------
    data, pins
        As for `adjudicate`.
    """
    record = decode_v1(data) if len(data) <= MAX_RECORD_BYTES else None
    if record is not None and record.contract_version == V1:
        subject = Subject(record, frozenset(), pins)
        if data == subject.sealed or is_plain(data, record):
            return subject
    read = _read_strictly(data)
    return read if isinstance(read, Finding) else Subject(*read, pins, is_plain=False)


def _read_strictly(data: bytes) -> tuple[layout.Record, frozenset[str]] | Finding:
    """Steps 0 and 1, with the place of what they refuse."""
    # 0. "the bytes are not an acceptable JSON object (section 4)"
    try:
        text = decode_bytes(data)
        members = parse_text(text)
    except StrictJsonError as error:
        return Finding(error.code, "", error.found, error.allowed, error.line, error.column)
    if not isinstance(members, dict):
        return Finding("not-an-object", "", describe(members), "an object", *locate(text, ""))
    try:
        # 1. "contract_version is another string", looked at before any other member: another version may
        # have another layout.
        version = contract_version(members)
        if version not in KNOWN_VERSIONS:
            found = describe(version) if "contract_version" in members else "nothing: the member is missing"
            place = locate(text, "/contract_version")
            return Finding(
                "unknown-contract", "/contract_version", found, " or ".join(KNOWN_VERSIONS), *place
            )
        # 0. "or a field has the wrong type or is unknown"
        return read_v1(members)
    except ShapeFault as fault:
        return Finding(fault.code, fault.pointer, fault.found, fault.allowed, *locate(text, fault.pointer))


def _judge(subject: Subject, data: bytes) -> Verdict:
    """Steps 2 to 11, on a record of known layout."""
    for rule in RULES_V1:
        found = rule(subject)
        if found is not None:
            line, column = locate(data.decode(), found.pointer)
            reason = FINDINGS[found.code].reason
            return Verdict(
                REASONS[reason].outcome,
                reason,
                msgspec.structs.replace(found, line=line, column=column),
                detail=incomplete_part(found.pointer) if reason is Reason.INCOMPLETE_PROVENANCE else "",
                witness_sha256=subject.computed_witness,
                bindings=subject.bindings,
                canonical=subject.canonical,
            )
    # 11. "otherwise"
    return Verdict(
        Outcome.SUPPORTED,
        Reason.SUPPORTED,
        witness_sha256=subject.witness,
        bindings=subject.bindings,
        canonical=subject.canonical,
    )
