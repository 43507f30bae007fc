"""Step 13: the comparison is sound: rotations undo themselves, the cache was read, the choice was honest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.v2.registry import METHODS
from kvint2eval.contract.v2.rules.recipe import has_clip
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["NULL_CHECK_BOUND", "RULES"]

NULL_CHECK_BOUND = 1e-9
"""Largest NMSE of a rotation without quantization, in float32."""


def check_null(subject: SubjectV2) -> Finding | None:
    """Step 13: a rotation without quantization leaves the output unchanged."""
    measurements = subject.measurements
    bound = measurements.null_check_bound
    if bound != NULL_CHECK_BOUND:
        return finding("null-check-bound", "/measurements/null_check_bound", bound, f"{NULL_CHECK_BOUND}")
    for index, check in enumerate(measurements.null_checks):
        if not 0 <= check.nmse <= bound:
            pointer = f"/measurements/null_checks/{index}/nmse"
            return finding("null-check-failed", pointer, check.nmse, f"at most {bound}")
    return None


def check_exercised(subject: SubjectV2) -> Finding | None:
    """Step 13: there are quantized tokens, and no trial of a quantized arm is bit for bit the unquantized output."""
    recipe, tokens = subject.record.recipe, subject.record.workload.tokens
    if (recipe.sink_tokens or 0) + (recipe.recent_tokens or 0) >= tokens:
        allowed = f"windows shorter than the {tokens} tokens of the cache"
        return finding("nothing-quantized", "/recipe/recent_tokens", recipe.recent_tokens, allowed)
    for index, arm in enumerate(subject.measurements.arms):
        if 0.0 in arm.trials.numerator:
            at = arm.trials.numerator.index(0.0)
            pointer = f"/measurements/arms/{index}/trials/numerator/{at}"
            return finding(
                "output-unchanged", pointer, 0, "above 0: reading two-bit codes changes the output"
            )
    return None


def check_roles(subject: SubjectV2) -> Finding | None:
    """Step 13: baseline and selected arm are two of the arms, and the method is the selected one's."""
    record = subject.record
    baseline, selected = record.recipe.baseline, subject.measurements.selected
    ids = ", ".join(subject.arms)
    if baseline not in subject.arms:
        return finding("baseline-unknown", "/recipe/baseline", baseline, f"one of {ids}")
    if selected not in subject.arms or selected == baseline:
        allowed = f"one of {ids}, but not the baseline"
        return finding("selected-unknown", "/measurements/selected", selected, allowed)
    made = {rotation.id: rotation.construction for rotation in record.recipe.rotations or ()}
    allowed_methods = METHODS.get(record.recipe.method)
    if allowed_methods is not None and made[selected] not in allowed_methods:
        allowed = f"a selected rotation made as {' or '.join(allowed_methods)}, not as {made[selected]}"
        return finding("method-construction", "/recipe/method", record.recipe.method, allowed)
    return None


def check_selection(subject: SubjectV2) -> Finding | None:
    """Step 13: clip ratio and rotation were selected by the calibration objective, and by nothing else."""
    reads = subject.record.protocol.selection_reads
    if reads != "calibration":
        return finding("selection-reads", "/protocol/selection_reads", reads, "calibration")
    best = {}
    for index, arm in enumerate(subject.measurements.arms):
        objective = arm.calibration.objective
        best[arm.rotation] = min(objective)
        ratio = arm.calibration.clip_ratio[objective.index(best[arm.rotation])]
        if arm.clip_ratio != ratio:
            pointer = f"/measurements/arms/{index}/clip_ratio"
            return finding("clip-not-best", pointer, arm.clip_ratio, f"{ratio}, the least objective")
    selected = subject.measurements.selected
    candidates = {name: value for name, value in best.items() if name != subject.record.recipe.baseline}
    least = min(candidates, key=candidates.__getitem__)
    if candidates[selected] > candidates[least]:
        allowed = f"{least}, whose calibration objective is the least"
        return finding("selected-not-best", "/measurements/selected", selected, allowed)
    return None


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
            return finding("clip-at-grid-end", pointer, arm.clip_ratio, allowed)
    return None


RULES: tuple[RuleV2, ...] = (check_roles, check_null, check_exercised, check_selection, check_clip_inside)
