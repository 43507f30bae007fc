"""Codes that the rules of both contracts give, each with its step in either."""

from __future__ import annotations

from kvint2eval.codes.kinds import Code, Reason

__all__ = ["MODELED_EVIDENCE", "UNKNOWN_EVIDENCE", "WITNESS_MALFORMED", "WITNESS_MISMATCH", "WITNESS_MISSING"]

MODELED_EVIDENCE = Code(
    "modeled-evidence",
    Reason.MODELED_NOT_OBSERVED,
    "evidence is modeled.",
    "Run the evaluation and record what was observed.",
    '"evidence": "modeled"',
    v1=5,
    v2=5,
)
UNKNOWN_EVIDENCE = Code(
    "unknown-evidence",
    Reason.INVALID_MEASUREMENT,
    "evidence is neither observed nor modeled.",
    "Write observed or modeled, whichever is true.",
    '"evidence": "estimated"',
    v1=6,
    v2=6,
)
WITNESS_MISSING = Code(
    "witness-missing",
    Reason.FIXTURE_DIGEST_MISMATCH,
    "witness_sha256 is missing or empty.",
    "Seal the record: kvint2eval digest --witness prints the digest.",
    '"witness_sha256": ""',
    v1=9,
    v2=16,
)
WITNESS_MALFORMED = Code(
    "witness-malformed",
    Reason.FIXTURE_DIGEST_MISMATCH,
    "witness_sha256 is not 64 lower-case hexadecimal characters.",
    "Write the digest in lower case, without a newline.",
    "the digest in upper case",
    v1=9,
    v2=16,
)
WITNESS_MISMATCH = Code(
    "witness-mismatch",
    Reason.FIXTURE_DIGEST_MISMATCH,
    "witness_sha256 is not the digest of the record.",
    "Restore the record; seal it again only if the change was meant.",
    "a digit of a figure changed after the record was sealed",
    v1=9,
    v2=16,
)
