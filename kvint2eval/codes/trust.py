"""Findings about signatures and policies, for records of every contract."""

from kvint2eval.codes.kinds import Reason

__all__ = ["TRUST_ROWS"]

_UNTRUSTED = Reason.UNTRUSTED

TRUST_ROWS: dict[str, tuple[Reason, int, str, str, str]] = {
    "policy-expired": (
        _UNTRUSTED,
        0,
        "The policy has expired.",
        "Renew the policy.",
        "a policy that expired yesterday",
    ),
    "envelope-missing": (
        _UNTRUSTED,
        0,
        "The record is not signed.",
        "Sign it: kvint2eval sign RECORD --key KEY writes RECORD.dsse.",
        "a record without its .dsse file",
    ),
    "envelope-malformed": (
        _UNTRUSTED,
        0,
        "The envelope is no DSSE envelope.",
        "Write payload, payloadType and signatures, and nothing else.",
        "an envelope without signatures",
    ),
    "envelope-payload-type": (
        _UNTRUSTED,
        0,
        "The envelope's payload type is not application/vnd.in-toto+json.",
        "Sign an in-toto Statement.",
        '"payloadType": "application/json"',
    ),
    "envelope-base64": (
        _UNTRUSTED,
        0,
        "A text of the envelope is not canonical base64 of one alphabet.",
        "Use the standard alphabet or the URL-safe one, with padding, but not both.",
        "a payload with both + and _",
    ),
    "envelope-signatures-empty": (
        _UNTRUSTED,
        0,
        "The envelope has no signature.",
        "Sign the record.",
        '"signatures": []',
    ),
    "envelope-signature-duplicate": (
        _UNTRUSTED,
        0,
        "A signature stands twice in the envelope.",
        "Remove one of the two: it counts once.",
        "one signature written twice to reach a threshold of 2",
    ),
    "envelope-key-twice": (
        _UNTRUSTED,
        0,
        "One key signed twice.",
        "Keep one signature a key: it counts once.",
        "two ECDSA signatures of one key",
    ),
    "signature-unknown-key": (
        _UNTRUSTED,
        0,
        "No signature is by a key of the policy.",
        "Let a trusted key sign, or add the key to the policy.",
        "a signature by a stranger",
    ),
    "signature-invalid": (
        _UNTRUSTED,
        0,
        "A signature by a key of the policy does not fit the payload.",
        "The payload was changed after it was signed: sign the record that is meant.",
        "a swapped payload",
    ),
    "signature-threshold": (
        _UNTRUSTED,
        0,
        "Fewer keys of the policy signed than its threshold.",
        "Collect the missing signatures: kvint2eval sign adds to an envelope.",
        "one signature under a threshold of 2",
    ),
    "statement-malformed": (
        _UNTRUSTED,
        0,
        "The signed payload is no in-toto Statement v1 about a record.",
        "Sign with kvint2eval sign.",
        "a Statement v0.1",
    ),
    "statement-subject": (
        _UNTRUSTED,
        0,
        "The signed Statement is about another file.",
        "Put the envelope beside the record that was signed.",
        "the envelope of an older record",
    ),
    "statement-predicate": (
        _UNTRUSTED,
        0,
        "The signed Statement says that the record has another contract.",
        "Sign the record again: kvint2eval sign.",
        "a Statement about a v1 record that names kvint2eval/v2",
    ),
    "producer-not-allowed": (
        _UNTRUSTED,
        16,
        "The record's producer is not one that the policy allows.",
        "Run an allowed producer, or add this one to the policy.",
        "a producer digest that the policy does not list",
    ),
    "digest-not-bound": (
        _UNTRUSTED,
        16,
        "A digest is only declared where every digest has to be bound to a file.",
        "Pin the digest with a path in the pins file, give --root for the files of a v2 record, or do not require it.",
        "an artifact that was renamed, so that no pin names it",
    ),
}
"""By code: reason, step, meaning, mend, example."""
