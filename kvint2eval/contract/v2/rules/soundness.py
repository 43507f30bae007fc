"""Step 13: the comparison is sound: rotations undo themselves, the cache was read, the choice was honest."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.registry import METHODS
from kvint2eval.contract.v2.rules.recipe import has_clip
from kvint2eval.contract.v2.rules.storage import bits_of
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["NULL_BOUND", "RULES"]

NULL_BOUND = 1e-9
"""Largest NMSE of a rotation without quantization, in float32."""


NULL_CHECK_BOUND = Code(
    "null-check-bound",
    Reason.NULL_CHECK_FAILED,
    "null_check_bound is not 1e-9.",
    "Write the contract's bound.",
    '"null_check_bound": 1e-6',
    v2=13,
)
NULL_CHECK_FAILED = Code(
    "null-check-failed",
    Reason.NULL_CHECK_FAILED,
    "A rotation without quantization has an NMSE above the bound.",
    "Undo the rotation in the output weights in the right order.",
    "1.839 for a rotation whose signs were applied last",
    v2=13,
)


def check_null(subject: SubjectV2) -> Finding | None:
    """Step 13: a rotation without quantization leaves the output unchanged."""
    measurements = subject.measurements
    bound = measurements.null_check_bound
    if bound != NULL_BOUND:
        return finding(NULL_CHECK_BOUND, "/measurements/null_check_bound", bound, f"{NULL_BOUND}")
    for index, check in enumerate(measurements.null_checks):
        if not 0 <= check.nmse <= bound:
            pointer = f"/measurements/null_checks/{index}/nmse"
            return finding(NULL_CHECK_FAILED, pointer, check.nmse, f"at most {bound}")
    return None


OUTPUT_UNCHANGED = Code(
    "output-unchanged",
    Reason.CACHE_NOT_EXERCISED,
    "A trial of a quantized arm has no error at all.",
    "Make the evaluation read the quantized cache.",
    "a numerator of 0",
    v2=13,
)
NOTHING_QUANTIZED = Code(
    "nothing-quantized",
    Reason.CACHE_NOT_EXERCISED,
    "The unquantized windows hold all tokens, so nothing of the cache is quantized.",
    "Evaluate a cache that is longer than its windows.",
    "windows of 64 and 256 tokens over 320 tokens",
    v2=13,
)


TOO_FEW_QUANTIZED = Code(
    "too-few-quantized",
    Reason.CACHE_NOT_EXERCISED,
    "Less than half of the tokens are quantized, or an element takes more than 8 bits: the cache is not a 2-bit one.",
    "Evaluate a longer cache, or smaller windows.",
    "windows of 900 tokens in a cache of 1024",
    v2=13,
)
LARGEST_BITS = 8.0
"""Largest number of stored bits an element, windows and metadata included: half of 16."""


def check_exercised(subject: SubjectV2) -> Finding | None:
    """Step 13: there are quantized tokens, and no trial of a quantized arm is bit for bit the unquantized output."""
    recipe, tokens = subject.record.recipe, subject.record.workload.tokens
    if (recipe.sink_tokens or 0) + (recipe.recent_tokens or 0) >= tokens:
        allowed = f"windows shorter than the {tokens} tokens of the cache"
        return finding(NOTHING_QUANTIZED, "/recipe/recent_tokens", recipe.recent_tokens, allowed)
    kept = (recipe.sink_tokens or 0) + (recipe.recent_tokens or 0)
    if 2 * kept > tokens:
        allowed = f"windows of at most half of the {tokens} tokens; these hold {kept}"
        return finding(TOO_FEW_QUANTIZED, "/recipe/recent_tokens", recipe.recent_tokens, allowed)
    bits = bits_of(subject)
    if bits > LARGEST_BITS:
        allowed = f"at most {LARGEST_BITS} bits an element, windows included; found {bits!r}"
        return finding(TOO_FEW_QUANTIZED, "/recipe/window_dtype", recipe.window_dtype, allowed)
    for index, arm in enumerate(subject.measurements.arms):
        if 0.0 in arm.trials.numerator:
            at = arm.trials.numerator.index(0.0)
            pointer = f"/measurements/arms/{index}/trials/numerator/{at}"
            return finding(OUTPUT_UNCHANGED, pointer, 0, "above 0: reading two-bit codes changes the output")
    return None


BASELINE_UNKNOWN = Code(
    "baseline-unknown",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "The baseline is no arm.",
    "Name the rotation of the baseline.",
    '"baseline": "r9" without such a rotation',
    v2=13,
)
SELECTED_UNKNOWN = Code(
    "selected-unknown",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "The selected rotation is no arm, or is the baseline.",
    "Name the rotation that was selected.",
    "the baseline selected",
    v2=13,
)
METHOD_CONSTRUCTION = Code(
    "method-construction",
    Reason.UNSUPPORTED_METHOD,
    "The selected rotation is not one of the method's.",
    "Name the method that made the selected rotation.",
    '"method": "oscar" with a Hadamard rotation selected',
    v2=13,
)


def check_roles(subject: SubjectV2) -> Finding | None:
    """Step 13: baseline and selected arm are two of the arms, and the method is the selected one's."""
    record = subject.record
    baseline, selected = record.recipe.baseline, subject.measurements.selected
    ids = ", ".join(subject.arms)
    if baseline not in subject.arms:
        return finding(BASELINE_UNKNOWN, "/recipe/baseline", baseline, f"one of {ids}")
    if selected not in subject.arms or selected == baseline:
        allowed = f"one of {ids}, but not the baseline"
        return finding(SELECTED_UNKNOWN, "/measurements/selected", selected, allowed)
    made = {rotation.id: rotation.construction for rotation in record.recipe.rotations or ()}
    allowed_methods = METHODS.get(record.recipe.method)
    if allowed_methods is not None and made[selected] not in allowed_methods:
        allowed = f"a selected rotation made as {' or '.join(allowed_methods)}, not as {made[selected]}"
        return finding(METHOD_CONSTRUCTION, "/recipe/method", record.recipe.method, allowed)
    return None


SELECTION_READS = Code(
    "selection-reads",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "The selection read something else than the calibration.",
    "Select by the calibration objective.",
    '"selection_reads": "evaluation"',
    v2=13,
)
CLIP_NOT_BEST = Code(
    "clip-not-best",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "An arm's clip ratio is not that of its least calibration objective.",
    "Take the first of the least.",
    "clip 0.9 with a lower objective at 0.8",
    v2=13,
)
SELECTED_NOT_BEST = Code(
    "selected-not-best",
    Reason.SELECTION_NOT_BY_CALIBRATION,
    "Another candidate has a lower calibration objective than the selected one.",
    "Select by the calibration objective.",
    "the candidate with the luckiest evaluation queries",
    v2=13,
)


def check_selection(subject: SubjectV2) -> Finding | None:
    """Step 13: clip ratio and rotation were selected by the calibration objective, and by nothing else."""
    reads = subject.record.protocol.selection_reads
    if reads != "calibration":
        return finding(SELECTION_READS, "/protocol/selection_reads", reads, "calibration")
    best = {}
    for index, arm in enumerate(subject.measurements.arms):
        objective = arm.calibration.objective
        best[arm.rotation] = min(objective)
        ratio = arm.calibration.clip_ratio[objective.index(best[arm.rotation])]
        if arm.clip_ratio != ratio:
            pointer = f"/measurements/arms/{index}/clip_ratio"
            return finding(CLIP_NOT_BEST, pointer, arm.clip_ratio, f"{ratio}, the least objective")
    selected = subject.measurements.selected
    candidates = {name: value for name, value in best.items() if name != subject.record.recipe.baseline}
    least = min(candidates, key=candidates.__getitem__)
    if candidates[selected] > candidates[least]:
        allowed = f"{least}, whose calibration objective is the least"
        return finding(SELECTED_NOT_BEST, "/measurements/selected", selected, allowed)
    return None


CLIP_AT_GRID_END = Code(
    "clip-at-grid-end",
    Reason.CLIP_AT_GRID_END,
    "The chosen clip ratio is the first or the last of the grid.",
    "Extend the grid until the optimum lies inside.",
    "a baseline at 0.8, the last ratio",
    v2=13,
)


def check_clip_inside(subject: SubjectV2) -> Finding | None:
    """Step 13: the clip optimum of the baseline and of the selected arm, if there is one, is no end of the grid."""
    if not has_clip(subject):
        return None
    grid = subject.record.recipe.clip_grid or [0.0]
    for name in (subject.record.recipe.baseline, subject.measurements.selected):
        index, arm = subject.arms[str(name)]
        if arm.clip_ratio in (grid[0], grid[-1]):
            pointer = f"/measurements/arms/{index}/clip_ratio"
            allowed = f"inside the grid, which ends at {grid[0]} and {grid[-1]}"
            return finding(CLIP_AT_GRID_END, pointer, arm.clip_ratio, allowed)
    return None


CALIBRATION_IS_EVALUATION = Code(
    "calibration-is-evaluation",
    Reason.QUERIES_OVERLAP,
    "A calibration query has the NMSE of a trial to twelve digits: the query was evaluated too.",
    "Calibrate on queries that no trial uses.",
    "query e3 as calibration query c0",
    v2=13,
)
SAME = 1e-12
"""Relative difference below which two errors are those of one query."""


def check_calibration_unseen(subject: SubjectV2) -> Finding | None:
    """Step 13: no error at the chosen clip ratio is that of a trial, whatever the ids say."""
    for index, arm in enumerate(subject.measurements.arms):
        calibration = arm.calibration
        at = calibration.clip_ratio.index(arm.clip_ratio)
        errors = sorted(arm.trials.nmse)
        for query, error in enumerate(calibration.query_nmse[at]):
            place = bisect_left(errors, error * (1 - SAME))
            if place < len(errors) and errors[place] <= error * (1 + SAME):
                pointer = f"/measurements/arms/{index}/calibration/query_nmse/{at}/{query}"
                allowed = "another error than that of every trial"
                return finding(CALIBRATION_IS_EVALUATION, pointer, error, allowed)
    return None


RULES: tuple[RuleV2, ...] = (
    check_roles,
    check_null,
    check_exercised,
    check_selection,
    check_clip_inside,
    check_calibration_unseen,
)
