"""Steps 2 and 3: the method and the quantization that the contract covers."""

from kvint2eval.contract.v1 import _decoder as layout
from kvint2eval.contract.v1.rules.subject import Rule, Subject, finding
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


def check_method(subject: Subject) -> Finding | None:
    """Step 2: the method is the one that the contract covers."""
    method = subject.record.recipe.method
    if method == METHOD:
        return None
    return finding(subject, "unsupported-method", "/recipe/method", method, METHOD)


def check_quantization(subject: Subject) -> Finding | None:
    """Step 3: the quantization, the objective and the baseline are the ones that the contract covers."""
    recipe = subject.record.recipe
    if recipe == _COVERED:
        return None
    for code, name, allowed in (
        ("recipe-bits", "bits", BITS),
        ("recipe-group-size", "group_size", GROUP_SIZE),
        ("recipe-key-granularity", "key_granularity", GRANULARITY),
        ("recipe-value-granularity", "value_granularity", GRANULARITY),
        ("recipe-objective", "objective", OBJECTIVE),
        ("recipe-baseline", "baseline", BASELINE),
    ):
        value = getattr(recipe, name)
        if value != allowed:
            return finding(subject, code, f"/recipe/{name}", value, str(allowed))
    return None  # pragma: no cover  # the method, which alone is left, was step 2


RULES: tuple[Rule, ...] = (check_method, check_quantization)
