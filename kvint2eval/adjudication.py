"""Adjudication of one record's bytes: the numbered steps of its contract, in order. No I/O.

With a policy, the signatures over the bytes come before anything that the bytes hold. Then the version decides which
contract judges: `kvint2eval.adjudication_v2` has the steps of v2. Those of docs/reference/contract-v1.md, section 2,
are; the first that decides wins:

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
from kvint2eval.contract import (
    KNOWN_VERSIONS,
    V1,
    V2,
    ShapeFault,
    contract_version,
    decode_v1,
    is_plain,
    read_v1,
)
from kvint2eval.contract.read import describe
from kvint2eval.errors import StrictJsonError
from kvint2eval.rules import RULES_V1, Subject
from kvint2eval.rules.provenance import incomplete_part
from kvint2eval.strictjson import MAX_RECORD_BYTES, decode_bytes, locate, parse_text
from kvint2eval.verdict import Finding, Verdict

if TYPE_CHECKING:
    from kvint2eval.contract import _v1_decoder as layout
    from kvint2eval.contract import _v2_decoder as layout_v2
    from kvint2eval.pins import Pins
    from kvint2eval.policy import Policy
    from kvint2eval.root import Root
    from kvint2eval.rules.v2 import SubjectV2
    from kvint2eval.trust import Trust

__all__ = ["adjudicate", "read_subject"]

_NAMES_V2 = b'"kvint2eval/v2"'


def adjudicate(
    data: bytes,
    *,
    pins: Pins | None = None,
    root: Root | None = None,
    policy: Policy | None = None,
    envelope: bytes | None = None,
) -> Verdict:
    """Verdict on the bytes of one record.

    Parameters
    ----------
    data
        The bytes. A record longer than 1 MiB is refused; its first `MAX_RECORD_BYTES + 1` bytes suffice.
    pins
        Pins to hold the record's digests against, as `kvint2eval.pins.read_pins` gives them.
    root
        Folder that the paths of a v2 record are relative to; its files are rehashed. None leaves them declared.
    policy
        Whose signatures the record needs, as `kvint2eval.policy.read_policy` gives it.
    envelope
        The bytes of the record's DSSE envelope; only looked at with a policy.

    Returns
    -------
    Verdict
        Always: nothing that a record holds raises. It depends on the arguments alone.

    Notes
    -----
    A complete record in plain ASCII takes a fast decoder; any other text, and any text with a finding, takes
    the strict reader, which knows the place of each member. Both give the same verdict.
    """
    if policy is not None:
        trust = policy.verify(data, envelope)
        return _refused(trust) if isinstance(trust, Finding) else _trusted(data, pins, root, trust)
    subject = read_subject(data, pins, root)
    if isinstance(subject, Finding):
        return _refused(subject)
    if isinstance(subject, Subject):
        return _judge(subject, data)
    from kvint2eval.adjudication_v2 import judge_v2  # noqa: PLC0415  # most records are not v2

    return judge_v2(subject, data)


def _refused(finding: Finding) -> Verdict:
    reason = FINDINGS[finding.code].reason
    return Verdict(REASONS[reason].outcome, reason, finding)


def _trusted(data: bytes, pins: Pins | None, root: Root | None, trust: Trust) -> Verdict:
    """Verdict on bytes whose signatures were verified."""
    subject = read_subject(data, pins, root, trust)
    if isinstance(subject, Finding):
        return msgspec.structs.replace(_refused(subject), signers=trust.signers)
    if not isinstance(subject, Subject):
        from kvint2eval.adjudication_v2 import judge_v2  # noqa: PLC0415

        return judge_v2(subject, data)
    verdict = msgspec.structs.replace(_judge(subject, data), signers=trust.signers)
    refusal = trust.check_producers([("/artifact/sha256", subject.record.artifact.sha256)])
    if refusal is None or verdict.outcome is Outcome.UNSUPPORTED:
        return verdict
    return msgspec.structs.replace(
        verdict, outcome=Outcome.UNSUPPORTED, reason=Reason.UNTRUSTED, finding=refusal
    )


def read_subject(
    data: bytes, pins: Pins | None = None, root: Root | None = None, trust: Trust | None = None
) -> Subject | SubjectV2 | Finding:
    """Steps 0 and 1: the record that the bytes hold, or why they hold none.

    Parameters
    ----------
    data, pins, root
        As for `adjudicate`.
    trust
        What the record's signatures are worth.
    """
    record = decode_v1(data) if len(data) <= MAX_RECORD_BYTES else None
    if record is not None and record.contract_version == V1:
        subject = Subject(record, frozenset(), pins)
        if data == subject.sealed or is_plain(data, record):
            return subject
    elif _NAMES_V2 in data:
        from kvint2eval.adjudication_v2 import read_plain_v2  # noqa: PLC0415

        plain = read_plain_v2(data, pins, root, trust)
        if plain is not None:
            return plain
    read = _read_strictly(data)
    if isinstance(read, Finding):
        return read
    if isinstance(read, tuple):
        return Subject(*read, pins, is_plain=False)
    from kvint2eval.adjudication_v2 import subject_v2  # noqa: PLC0415

    return subject_v2(read, pins, root, trust)


def _read_strictly(data: bytes) -> tuple[layout.Record, frozenset[str]] | layout_v2.Record | Finding:
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
        if version == V2:
            from kvint2eval.contract.read_v2 import read_v2  # noqa: PLC0415

            return read_v2(members)
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
