"""Reasons and findings that contract v2 adds, and those of signatures."""

from kvint2eval.codes.kinds import FindingCode, Outcome, Reason, ReasonCode
from kvint2eval.codes.trust import TRUST_ROWS
from kvint2eval.codes.v2_comparison import COMPARISON_ROWS
from kvint2eval.codes.v2_record import RECORD_ROWS

__all__ = ["EXAMPLES_V2", "FINDINGS_V2", "REASONS_V2"]

_U = Outcome.UNSUPPORTED

REASONS_V2: dict[Reason, ReasonCode] = {
    Reason.FINGERPRINT_MISMATCH: ReasonCode(
        _U,
        "The quantizer's fingerprint is not that of the dialect that the record names.",
        "Name the dialect that ran, or fix the quantizer; kvint2eval-producer computes the fingerprint.",
    ),
    Reason.SEARCH_INCOMPLETE: ReasonCode(
        _U,
        "The rotation set, the clip grid or the arms are not what the record declares.",
        "Keep every rotation and every clip ratio that was searched in the record.",
    ),
    Reason.ROTATIONS_COINCIDE: ReasonCode(
        _U,
        "Two rotations of the search are one up to sign, so the search was smaller than it says.",
        "Draw distinct rotations: a symmetric quantizer cannot tell R from -R.",
    ),
    Reason.ARMS_NOT_PAIRED: ReasonCode(
        _U,
        "The arms did not see the same queries, so their difference compares queries, not arms.",
        "Evaluate all arms on the same queries, in one order.",
    ),
    Reason.QUERIES_OVERLAP: ReasonCode(
        _U,
        "A query of the evaluation was read by the search.",
        "Evaluate on queries that the calibration has not seen.",
    ),
    Reason.SUMMARY_NOT_REPRODUCED: ReasonCode(
        _U,
        "A figure is not what the record's own trials give.",
        "Run the producer again; figures that are edited by hand do not fit their trials.",
    ),
    Reason.NULL_CHECK_FAILED: ReasonCode(
        _U,
        "A rotation changes the output although nothing is quantized: its inverse is missing or wrong.",
        "Check the order of signs and transform in the rotation of the output weights.",
    ),
    Reason.CACHE_NOT_EXERCISED: ReasonCode(
        _U,
        "A quantized arm gives the unquantized output bit for bit: the quantized cache was not read.",
        "Make the evaluation read the cache; a single prefill attends to unquantized keys and values.",
    ),
    Reason.SELECTION_NOT_BY_CALIBRATION: ReasonCode(
        _U,
        "The selected candidate is not the best by the calibration objective.",
        "Select by calibration alone, and report what was selected.",
    ),
    Reason.CLIP_AT_GRID_END: ReasonCode(
        _U,
        "The clip optimum of the baseline or of the selected arm is an end of the grid.",
        "Extend the grid until the optimum lies inside: a baseline that is not tuned is no baseline.",
    ),
    Reason.STORAGE_MISMATCH: ReasonCode(
        _U,
        "Stored bytes or bits per element do not follow from codes, metadata type, windows and length.",
        "Measure the arrays as stored, metadata and windows included.",
    ),
    Reason.CLAIM_NOT_REPRODUCED: ReasonCode(
        _U,
        "A claim is not one that can be recomputed, or is not what the trials and its seed give.",
        "Let the producer write the claims; docs/reference/contract-v2.md says how an interval is computed.",
    ),
    Reason.NO_BETTER_THAN_ZERO: ReasonCode(
        _U,
        "An improvement is claimed for an arm that is no better than an output of zeros.",
        "An NMSE of 1 is what zeros have: there is no improvement to claim.",
    ),
    Reason.CLAIM_REFUSED: ReasonCode(
        _U,
        "The record's figures hold, but its trials carry none of its claims.",
        "Run more trials, or claim less.",
    ),
    Reason.ARTIFACT_MISMATCH: ReasonCode(
        _U,
        "A file of the repository has another digest than the record states.",
        "Restore the file, or run again with the file that is there.",
    ),
    Reason.UNTRUSTED: ReasonCode(
        _U,
        "The record is not signed, or its digests are not bound, as a policy or an option asks.",
        "Let a trusted key sign the record, kvint2eval sign; bind its digests to files with pins or a root.",
    ),
}

_ROWS = RECORD_ROWS | COMPARISON_ROWS | TRUST_ROWS

FINDINGS_V2: dict[str, FindingCode] = {
    code: FindingCode(reason, step, meaning, mend, "v2")
    for code, (reason, step, meaning, mend, _) in _ROWS.items()
}

EXAMPLES_V2: dict[str, str] = {code: row[4] for code, row in _ROWS.items()}
