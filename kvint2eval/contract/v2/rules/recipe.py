"""Steps 2 and 3: method, quantization and dialect are ones that the contract knows.

An unknown member (null) passes here: it is judged with the measurements that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
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


METHOD_UNKNOWN = Code(
    "method-unknown",
    Reason.UNSUPPORTED_METHOD,
    "recipe.method is not in the registry.",
    "Name one of the methods that docs/reference/contract-v2.md lists.",
    '"method": "turbo"',
    v2=2,
)


def check_method(subject: SubjectV2) -> Finding | None:
    """Step 2: the method is in the registry."""
    method = subject.record.recipe.method
    if method in METHODS:
        return None
    return finding(METHOD_UNKNOWN, "/recipe/method", method, f"one of {', '.join(METHODS)}")


BITS_NOT_TWO = Code(
    "bits-not-two",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.bits is not 2.",
    "v2 covers INT2 only.",
    '"bits": 4',
    v2=3,
)
GROUP_SIZE_NOT_DIVISOR = Code(
    "group-size-not-divisor",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.group_size does not fill the row, or the quantized tokens, that the dialect groups.",
    "Choose a group size that fills them: a ragged last group is another computation.",
    "groups of 64 in a head of 96",
    v2=3,
)
GRANULARITY_UNKNOWN = Code(
    "granularity-unknown",
    Reason.UNSUPPORTED_QUANTIZATION,
    "The granularity of keys or values is not that of the dialect.",
    "v2 covers groups of channels within a token, and for KIVI's keys groups of tokens of a channel.",
    '"key_granularity": "per-channel"',
    v2=3,
)
OBJECTIVE_UNKNOWN = Code(
    "objective-unknown",
    Reason.UNSUPPORTED_QUANTIZATION,
    "recipe.objective is not post-wo-attention-output-nmse.",
    "Compare arms by the error of the projected attention output.",
    '"objective": "cache-reconstruction-mse"',
    v2=3,
)
RECIPE_VALUE_UNKNOWN = Code(
    "recipe-value-unknown",
    Reason.UNSUPPORTED_QUANTIZATION,
    "Key centring or the windows' type is not one that the contract knows.",
    "Write one of the values that are allowed.",
    '"key_centring": "median"',
    v2=3,
)


def check_quantization(subject: SubjectV2) -> Finding | None:
    """Step 3: INT2 in groups that the dialect has and that are filled, judged by the output error."""
    recipe = subject.record.recipe
    if recipe.bits != BITS:
        return finding(BITS_NOT_TWO, "/recipe/bits", recipe.bits, str(BITS))
    name = None if recipe.dialect is None else recipe.dialect.id
    key_granularity = KEY_GRANULARITIES.get(str(name), GRANULARITY)
    for member, value, allowed in (
        ("key_granularity", recipe.key_granularity, key_granularity),
        ("value_granularity", recipe.value_granularity, GRANULARITY),
    ):
        if value != allowed:
            return finding(GRANULARITY_UNKNOWN, f"/recipe/{member}", value, allowed)
    unfilled = _unfilled(subject, name, key_granularity)
    if unfilled:
        return finding(GROUP_SIZE_NOT_DIVISOR, "/recipe/group_size", recipe.group_size, unfilled)
    if recipe.objective != OBJECTIVE:
        return finding(OBJECTIVE_UNKNOWN, "/recipe/objective", recipe.objective, OBJECTIVE)
    for name, choices in (("key_centring", CENTRINGS), ("window_dtype", tuple(ELEMENT_BITS))):
        value = getattr(recipe, name)
        if value is not None and value not in choices:
            return finding(RECIPE_VALUE_UNKNOWN, f"/recipe/{name}", value, f"one of {', '.join(choices)}")
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


DIALECT_UNKNOWN = Code(
    "dialect-unknown",
    Reason.UNSUPPORTED_QUANTIZATION,
    "The dialect is not in the registry, so its fingerprint is not known.",
    "Use a registered dialect, or register one: docs/contributing.md.",
    '"id": "oscar" where only its variants have fingerprints',
    v2=3,
)
DIALECT_DIFFERS = Code(
    "dialect-differs",
    Reason.UNSUPPORTED_QUANTIZATION,
    "A member of the dialect is not what its name stands for.",
    "Write the numerics that ran, under the name that has them.",
    '"rounding": "half-up" under a dialect that rounds half to even',
    v2=3,
)


def check_dialect(subject: SubjectV2) -> Finding | None:
    """Step 3: the dialect is in the registry, and each of its members is what the registry says."""
    dialect = subject.record.recipe.dialect
    if dialect is None:
        return None
    known = DIALECTS.get(dialect.id)
    if known is None:
        allowed = f"one of {', '.join(DIALECTS)}"
        return finding(DIALECT_UNKNOWN, "/recipe/dialect/id", dialect.id, allowed)
    for name, allowed in known.items():
        value = getattr(dialect, name)
        if value != allowed and name != "fingerprint_sha256":
            return finding(DIALECT_DIFFERS, f"/recipe/dialect/{name}", value, f"{allowed}, as {dialect.id}")
    return None


FINGERPRINT_DIFFERS = Code(
    "fingerprint-differs",
    Reason.FINGERPRINT_MISMATCH,
    "The fingerprint is not the registered one of the dialect.",
    "The quantizer that ran computes something else: fix it, or name what it computes.",
    "codes rounded half up under a dialect that rounds half to even",
    v2=3,
)


def check_fingerprint(subject: SubjectV2) -> Finding | None:
    """Step 3: the quantizer that ran makes of the golden inputs what the dialect makes of them."""
    dialect = subject.record.recipe.dialect
    if dialect is None or dialect.id not in DIALECTS:
        return None
    allowed = DIALECTS[dialect.id]["fingerprint_sha256"]
    if dialect.fingerprint_sha256 in {allowed, EARLIER_FINGERPRINTS.get(dialect.id, allowed)}:
        return None
    pointer = "/recipe/dialect/fingerprint_sha256"
    return finding(FINGERPRINT_DIFFERS, pointer, dialect.fingerprint_sha256, f"{allowed}, as {dialect.id}")


RULES: tuple[RuleV2, ...] = (check_method, check_quantization, check_dialect, check_fingerprint)
