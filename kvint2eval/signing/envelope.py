"""DSSE envelopes with an in-toto Statement about one record, built and read; no cryptography.

The Statement's subject is the record file, by its SHA-256. Its JSON is written once; those bytes are what is signed,
what is verified and, afterwards, what is parsed.

Sources: DSSE protocol and envelope (secure-systems-lab/dsse), in-toto Attestation Framework, Statement v1.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import msgspec

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.errors import StrictJsonError
from kvint2eval.files.digest import sha256_hex
from kvint2eval.strict_json.describe import describe
from kvint2eval.strict_json.parse import decode_bytes, locate, parse_text
from kvint2eval.strict_json.rfc8785 import canonical_json
from kvint2eval.verdict import Finding

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "STATEMENT_TYPE",
    "Envelope",
    "EnvelopeFault",
    "Signature",
    "build_statement",
    "check_statement",
    "dump_envelope",
    "parse_envelope",
    "pre_authentication_encoding",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:kvint2eval:predicate:record:v1"

_MAX_SIGNATURES = 64


class Signature(NamedTuple):
    """One signature of an envelope."""

    keyid: str
    """Which key it claims to be by; a hint, as DSSE has it."""
    value: bytes
    """The signature."""


class Envelope(NamedTuple):
    """A DSSE envelope."""

    payload: bytes
    """What was signed."""
    payload_type: str
    """How the payload is to be read."""
    signatures: tuple[Signature, ...]
    """Not verified by being here."""

    @property
    def signed_bytes(self) -> bytes:
        """What the signatures are over."""
        return pre_authentication_encoding(self.payload_type, self.payload)


class EnvelopeFault(Exception):  # noqa: N818  # becomes a finding of the verdict
    """An envelope that is refused.

    Parameters
    ----------
    finding
        Why. Its pointer is one into the envelope, not into the record.
    line, column
        Where in the envelope's text, from 1, for a text that is no JSON.
    """

    def __init__(
        self,
        code: Code,
        pointer: str,
        found: str,
        allowed: str,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(f"{code}: found {found}, allowed: {allowed}")
        self.finding = Finding(code, f"envelope:{pointer}", found, allowed, line, column)
        self._pointer = pointer

    def located(self, envelope: bytes) -> Finding:
        """The finding with its line and column in the envelope's text, where that can be read.

        Parameters
        ----------
        envelope
            The text. What is wrong inside the payload stands where the payload does.
        """
        if self.finding.line is not None:
            return self.finding
        try:
            text = decode_bytes(envelope)
            parse_text(text)
        except StrictJsonError:
            return self.finding
        pointer = "/payload" if self._pointer.startswith("/payload/") else self._pointer
        line, column = locate(text, pointer)
        return msgspec.structs.replace(self.finding, line=line, column=column)


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """What DSSE signs: `DSSEv1`, then length and bytes of type and payload, separated by one space each.

    Lengths are decimal and count bytes, not characters.
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def build_statement(name: str, record: bytes, contract_version: str) -> bytes:
    """An in-toto Statement v1 about a record, in RFC 8785 form.

    Parameters
    ----------
    name
        Name of the record's file.
    record
        Its bytes.
    contract_version
        The contract that it names.
    """
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha256_hex(record)}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {"contract_version": contract_version},
        }
    )


def dump_envelope(envelope: Envelope) -> bytes:
    """Text of an envelope: JSON on one line, base64 in the standard alphabet."""
    members = {
        "payload": base64.b64encode(envelope.payload).decode(),
        "payloadType": envelope.payload_type,
        "signatures": [
            {"keyid": one.keyid, "sig": base64.b64encode(one.value).decode()} for one in envelope.signatures
        ],
    }
    return canonical_json(members) + b"\n"


ENVELOPE_MALFORMED = Code(
    "envelope-malformed",
    Reason.UNTRUSTED,
    "The envelope is no DSSE envelope.",
    "Write payload, payloadType and signatures, and nothing else.",
    "an envelope without signatures",
)
ENVELOPE_PAYLOAD_TYPE = Code(
    "envelope-payload-type",
    Reason.UNTRUSTED,
    "The envelope's payload type is not application/vnd.in-toto+json.",
    "Sign an in-toto Statement.",
    '"payloadType": "application/json"',
)
ENVELOPE_SIGNATURES_EMPTY = Code(
    "envelope-signatures-empty",
    Reason.UNTRUSTED,
    "The envelope has no signature.",
    "Sign the record.",
    '"signatures": []',
)


def parse_envelope(data: bytes) -> Envelope:
    """Envelope of its text.

    Raises
    ------
    EnvelopeFault
        The text is no DSSE envelope, its payload is no in-toto Statement by type, a text is not base64, or it
        has no signature, or one signature twice.
    """
    members = _closed(_parsed(data, ""), "", ("payload", "payloadType", "signatures"))
    payload_type = members["payloadType"]
    if payload_type != PAYLOAD_TYPE:
        raise EnvelopeFault(ENVELOPE_PAYLOAD_TYPE, "/payloadType", describe(payload_type), PAYLOAD_TYPE)
    rows = members["signatures"]
    if not isinstance(rows, list) or len(rows) > _MAX_SIGNATURES:
        allowed = f"an array of at most {_MAX_SIGNATURES} signatures"
        raise EnvelopeFault(ENVELOPE_MALFORMED, "/signatures", describe(rows), allowed)
    if not rows:
        raise EnvelopeFault(ENVELOPE_SIGNATURES_EMPTY, "/signatures", "no signature", "at least one")
    signatures = tuple(_signature(row, f"/signatures/{index}") for index, row in enumerate(rows))
    _require_distinct(signatures)
    return Envelope(_decoded(members["payload"], "/payload"), payload_type, signatures)


STATEMENT_MALFORMED = Code(
    "statement-malformed",
    Reason.UNTRUSTED,
    "The signed payload is no in-toto Statement v1 about a record.",
    "Sign with kvint2eval sign.",
    "a Statement v0.1",
)


def _parsed(data: bytes, pointer: str) -> Any:
    code = STATEMENT_MALFORMED if pointer else ENVELOPE_MALFORMED
    try:
        return parse_text(decode_bytes(data))
    except StrictJsonError as error:
        place = () if pointer else (error.line, error.column)
        raise EnvelopeFault(code, pointer, f"{error.code}: {error.found}", error.allowed, *place) from error


def _closed(members: Any, pointer: str, names: tuple[str, ...]) -> Any:
    """Members of an object that has exactly these."""
    if not isinstance(members, dict) or set(members) != set(names):
        found = (
            f"members {', '.join(map(describe, members))}" if isinstance(members, dict) else describe(members)
        )
        raise EnvelopeFault(ENVELOPE_MALFORMED, pointer, found, f"an object with exactly {', '.join(names)}")
    return members


def _signature(row: Any, pointer: str) -> Signature:
    if not isinstance(row, dict) or not {"sig"} <= set(row) <= {"keyid", "sig"}:
        found = f"members {', '.join(map(describe, row))}" if isinstance(row, dict) else describe(row)
        raise EnvelopeFault(ENVELOPE_MALFORMED, pointer, found, "an object with sig, and keyid or not")
    members, keyid = row, row.get("keyid", "")
    if not isinstance(keyid, str):
        raise EnvelopeFault(ENVELOPE_MALFORMED, f"{pointer}/keyid", describe(keyid), "a string")
    value = _decoded(members["sig"], f"{pointer}/sig")
    if not value:
        raise EnvelopeFault(ENVELOPE_SIGNATURES_EMPTY, f"{pointer}/sig", "no bytes", "a signature")
    return Signature(keyid, value)


ENVELOPE_SIGNATURE_DUPLICATE = Code(
    "envelope-signature-duplicate",
    Reason.UNTRUSTED,
    "A signature stands twice in the envelope.",
    "Remove one of the two: it counts once.",
    "one signature written twice to reach a threshold of 2",
)
ENVELOPE_KEY_TWICE = Code(
    "envelope-key-twice",
    Reason.UNTRUSTED,
    "One key signed twice.",
    "Keep one signature a key: it counts once.",
    "two ECDSA signatures of one key",
)


def _require_distinct(signatures: tuple[Signature, ...]) -> None:
    values: set[bytes] = set()
    for index, (_, value) in enumerate(signatures):
        pointer = f"/signatures/{index}"
        if value in values:
            raise EnvelopeFault(
                ENVELOPE_SIGNATURE_DUPLICATE, pointer, "a signature that stands before", "each once"
            )
        values.add(value)


ENVELOPE_BASE64 = Code(
    "envelope-base64",
    Reason.UNTRUSTED,
    "A text of the envelope is not canonical base64 of one alphabet.",
    "Use the standard alphabet or the URL-safe one, with padding, but not both.",
    "a payload with both + and _",
)


def _decoded(text: Any, pointer: str) -> bytes:
    """Bytes of a base64 text in one of the two alphabets, in the one form that encodes them."""
    allowed = "padded base64, standard or URL-safe but not both"
    if not isinstance(text, str):
        raise EnvelopeFault(ENVELOPE_MALFORMED, pointer, describe(text), "a string")
    is_url_safe = "-" in text or "_" in text
    try:
        if is_url_safe and ("+" in text or "/" in text):
            raise EnvelopeFault(ENVELOPE_BASE64, pointer, "both alphabets in one text", allowed)
        decoded = base64.b64decode(text, altchars=b"-_" if is_url_safe else None, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnvelopeFault(ENVELOPE_BASE64, pointer, describe(text), allowed) from error
    again = base64.urlsafe_b64encode(decoded) if is_url_safe else base64.b64encode(decoded)
    if again.decode() != text:
        raise EnvelopeFault(ENVELOPE_BASE64, pointer, "stray bits or missing padding", allowed)
    return decoded


STATEMENT_PREDICATE = Code(
    "statement-predicate",
    Reason.UNTRUSTED,
    "The signed Statement says that the record has another contract.",
    "Sign the record again: kvint2eval sign.",
    "a Statement about a v1 record that names kvint2eval/v2",
)
STATEMENT_SUBJECT = Code(
    "statement-subject",
    Reason.UNTRUSTED,
    "The signed Statement is about another file.",
    "Put the envelope beside the record that was signed.",
    "the envelope of an older record",
)


def check_statement(payload: bytes, record: bytes) -> None:
    """Raise unless a payload is an in-toto Statement v1 about these bytes.

    Parameters
    ----------
    payload
        A payload whose signatures were verified.
    record
        The record's bytes.

    Raises
    ------
    EnvelopeFault
        The payload is something else, one of its subjects is another file, or its predicate names another contract
        than the record does.

    Notes
    -----
    As in-toto has it, members that are not known are passed over, a subject may have digests of other algorithms
    beside its SHA-256, and there may be several subjects; here each of them has to be the record.
    """
    code = STATEMENT_MALFORMED
    names = ("_type", "subject", "predicateType", "predicate")
    statement = _object(_parsed(payload, "/payload"), "/payload", names)
    for name, allowed in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if statement[name] != allowed:
            raise EnvelopeFault(code, f"/payload/{name}", describe(statement[name]), allowed)
    subjects = statement["subject"]
    if not isinstance(subjects, list) or not subjects:
        raise EnvelopeFault(
            code, "/payload/subject", describe(subjects), "one subject or more, each the record"
        )
    actual = sha256_hex(record)
    for index, one in enumerate(subjects):
        pointer = f"/payload/subject/{index}/digest"
        digests = _object(
            _object(one, pointer.removesuffix("/digest"), ("digest",))["digest"], pointer, ("sha256",)
        )
        if digests["sha256"] != actual:
            as_text = sha256_hex(record.replace(b"\r\n", b"\n"))
            hint = "; in LF form the record has it" if digests["sha256"] == as_text else ""
            found = describe(digests["sha256"]) + hint
            raise EnvelopeFault(STATEMENT_SUBJECT, f"{pointer}/sha256", found, f"{actual}, the record's")
    pointer = "/payload/predicate"
    version = _object(statement["predicate"], pointer, ("contract_version",))["contract_version"]
    named = _contract_version(record)
    if named is not None and version != named:
        allowed = f"{describe(named)}, as the record names"
        raise EnvelopeFault(STATEMENT_PREDICATE, f"{pointer}/contract_version", describe(version), allowed)


def _contract_version(record: bytes) -> str | None:
    """Contract version of a record, None where its bytes name none: adjudication then says what is wrong with them."""
    try:
        members = parse_text(decode_bytes(record))
    except StrictJsonError:
        return None
    version = members.get("contract_version") if isinstance(members, dict) else None
    return version if isinstance(version, str) else None


def _object(members: Any, pointer: str, names: tuple[str, ...]) -> Any:
    """Members of an object that has these and may have others."""
    if not isinstance(members, dict) or not set(names) <= set(members):
        found = (
            f"members {', '.join(map(describe, members))}" if isinstance(members, dict) else describe(members)
        )
        raise EnvelopeFault(STATEMENT_MALFORMED, pointer, found, f"an object with {', '.join(names)}")
    return members
