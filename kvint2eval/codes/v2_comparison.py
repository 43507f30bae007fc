"""Findings of contract v2 about measurements: trials, summaries, soundness, storage and claims."""

from kvint2eval.codes.kinds import Reason

__all__ = ["COMPARISON_ROWS"]

_MEASUREMENT = Reason.INVALID_MEASUREMENT
_SUMMARY = Reason.SUMMARY_NOT_REPRODUCED
_SELECTION = Reason.SELECTION_NOT_BY_CALIBRATION
_STORAGE = Reason.STORAGE_MISMATCH
_CLAIM = Reason.CLAIM_NOT_REPRODUCED
_REFUSED = Reason.CLAIM_REFUSED

COMPARISON_ROWS: dict[str, tuple[Reason, int, str, str, str]] = {
    "figure-out-of-range": (
        _MEASUREMENT,
        11,
        "A figure is negative, zero where it cannot be, or larger than 1e60.",
        "Write the figure that was measured.",
        "a decode time of 0",
    ),
    "trial-nmse": (
        _SUMMARY,
        11,
        "An NMSE is not numerator / (denominator + 1e-30).",
        "Compute it in binary64 from the two that are recorded.",
        "an NMSE rounded to nine digits",
    ),
    "trial-split": (
        _SUMMARY,
        11,
        "Key part, value part and cross part do not add up to the numerator.",
        "Split the error as OptR, equation 8 does; the cross part is twice the inner product.",
        "a key part that was left out",
    ),
    "arms-equal": (
        Reason.ROTATIONS_COINCIDE,
        11,
        "Two arms have the same error in every trial: a symmetric quantizer cannot tell R from -R.",
        "Draw another rotation; check that the digests are those of the rotations that ran.",
        "R and -R as two candidates, with digests that differ",
    ),
    "calibration-table": (
        _SUMMARY,
        12,
        "The calibration table is not one value a clip ratio and calibration query.",
        "Record every value that the search read.",
        "a row of 15 values for 16 queries",
    ),
    "calibration-objective": (
        _SUMMARY,
        12,
        "A calibration objective is not the mean over the calibration queries.",
        "Record the objective that the search read.",
        "an objective of another clip ratio",
    ),
    "summary-differs": (
        _SUMMARY,
        12,
        "A summary of an arm is not what its trials give.",
        "Population deviation, divided by n; median of the times.",
        "a mean over other trials",
    ),
    "baseline-unknown": (
        _SELECTION,
        13,
        "The baseline is no arm.",
        "Name the rotation of the baseline.",
        '"baseline": "r9" without such a rotation',
    ),
    "selected-unknown": (
        _SELECTION,
        13,
        "The selected rotation is no arm, or is the baseline.",
        "Name the rotation that was selected.",
        "the baseline selected",
    ),
    "method-construction": (
        Reason.UNSUPPORTED_METHOD,
        13,
        "The selected rotation is not one of the method's.",
        "Name the method that made the selected rotation.",
        '"method": "oscar" with a Hadamard rotation selected',
    ),
    "null-check-bound": (
        Reason.NULL_CHECK_FAILED,
        13,
        "null_check_bound is not 1e-9.",
        "Write the contract's bound.",
        '"null_check_bound": 1e-6',
    ),
    "null-check-failed": (
        Reason.NULL_CHECK_FAILED,
        13,
        "A rotation without quantization has an NMSE above the bound.",
        "Undo the rotation in the output weights in the right order.",
        "1.839 for a rotation whose signs were applied last",
    ),
    "output-unchanged": (
        Reason.CACHE_NOT_EXERCISED,
        13,
        "A trial of a quantized arm has no error at all.",
        "Make the evaluation read the quantized cache.",
        "a numerator of 0",
    ),
    "nothing-quantized": (
        Reason.CACHE_NOT_EXERCISED,
        13,
        "The unquantized windows hold all tokens, so nothing of the cache is quantized.",
        "Evaluate a cache that is longer than its windows.",
        "windows of 64 and 256 tokens over 320 tokens",
    ),
    "selection-reads": (
        _SELECTION,
        13,
        "The selection read something else than the calibration.",
        "Select by the calibration objective.",
        '"selection_reads": "evaluation"',
    ),
    "clip-not-best": (
        _SELECTION,
        13,
        "An arm's clip ratio is not that of its least calibration objective.",
        "Take the first of the least.",
        "clip 0.9 with a lower objective at 0.8",
    ),
    "selected-not-best": (
        _SELECTION,
        13,
        "Another candidate has a lower calibration objective than the selected one.",
        "Select by the calibration objective.",
        "the candidate with the luckiest evaluation queries",
    ),
    "clip-at-grid-end": (
        Reason.CLIP_AT_GRID_END,
        13,
        "The chosen clip ratio is the first or the last of the grid.",
        "Extend the grid until the optimum lies inside.",
        "a baseline at 0.8, the last ratio",
    ),
    "stored-bytes": (
        _STORAGE,
        14,
        "Stored bytes are not what length, heads, group size, metadata type and windows ask for.",
        "Count the bytes of the arrays as stored.",
        "metadata of 16-bit scalars where the dialect stores 32",
    ),
    "bits-per-element": (
        _STORAGE,
        14,
        "Bits per element are not the stored bits over the elements of keys and values.",
        "Divide all stored bits, windows included.",
        "2.25 for a cache with windows",
    ),
    "too-many-claims": (
        _CLAIM,
        15,
        "More than 16 claims.",
        "Claim what matters.",
        "17 claims",
    ),
    "claim-arm": (
        _CLAIM,
        15,
        "A claim is about another arm than the selected one, or compares it with another than the baseline.",
        "Claim what was selected by calibration, against the baseline.",
        "a claim for the arm that did best in the evaluation",
    ),
    "claim-kind": (
        _CLAIM,
        15,
        "Metric, statistic, method, level or resamples of a claim cannot be recomputed.",
        "Use what docs/reference/contract-v2.md lists.",
        '"level": 0.8',
    ),
    "claim-value": (
        _CLAIM,
        15,
        "The value of a claim is not what the trials give.",
        "Mean of baseline minus candidate, trial by trial.",
        "a rounded value",
    ),
    "claim-interval": (
        _CLAIM,
        15,
        "The interval of a claim is not what the trials and its seed give.",
        "Compute it with the index stream of the contract.",
        "an interval of another seed",
    ),
    "winner-loses-to-zero": (
        Reason.NO_BETTER_THAN_ZERO,
        15,
        "The arm that is said to be better has a mean NMSE of 1 or more.",
        "There is no improvement to claim.",
        "an arm at 1.96 against a baseline at 52",
    ),
    "claim-too-few-trials": (
        _REFUSED,
        15,
        "Too few trials for an interval of this level to exclude no effect.",
        "At least 5, 6 or 8 trials for level 0.9, 0.95 or 0.99.",
        "five trials for level 0.95",
    ),
    "claim-no-effect": (
        _REFUSED,
        15,
        "The interval of a claim does not exclude no effect.",
        "Run more trials, or claim nothing.",
        "an interval from -0.1 to 0.4",
    ),
}
"""By code: reason, step, meaning, mend, example."""
