"""Steps 2 and 3: method, quantization and dialect are ones that the contract knows.

An unknown member (null) passes here: it is judged with the measurements that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.contract.v2.registry import (
    DIALECTS,
    EARLIER_FINGERPRINTS,
    KEY_GRANULARITIES,
    METHODS,
    ONE_GROUP_A_ROW,
)
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["ELEMENT_BITS", "RULES", "has_clip"]

BITS = 2
OBJECTIVE = "post-wo-attention-output-nmse"
GRANULARITY = "per-token-group"
CENTRINGS = ("none", "channel-mean")

ELEMENT_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
"""Bits of one value of a stored type."""


def has_clip(subject: SubjectV2) -> bool:
    """Whether the dialect's clip ratio means anything; one that is unknown or not registered counts as if it did."""
    dialect = subject.record.recipe.dialect
    return dialect is None or DIALECTS.get(dialect.id, {}).get("clip_kind") != "none"


def check_method(subject: SubjectV2) -> Finding | None:
    """Step 2: the method is in the registry."""
    method = subject.record.recipe.method
    if method in METHODS:
        return None
    return finding("method-unknown", "/recipe/method", method, f"one of {', '.join(METHODS)}")


def check_quantization(subject: SubjectV2) -> Finding | None:
    """Step 3: INT2 in groups that the dialect has and that are filled, judged by the output error."""
    recipe = subject.record.recipe
    if recipe.bits != BITS:
        return finding("bits-not-two", "/recipe/bits", recipe.bits, str(BITS))
    name = None if recipe.dialect is None else recipe.dialect.id
    key_granularity = KEY_GRANULARITIES.get(str(name), GRANULARITY)
    for member, value, allowed in (
        ("key_granularity", recipe.key_granularity, key_granularity),
        ("value_granularity", recipe.value_granularity, GRANULARITY),
    ):
        if value != allowed:
            return finding("granularity-unknown", f"/recipe/{member}", value, allowed)
    unfilled = _unfilled(subject, name, key_granularity)
    if unfilled:
        return finding("group-size-not-divisor", "/recipe/group_size", recipe.group_size, unfilled)
    if recipe.objective != OBJECTIVE:
        return finding("objective-unknown", "/recipe/objective", recipe.objective, OBJECTIVE)
    for name, choices in (("key_centring", CENTRINGS), ("window_dtype", tuple(ELEMENT_BITS))):
        value = getattr(recipe, name)
        if value is not None and value not in choices:
            return finding("recipe-value-unknown", f"/recipe/{name}", value, f"one of {', '.join(choices)}")
    return None


def _unfilled(subject: SubjectV2, name: str | None, key_granularity: str) -> str:
    """What the group size must be, or nothing where it fills its rows and columns."""
    recipe, workload = subject.record.recipe, subject.record.workload
    size, dimension = recipe.group_size, workload.head_dimension
    if size < 1 or dimension % size:
        return f"a divisor of the head dimension {dimension}"
    if name in ONE_GROUP_A_ROW and size != dimension:
        return f"{dimension}, the head dimension: {name} has one group a row"
    quantized = workload.tokens - (recipe.sink_tokens or 0) - (recipe.recent_tokens or 0)
    if key_granularity != GRANULARITY and quantized % size:
        return f"a divisor of the {quantized} quantized tokens: a group is so many tokens of one channel"
    return ""


def check_dialect(subject: SubjectV2) -> Finding | None:
    """Step 3: the dialect is in the registry, and each of its members is what the registry says."""
    dialect = subject.record.recipe.dialect
    if dialect is None:
        return None
    known = DIALECTS.get(dialect.id)
    if known is None:
        allowed = f"one of {', '.join(DIALECTS)}"
        return finding("dialect-unknown", "/recipe/dialect/id", dialect.id, allowed)
    for name, allowed in known.items():
        value = getattr(dialect, name)
        if value != allowed and name != "fingerprint_sha256":
            return finding("dialect-differs", f"/recipe/dialect/{name}", value, f"{allowed}, as {dialect.id}")
    return None


def check_fingerprint(subject: SubjectV2) -> Finding | None:
    """Step 3: the quantizer that ran makes of the golden inputs what the dialect makes of them."""
    dialect = subject.record.recipe.dialect
    if dialect is None or dialect.id not in DIALECTS:
        return None
    allowed = DIALECTS[dialect.id]["fingerprint_sha256"]
    if dialect.fingerprint_sha256 in {allowed, EARLIER_FINGERPRINTS.get(dialect.id, allowed)}:
        return None
    pointer = "/recipe/dialect/fingerprint_sha256"
    return finding("fingerprint-differs", pointer, dialect.fingerprint_sha256, f"{allowed}, as {dialect.id}")


RULES: tuple[RuleV2, ...] = (check_method, check_quantization, check_dialect, check_fingerprint)
