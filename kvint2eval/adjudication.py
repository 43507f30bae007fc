"""Dispatch of the bytes of one record to the contract that they name. No I/O.

With a policy, the signatures over the bytes come before anything that the bytes hold. Then the version decides which
contract judges: `kvint2eval.contract.v1.judge` and `kvint2eval.contract.v2.judge` have the numbered steps. The first
two, what is no record and what names no known contract, are the same for both and decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvint2eval.codes import REASONS, Code, Outcome, Reason
from kvint2eval.contract import KNOWN_VERSIONS, V2
from kvint2eval.contract.shape import ShapeFault, contract_version
from kvint2eval.contract.v1.judge import judge_v1, read_plain_v1, subject_v1
from kvint2eval.contract.v1.reader import read_v1
from kvint2eval.contract.v1.rules import Subject
from kvint2eval.errors import StrictJsonError
from kvint2eval.strict_json.describe import describe
from kvint2eval.strict_json.parse import decode_bytes, locate, parse_text
from kvint2eval.verdict import Finding, Verdict

if TYPE_CHECKING:
    from kvint2eval.contract.v1 import _decoder as layout
    from kvint2eval.contract.v1 import model as v1
    from kvint2eval.contract.v2 import _decoder as layout_v2
    from kvint2eval.contract.v2 import model as v2
    from kvint2eval.contract.v2.rules import SubjectV2
    from kvint2eval.errors import InputError
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.signing.policy import Policy
    from kvint2eval.signing.trust import Trust

__all__ = ["adjudicate", "read_record", "read_subject"]

_NAMES_V2 = b'"kvint2eval/v2"'


def adjudicate(
    data: bytes,
    *,
    pins: Pins | None = None,
    root: Root | None = None,
    policy: Policy | None = None,
    envelope: bytes | InputError | None = None,
    require_bound: bool = False,
) -> Verdict:
    """Verdict on the bytes of one record.

    Parameters
    ----------
    data
        The bytes. A record longer than 1 MiB is refused; its first `MAX_RECORD_BYTES + 1` bytes suffice.
    pins
        Pins to hold the record's digests against, as `kvint2eval.pins.pins.read_pins` gives them.
    root
        Folder that the paths of a v2 record are relative to; its files are rehashed. None leaves them declared.
    policy
        Whose signatures the record needs, as `kvint2eval.signing.policy.read_policy` gives it.
    envelope
        The bytes of the record's DSSE envelope, or why they cannot be read; only looked at with a policy.
    require_bound
        Whether every digest of the record has to be bound to a file; a policy may ask for it too.

    Raises
    ------
    TypeError
        The data are no bytes.

    Returns
    -------
    Verdict
        Always: nothing that a record holds raises. It depends on the arguments alone.

    Notes
    -----
    A complete record in plain ASCII takes a fast decoder; any other text, and any text with a finding, takes
    the strict reader, which knows the place of each member. Both give the same verdict.
    """
    if not isinstance(data, bytes):
        raise TypeError(
            f"found {type(data).__name__}, allowed: bytes, as they stand in the file: Path(...).read_bytes(), or "
            "text.encode() of a text"
        )
    verdict = _adjudicate(data, pins, root, policy, envelope)
    if not (require_bound or (policy is not None and policy.require_bound)):
        return verdict
    return _required(verdict, data)


DIGEST_NOT_BOUND = Code(
    "digest-not-bound",
    Reason.UNTRUSTED,
    "A digest is only declared where every digest has to be bound to a file.",
    "Pin the digest with a path in the pins file, give --root for the files of a v2 record, or do not require it.",
    "an artifact that was renamed, so that no pin names it",
)


def _required(verdict: Verdict, data: bytes) -> Verdict:
    """The verdict where every digest has to be bound: unsupported for the first that is only declared."""
    if verdict.outcome is Outcome.UNSUPPORTED:
        return verdict
    allowed = "a digest that is bound to a file, by a pin or below a root"
    for index, binding in enumerate(verdict.bindings or ()):
        if binding.level != "bound":
            pointer = f"/artifacts/{index}/sha256" if verdict.contract == "v2" else f"/{binding.role}/sha256"
            found = f'"{binding.sha256}", only declared: {binding.why}'
            break
    else:
        if verdict.bindings is not None or verdict.outcome is Outcome.DELEGATE:
            return verdict
        pointer = "/artifacts" if verdict.contract == "v2" else "/artifact/sha256"
        found = "digests that nothing was given to compare with"
    finding = Finding(DIGEST_NOT_BOUND, pointer, found, allowed, *locate(data.decode(), pointer))
    return replace(verdict, outcome=Outcome.UNSUPPORTED, reason=Reason.UNTRUSTED, finding=finding)


def _adjudicate(
    data: bytes,
    pins: Pins | None,
    root: Root | None,
    policy: Policy | None,
    envelope: bytes | InputError | None,
) -> Verdict:
    trust = None
    if policy is not None:
        verified = policy.verify(data, envelope)
        if isinstance(verified, Finding):
            return _refused(verified)
        trust = verified
    subject = read_subject(data, pins, root)
    if isinstance(subject, Finding):
        verdict = _refused(subject)
    elif isinstance(subject, Subject):
        verdict = judge_v1(subject, data)
    else:
        from kvint2eval.contract.v2.judge import judge_v2  # noqa: PLC0415  # most records are not v2

        verdict = judge_v2(subject, data)
    return verdict if trust is None else _trusted(verdict, subject, trust, data)


def _trusted(verdict: Verdict, subject: Subject | SubjectV2 | Finding, trust: Trust, data: bytes) -> Verdict:
    """Verdict on a signed record: a policy refuses a producer that it does not allow, whatever the contract."""
    verdict = replace(verdict, signers=trust.signers)
    if isinstance(subject, Finding) or verdict.outcome is Outcome.UNSUPPORTED:
        return verdict
    refusal = trust.check_producers(subject.producers)
    if refusal is None:
        return verdict
    line, column = locate(data.decode(), refusal.pointer)
    refusal = replace(refusal, line=line, column=column)
    return replace(verdict, outcome=Outcome.UNSUPPORTED, reason=Reason.UNTRUSTED, finding=refusal)


def _refused(finding: Finding) -> Verdict:
    reason = finding.code.reason
    return Verdict(REASONS[reason].outcome, reason, finding)


def read_record(data: bytes) -> v1.Record | v2.Record | Finding:
    """Record that the bytes hold, or the finding that says why they hold none: steps 0 and 1, no judgement.

    Parameters
    ----------
    data
        The bytes of one record, as for `adjudicate`.

    Returns
    -------
    kvint2eval.contract.v1.model.Record or kvint2eval.contract.v2.model.Record
        The model of the contract that the record names. It is well formed; its figures may be refused by
        `adjudicate`, which alone says whether they can be used.
    Finding
        What is no record, with its place: the finding that `adjudicate` gives for the same bytes.
    """
    subject = read_subject(data)
    if isinstance(subject, Finding):
        return subject
    # pydantic takes longer to import than all the rest
    if isinstance(subject, Subject):
        from kvint2eval.contract.v1 import model as v1  # noqa: PLC0415

        return v1.Record.model_validate_json(data)
    from kvint2eval.contract.v2 import model as v2  # noqa: PLC0415

    return v2.Record.model_validate_json(data)


def read_subject(
    data: bytes, pins: Pins | None = None, root: Root | None = None
) -> Subject | SubjectV2 | Finding:
    """Steps 0 and 1: the record that the bytes hold, or why they hold none.

    Parameters
    ----------
    data, pins, root
        As for `adjudicate`.
    """
    plain = read_plain_v1(data, pins)
    if plain is not None:
        return plain
    if _NAMES_V2 in data:
        from kvint2eval.contract.v2.judge import read_plain_v2  # noqa: PLC0415

        plain_v2 = read_plain_v2(data, pins, root)
        if plain_v2 is not None:
            return plain_v2
    read = _read_strictly(data)
    if isinstance(read, Finding):
        return read
    if isinstance(read, tuple):
        return subject_v1(*read, pins)
    from kvint2eval.contract.v2.judge import subject_v2  # noqa: PLC0415

    return subject_v2(read, pins, root)


NOT_AN_OBJECT = Code(
    "not-an-object",
    Reason.MALFORMED_RECORD,
    "The JSON value is not an object.",
    "Write one JSON object.",
    "[] instead of a record",
    v1=0,
    v2=0,
)
UNKNOWN_CONTRACT = Code(
    "unknown-contract",
    Reason.UNKNOWN_CONTRACT,
    "contract_version is no version that is known here.",
    "Write kvint2eval/v1, or use a newer release.",
    '"contract_version": "kvint2eval/v9"',
    v1=1,
    v2=1,
)


def _read_strictly(data: bytes) -> tuple[layout.Record, frozenset[str]] | layout_v2.Record | Finding:
    """Steps 0 and 1, with the place of what they refuse."""
    # 0. "the bytes are not an acceptable JSON object (section 4)"
    try:
        text = decode_bytes(data)
        members = parse_text(text)
    except StrictJsonError as error:
        return Finding(error.code, "", error.found, error.allowed, error.line, error.column)
    if not isinstance(members, dict):
        return Finding(NOT_AN_OBJECT, "", describe(members), "an object", *locate(text, ""))
    try:
        # 1. "contract_version is another string", looked at before any other member: another version may
        # have another layout.
        version = contract_version(members)
        if version not in KNOWN_VERSIONS:
            found = describe(version) if "contract_version" in members else "nothing: the member is missing"
            place = locate(text, "/contract_version")
            return Finding(UNKNOWN_CONTRACT, "/contract_version", found, " or ".join(KNOWN_VERSIONS), *place)
        # 0. "or a field has the wrong type or is unknown"
        if version == V2:
            from kvint2eval.contract.v2.reader import read_v2  # noqa: PLC0415

            return read_v2(members)
        return read_v1(members)
    except ShapeFault as fault:
        return Finding(fault.code, fault.pointer, fault.found, fault.allowed, *locate(text, fault.pointer))
