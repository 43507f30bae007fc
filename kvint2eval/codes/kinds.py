"""Outcomes, reasons and codes of findings, with what is said of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, Self

__all__ = ["Code", "Outcome", "Reason", "ReasonCode"]


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


class Code(str):
    """Name of a finding, with what is said of it.

    Declared beside the rule that gives it, and a text for everything else: it is compared, printed and written as its
    name.

    Parameters
    ----------
    name
        Spelling of the code.
    reason
        Reason of a verdict that the finding decides.
    meaning
        What the finding means, one sentence.
    mend
        How to fix the record, one sentence.
    example
        What gives the finding, in a few words.
    v1, v2
        Number of the step that gives it in each contract; None in a contract that has no such step.
    """

    __slots__ = ("example", "meaning", "mend", "reason", "steps")

    reason: Reason
    meaning: str
    mend: str
    example: str
    steps: dict[str, int]
    """Step by contract; empty for the findings of a policy, which come before or after the steps."""

    def __new__(
        cls,
        name: str,
        reason: Reason,
        meaning: str,
        mend: str,
        example: str,
        *,
        v1: int | None = None,
        v2: int | None = None,
    ) -> Self:
        """Code of a name."""
        code = super().__new__(cls, name)
        code.reason, code.meaning, code.mend, code.example = reason, meaning, mend, example
        code.steps = {contract: step for contract, step in (("v1", v1), ("v2", v2)) if step is not None}
        return code

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes the code again in another process."""
        rest = (self.reason, self.meaning, self.mend, self.example)
        return _code, (str(self), *rest, self.steps)


def _code(name: str, reason: Reason, meaning: str, mend: str, example: str, steps: dict[str, int]) -> Code:
    return Code(name, reason, meaning, mend, example, **steps)
