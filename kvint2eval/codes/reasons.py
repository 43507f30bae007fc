"""Reasons of a verdict, the contracts' own codes, with what each means."""

from __future__ import annotations

from kvint2eval.codes.kinds import Outcome, Reason, ReasonCode

__all__ = ["REASONS"]

_U = Outcome.UNSUPPORTED

REASONS: dict[Reason, ReasonCode] = {
    Reason.SUPPORTED: ReasonCode(
        Outcome.SUPPORTED,
        "An observed CUDA record, complete and consistent, whose witness digest is its own.",
        "Nothing to fix. Supported does not mean true: run the producer's audit and rederive.",
    ),
    Reason.MALFORMED_RECORD: ReasonCode(
        _U,
        "The bytes are no JSON object that every reader understands alike, or a member has a wrong type or is unknown.",
        "Fix the bytes at the place that the finding names.",
    ),
    Reason.UNKNOWN_CONTRACT: ReasonCode(
        _U,
        "contract_version names a contract that this adjudicator does not know.",
        "Write kvint2eval/v1, or use a release that knows the contract.",
    ),
    Reason.UNSUPPORTED_METHOD: ReasonCode(
        _U,
        "recipe.method is not the method that the contract covers.",
        "Only optr-output-aware-int2 can be judged by v1.",
    ),
    Reason.UNSUPPORTED_QUANTIZATION: ReasonCode(
        _U,
        "The quantization, the objective or the baseline is not the one that the contract covers.",
        "Measure with the recipe that section 2, step 3 of the contract lists.",
    ),
    Reason.INCOMPLETE_PROVENANCE: ReasonCode(
        _U,
        "A pin, the runtime, or the hardware and model envelope is incomplete; the detail names the first such part.",
        "Fill the member that the finding names from the run's own log; do not invent it.",
    ),
    Reason.MODELED_NOT_OBSERVED: ReasonCode(
        Outcome.DELEGATE,
        "The figures are modeled: nothing was observed, so there is nothing to support or refute.",
        "Run the evaluation on the hardware and record what was observed.",
    ),
    Reason.RUNTIME_DELEGATION_REQUIRED: ReasonCode(
        Outcome.DELEGATE,
        "A valid recipe whose figures were not observed on CUDA; the observation is left to a GPU node.",
        "Run the producer on a machine with CUDA and check in the record that it writes.",
    ),
    Reason.INVALID_MEASUREMENT: ReasonCode(
        _U,
        "A measurement is missing, impossible, or contradicts another one.",
        "Run the producer again; a figure that was edited by hand rarely stays consistent.",
    ),
    Reason.FIXTURE_DIGEST_MISMATCH: ReasonCode(
        _U,
        "witness_sha256 is not the digest of the record: the record was changed after it was sealed.",
        "Restore the record. If the change was meant, seal it again: kvint2eval digest --witness prints the digest.",
    ),
    Reason.PIN_MISMATCH: ReasonCode(
        _U,
        "A digest in the record, or a pinned file, differs from the pins that were given.",
        "Find out which of the two changed. A changed producer or kernel needs a new run, then a new pin.",
    ),
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
