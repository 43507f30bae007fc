"""Steps 2 and 3: the method and the quantization that the contract covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v1 import _decoder as layout
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["METHOD", "RULES"]

METHOD = "optr-output-aware-int2"
BASELINE = "identity-rotation-int2"
BITS = 2
GROUP_SIZE = 128
GRANULARITY = "per-token-group"
OBJECTIVE = "post-wo-attention-output-nmse"
_COVERED = layout.Recipe(
    method=METHOD,
    baseline=BASELINE,
    bits=BITS,
    group_size=GROUP_SIZE,
    key_granularity=GRANULARITY,
    value_granularity=GRANULARITY,
    objective=OBJECTIVE,
)


UNSUPPORTED_METHOD = Code(
    "unsupported-method",
    Reason.UNSUPPORTED_METHOD,
    "recipe.method is not optr-output-aware-int2.",
    "v1 covers this one method.",
    '"method": "unknown-rotation"',
    v1=2,
)


def check_method(subject: Subject) -> Finding | None:
    """Step 2: the method is the one that the contract covers."""
    method = subject.record.recipe.method
    if method == METHOD:
        return None
    return finding(subject, UNSUPPORTED_METHOD, "/recipe/method", method, METHOD)


RECIPE_BITS = Code(
    "recipe-bits",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.bits is not 2.",
    "v1 covers INT2 only.",
    '"bits": 4',
    v1=3,
)
RECIPE_GROUP_SIZE = Code(
    "recipe-group-size",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.group_size is not 128.",
    "v1 covers groups of 128 values only.",
    '"group_size": 64',
    v1=3,
)
RECIPE_KEY_GRANULARITY = Code(
    "recipe-key-granularity",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.key_granularity is not per-token-group.",
    "v1 covers per-token groups only.",
    '"key_granularity": "per-channel"',
    v1=3,
)
RECIPE_VALUE_GRANULARITY = Code(
    "recipe-value-granularity",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.value_granularity is not per-token-group.",
    "v1 covers per-token groups only.",
    '"value_granularity": "per-channel"',
    v1=3,
)
RECIPE_OBJECTIVE = Code(
    "recipe-objective",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.objective is not post-wo-attention-output-nmse.",
    "v1 covers the error of the projected attention output only.",
    '"objective": "cache-reconstruction-mse"',
    v1=3,
)
RECIPE_BASELINE = Code(
    "recipe-baseline",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.baseline is not identity-rotation-int2.",
    "Compare with the same quantizer without a rotation.",
    '"baseline": "fp16"',
    v1=3,
)


def check_quantization(subject: Subject) -> Finding | None:
    """Step 3: the quantization, the objective and the baseline are the ones that the contract covers."""
    recipe = subject.record.recipe
    if recipe == _COVERED:
        return None
    for code, name, allowed in (
        (RECIPE_BITS, "bits", BITS),
        (RECIPE_GROUP_SIZE, "group_size", GROUP_SIZE),
        (RECIPE_KEY_GRANULARITY, "key_granularity", GRANULARITY),
        (RECIPE_VALUE_GRANULARITY, "value_granularity", GRANULARITY),
        (RECIPE_OBJECTIVE, "objective", OBJECTIVE),
        (RECIPE_BASELINE, "baseline", BASELINE),
    ):
        value = getattr(recipe, name)
        if value != allowed:
            return finding(subject, code, f"/recipe/{name}", value, str(allowed))
    return None  # pragma: no cover  # the method, which alone is left, was step 2


RULES: tuple[Rule, ...] = (check_method, check_quantization)
