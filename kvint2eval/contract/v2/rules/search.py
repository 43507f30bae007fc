"""Step 9: the search is as large as it was meant to be, and its candidates differ."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

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


def check_declared_sizes(subject: SubjectV2) -> Finding | None:
    """Step 9: the rotation set and the clip grid have their declared sizes, and are large enough to search."""
    recipe = subject.record.recipe
    count = len(_rotations(subject))
    if recipe.rotation_count != count:
        allowed = f"{count}, the number of rotations"
        return finding("rotation-count", "/recipe/rotation_count", recipe.rotation_count, allowed)
    if count < 2:
        allowed = "a baseline and at least one candidate"
        return finding("too-few-rotations", "/recipe/rotations", list(_rotations(subject)), allowed)
    size = len(recipe.clip_grid or ())
    if not has_clip(subject):
        if recipe.clip_grid != [1.0]:
            allowed = "one ratio, 1: the dialect has no clip to search"
            return finding("clip-grid-size", "/recipe/clip_grid", recipe.clip_grid, allowed)
    elif size < LEAST_RATIOS:
        allowed = f"at least {LEAST_RATIOS} ratios: an optimum inside needs one on either side"
        return finding("clip-grid-size", "/recipe/clip_grid", recipe.clip_grid, allowed)
    if recipe.clip_grid_size != size:
        allowed = f"{size}, the number of clip ratios"
        return finding("clip-grid-size", "/recipe/clip_grid_size", recipe.clip_grid_size, allowed)
    return None


def check_grid(subject: SubjectV2) -> Finding | None:
    """Step 9: the clip ratios fall, each in (0, 1], and every arm was searched over all of them."""
    grid = subject.record.recipe.clip_grid or []
    for index, ratio in enumerate(grid):
        if not 0 < ratio <= 1:
            return finding("clip-ratio", f"/recipe/clip_grid/{index}", ratio, "above 0, at most 1")
    for index, (before, ratio) in enumerate(pairwise(grid), 1):
        if ratio >= before:
            return finding("clip-grid-order", f"/recipe/clip_grid/{index}", ratio, f"less than {before}")
    for index, arm in enumerate(subject.measurements.arms):
        if arm.calibration.clip_ratio != grid:
            pointer = f"/measurements/arms/{index}/calibration/clip_ratio"
            return finding("search-grid", pointer, arm.calibration.clip_ratio, "recipe.clip_grid")
    return None


def check_rotation_ids(subject: SubjectV2) -> Finding | None:
    """Step 9: rotations have ids of their own, known constructions, and one arm and one null check each."""
    ids: list[str] = []
    for index, rotation in enumerate(_rotations(subject)):
        pointer = f"/recipe/rotations/{index}"
        if not rotation.id or rotation.id in ids:
            return finding("rotation-id", f"{pointer}/id", rotation.id, "a name that no other rotation has")
        if rotation.construction not in CONSTRUCTIONS:
            allowed = f"one of {', '.join(CONSTRUCTIONS)}"
            return finding("construction-unknown", f"{pointer}/construction", rotation.construction, allowed)
        ids.append(rotation.id)
    measurements = subject.measurements
    for code, name, found in (
        ("arm-set", "arms", [arm.rotation for arm in measurements.arms]),
        ("null-check-set", "null_checks", [check.rotation for check in measurements.null_checks]),
    ):
        if sorted(found) != sorted(ids):
            allowed = f"one of each of {', '.join(ids)}; found {', '.join(found)}"
            return finding(code, f"/measurements/{name}", found, allowed)
    return None


def check_rotations_differ(subject: SubjectV2) -> Finding | None:
    """Step 9: no two rotations are one up to sign."""
    seen: dict[tuple[str, str], str] = {}
    for index, rotation in enumerate(_rotations(subject)):
        digests = (rotation.key_sha256, rotation.value_sha256)
        if digests in seen:
            pointer = f"/recipe/rotations/{index}/key_sha256"
            allowed = f"digests of its own; {rotation.id} is {seen[digests]} up to sign"
            return finding("rotations-equal", pointer, rotation.key_sha256, allowed)
        seen[digests] = rotation.id
    return None


RULES: tuple[RuleV2, ...] = (check_declared_sizes, check_grid, check_rotation_ids, check_rotations_differ)
