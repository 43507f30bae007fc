"""Step 9: the search is as large as it was meant to be, and its candidates differ."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.registry import CONSTRUCTIONS
from kvint2eval.contract.v2.rules.recipe import has_clip
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["LEAST_RATIOS", "RULES"]

LEAST_RATIOS = 3
"""Least number of clip ratios of a search; a dialect without a clip has one, 1."""


def _rotations(subject: SubjectV2) -> Sequence[layout.Rotation]:
    return subject.record.recipe.rotations or ()


ROTATION_COUNT = Code(
    "rotation-count",
    Reason.SEARCH_INCOMPLETE,
    "rotation_count is not the number of rotations.",
    "Keep every rotation that was searched.",
    '"rotation_count": 9 with three rotations',
    v2=9,
)
TOO_FEW_ROTATIONS = Code(
    "too-few-rotations",
    Reason.SEARCH_INCOMPLETE,
    "Fewer than two rotations.",
    "A comparison needs the baseline and a candidate.",
    "one rotation",
    v2=9,
)
CLIP_GRID_SIZE = Code(
    "clip-grid-size",
    Reason.SEARCH_INCOMPLETE,
    "clip_grid_size is not the number of ratios, or they are fewer than three, or others than 1 without a clip.",
    "Keep every ratio that was searched.",
    '"clip_grid_size": 9 with five ratios',
    v2=9,
)


def check_declared_sizes(subject: SubjectV2) -> Finding | None:
    """Step 9: the rotation set and the clip grid have their declared sizes, and are large enough to search."""
    recipe = subject.record.recipe
    count = len(_rotations(subject))
    if recipe.rotation_count != count:
        allowed = f"{count}, the number of rotations"
        return finding(ROTATION_COUNT, "/recipe/rotation_count", recipe.rotation_count, allowed)
    if count < 2:
        allowed = "a baseline and at least one candidate"
        return finding(TOO_FEW_ROTATIONS, "/recipe/rotations", list(_rotations(subject)), allowed)
    size = len(recipe.clip_grid or ())
    if not has_clip(subject):
        if recipe.clip_grid != [1.0]:
            allowed = "one ratio, 1: the dialect has no clip to search"
            return finding(CLIP_GRID_SIZE, "/recipe/clip_grid", recipe.clip_grid, allowed)
    elif size < LEAST_RATIOS:
        allowed = f"at least {LEAST_RATIOS} ratios: an optimum inside needs one on either side"
        return finding(CLIP_GRID_SIZE, "/recipe/clip_grid", recipe.clip_grid, allowed)
    if recipe.clip_grid_size != size:
        allowed = f"{size}, the number of clip ratios"
        return finding(CLIP_GRID_SIZE, "/recipe/clip_grid_size", recipe.clip_grid_size, allowed)
    return None


CLIP_RATIO = Code(
    "clip-ratio",
    Reason.SEARCH_INCOMPLETE,
    "A clip ratio is not in (0, 1].",
    "A clip ratio is a share of the group's largest magnitude.",
    "a ratio of 1.2",
    v2=9,
)
CLIP_GRID_ORDER = Code(
    "clip-grid-order",
    Reason.SEARCH_INCOMPLETE,
    "The clip ratios do not fall.",
    "Write the grid once, from its largest ratio.",
    "0.9 before 0.95",
    v2=9,
)
SEARCH_GRID = Code(
    "search-grid",
    Reason.SEARCH_INCOMPLETE,
    "An arm was searched over another grid than the recipe's.",
    "Search all arms over one grid.",
    "a baseline searched over fewer ratios",
    v2=9,
)


def check_grid(subject: SubjectV2) -> Finding | None:
    """Step 9: the clip ratios fall, each in (0, 1], and every arm was searched over all of them."""
    grid = subject.record.recipe.clip_grid or []
    for index, ratio in enumerate(grid):
        if not 0 < ratio <= 1:
            return finding(CLIP_RATIO, f"/recipe/clip_grid/{index}", ratio, "above 0, at most 1")
    for index, (before, ratio) in enumerate(pairwise(grid), 1):
        if ratio >= before:
            return finding(CLIP_GRID_ORDER, f"/recipe/clip_grid/{index}", ratio, f"less than {before}")
    for index, arm in enumerate(subject.measurements.arms):
        if arm.calibration.clip_ratio != grid:
            pointer = f"/measurements/arms/{index}/calibration/clip_ratio"
            return finding(SEARCH_GRID, pointer, arm.calibration.clip_ratio, "recipe.clip_grid")
    return None


ROTATION_ID = Code(
    "rotation-id",
    Reason.SEARCH_INCOMPLETE,
    "A rotation has no id of its own.",
    "Name each rotation once.",
    "two rotations named r1",
    v2=9,
)
CONSTRUCTION_UNKNOWN = Code(
    "construction-unknown",
    Reason.SEARCH_INCOMPLETE,
    "The construction of a rotation is not one that the contract knows.",
    "Write how it was made, by its name in the registry.",
    '"construction": "magic"',
    v2=9,
)
ARM_SET = Code(
    "arm-set",
    Reason.SEARCH_INCOMPLETE,
    "The arms are not one a rotation.",
    "Evaluate every rotation once.",
    "three rotations and two arms",
    v2=9,
)
NULL_CHECK_SET = Code(
    "null-check-set",
    Reason.SEARCH_INCOMPLETE,
    "The null checks are not one a rotation.",
    "Check every rotation without quantization.",
    "a rotation without its null check",
    v2=9,
)


LEAST_SPAN = 0.15
LEAST_STEP, GREATEST_STEP = 0.005, 0.25

CLIP_GRID_SPAN = Code(
    "clip-grid-span",
    Reason.SEARCH_INCOMPLETE,
    "The clip grid spans too little, or neighbouring ratios are too near or too far apart: it searches nothing.",
    "Search a grid that spans at least 0.15, in steps of 0.005 to 0.25.",
    "ratios of 0.8, 0.7999999 and 0.7999998",
    v2=9,
)


def check_grid_span(subject: SubjectV2) -> Finding | None:
    """Step 9: the clip grid spans enough to search, in steps that are neither negligible nor coarse."""
    grid = subject.record.recipe.clip_grid or []
    if not has_clip(subject):
        return None
    if max(grid) - min(grid) < LEAST_SPAN:
        return finding(CLIP_GRID_SPAN, "/recipe/clip_grid", grid, f"ratios that span at least {LEAST_SPAN}")
    for index, (before, ratio) in enumerate(pairwise(grid), 1):
        if not LEAST_STEP <= abs(before - ratio) <= GREATEST_STEP:
            allowed = f"{LEAST_STEP} to {GREATEST_STEP} from the ratio before, {before}"
            return finding(CLIP_GRID_SPAN, f"/recipe/clip_grid/{index}", ratio, allowed)
    return None


def check_rotation_ids(subject: SubjectV2) -> Finding | None:
    """Step 9: rotations have ids of their own, known constructions, and one arm and one null check each."""
    ids: list[str] = []
    for index, rotation in enumerate(_rotations(subject)):
        pointer = f"/recipe/rotations/{index}"
        if not rotation.id or rotation.id in ids:
            return finding(ROTATION_ID, f"{pointer}/id", rotation.id, "a name that no other rotation has")
        if rotation.construction not in CONSTRUCTIONS:
            allowed = f"one of {', '.join(CONSTRUCTIONS)}"
            return finding(CONSTRUCTION_UNKNOWN, f"{pointer}/construction", rotation.construction, allowed)
        ids.append(rotation.id)
    measurements = subject.measurements
    for code, name, found in (
        (ARM_SET, "arms", [arm.rotation for arm in measurements.arms]),
        (NULL_CHECK_SET, "null_checks", [check.rotation for check in measurements.null_checks]),
    ):
        if sorted(found) != sorted(ids):
            allowed = f"one of each of {', '.join(ids)}; found {', '.join(found)}"
            return finding(code, f"/measurements/{name}", found, allowed)
    return None


ROTATIONS_EQUAL = Code(
    "rotations-equal",
    Reason.ROTATIONS_COINCIDE,
    "Two rotations have the same digests, so they are one up to sign.",
    "Draw another rotation.",
    "R and -R as two candidates",
    v2=9,
)


def check_rotations_differ(subject: SubjectV2) -> Finding | None:
    """Step 9: no two rotations are one up to sign."""
    seen: dict[tuple[str, str], str] = {}
    for index, rotation in enumerate(_rotations(subject)):
        digests = (rotation.key_sha256, rotation.value_sha256)
        if digests in seen:
            pointer = f"/recipe/rotations/{index}/key_sha256"
            allowed = f"digests of its own; {rotation.id} is {seen[digests]} up to sign"
            return finding(ROTATIONS_EQUAL, pointer, rotation.key_sha256, allowed)
        seen[digests] = rotation.id
    return None


RULES: tuple[RuleV2, ...] = (
    check_declared_sizes,
    check_grid,
    check_grid_span,
    check_rotation_ids,
    check_rotations_differ,
)
