"""Types of the codes: outcomes, reasons and findings, with meaning and fix."""

from enum import StrEnum
from typing import NamedTuple

__all__ = ["FindingCode", "Outcome", "Reason", "ReasonCode"]


class Outcome(StrEnum):
    """The three outcomes of a verdict."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    DELEGATE = "delegate"


class Reason(StrEnum):
    """Why a record has its outcome."""

    SUPPORTED = "KVINT2_SUPPORTED"
    MALFORMED_RECORD = "KVINT2_MALFORMED_RECORD"
    UNKNOWN_CONTRACT = "KVINT2_UNKNOWN_CONTRACT"
    UNSUPPORTED_METHOD = "KVINT2_UNSUPPORTED_METHOD"
    UNSUPPORTED_QUANTIZATION = "KVINT2_UNSUPPORTED_QUANTIZATION"
    INCOMPLETE_PROVENANCE = "KVINT2_INCOMPLETE_PROVENANCE"
    MODELED_NOT_OBSERVED = "KVINT2_MODELED_NOT_OBSERVED"
    RUNTIME_DELEGATION_REQUIRED = "KVINT2_RUNTIME_DELEGATION_REQUIRED"
    INVALID_MEASUREMENT = "KVINT2_INVALID_MEASUREMENT"
    FIXTURE_DIGEST_MISMATCH = "KVINT2_FIXTURE_DIGEST_MISMATCH"
    PIN_MISMATCH = "KVINT2_PIN_MISMATCH"
    FINGERPRINT_MISMATCH = "KVINT2_FINGERPRINT_MISMATCH"
    SEARCH_INCOMPLETE = "KVINT2_SEARCH_INCOMPLETE"
    ROTATIONS_COINCIDE = "KVINT2_ROTATIONS_COINCIDE"
    ARMS_NOT_PAIRED = "KVINT2_ARMS_NOT_PAIRED"
    QUERIES_OVERLAP = "KVINT2_QUERIES_OVERLAP"
    SUMMARY_NOT_REPRODUCED = "KVINT2_SUMMARY_NOT_REPRODUCED"
    NULL_CHECK_FAILED = "KVINT2_NULL_CHECK_FAILED"
    CACHE_NOT_EXERCISED = "KVINT2_CACHE_NOT_EXERCISED"
    SELECTION_NOT_BY_CALIBRATION = "KVINT2_SELECTION_NOT_BY_CALIBRATION"
    CLIP_AT_GRID_END = "KVINT2_CLIP_AT_GRID_END"
    STORAGE_MISMATCH = "KVINT2_STORAGE_MISMATCH"
    CLAIM_NOT_REPRODUCED = "KVINT2_CLAIM_NOT_REPRODUCED"
    NO_BETTER_THAN_ZERO = "KVINT2_NO_BETTER_THAN_ZERO"
    CLAIM_REFUSED = "KVINT2_CLAIM_REFUSED"
    ARTIFACT_MISMATCH = "KVINT2_ARTIFACT_MISMATCH"
    UNTRUSTED = "KVINT2_UNTRUSTED"


class ReasonCode(NamedTuple):
    """What a reason means."""

    outcome: Outcome
    meaning: str
    mend: str


class FindingCode(NamedTuple):
    """What a finding means."""

    reason: Reason
    step: int
    """Number of the step in the contract that the finding belongs to."""
    meaning: str
    mend: str
    contract: str = "v1"
    """`v2` for a finding that only records of v2 can give."""
