"""Step 14: bytes and bits per element follow from codes, metadata, windows and length."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.recompute import is_close
from kvint2eval.contract.v2.rules.recipe import ELEMENT_BITS
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.contract.v2 import _decoder as layout
    from kvint2eval.verdict import Finding

__all__ = ["RULES", "expected_bytes"]


def expected_bytes(subject: SubjectV2) -> dict[str, int]:
    """Bytes that the recipe asks for on the workload, by the member of `storage` that states them.

    Keys and values alike: the tokens outside the windows have `bits` a value and, a group, the dialect's scalars;
    the tokens inside are stored as they are.
    """
    recipe, workload = subject.record.recipe, subject.record.workload
    # Step 8 found the recipe complete.
    dialect, window_dtype = cast("layout.Dialect", recipe.dialect), cast("str", recipe.window_dtype)
    kept = min(workload.tokens, (recipe.sink_tokens or 0) + (recipe.recent_tokens or 0))
    quantized = workload.tokens - kept
    rows = 2 * workload.kv_heads
    groups = workload.head_dimension // recipe.group_size
    metadata_bits = dialect.metadata_scalars * ELEMENT_BITS[dialect.metadata_dtype]
    return {
        "codes_bytes": quantized * rows * -(-workload.head_dimension * recipe.bits // 8),
        "metadata_bytes": quantized * rows * groups * metadata_bits // 8,
        "window_bytes": kept * rows * workload.head_dimension * ELEMENT_BITS[window_dtype] // 8,
    }


def bits_of(subject: SubjectV2) -> float:
    """Bits an element of keys and values that the recipe asks for, all stored bytes counted."""
    workload = subject.record.workload
    elements = 2 * workload.tokens * workload.kv_heads * workload.head_dimension
    return 8 * sum(expected_bytes(subject).values()) / elements


STORED_BYTES = Code(
    "stored-bytes",
    Reason.STORAGE_MISMATCH,
    "Stored bytes are not what length, heads, group size, metadata type and windows ask for.",
    "Count the bytes of the arrays as stored.",
    "metadata of 16-bit scalars where the dialect stores 32",
    v2=14,
)


def check_stored(subject: SubjectV2) -> Finding | None:
    """Step 14: the stored bytes are those that the recipe asks for."""
    storage = subject.measurements.storage
    for name, allowed in expected_bytes(subject).items():
        value = getattr(storage, name)
        if value != allowed:
            words = f"{allowed}, from length, heads, group size, metadata type and windows"
            return finding(STORED_BYTES, f"/measurements/storage/{name}", value, words)
    return None


BITS_PER_ELEMENT = Code(
    "bits-per-element",
    Reason.STORAGE_MISMATCH,
    "Bits per element are not the stored bits over the elements of keys and values.",
    "Divide all stored bits, windows included.",
    "2.25 for a cache with windows",
    v2=14,
)


def check_bits_per_element(subject: SubjectV2) -> Finding | None:
    """Step 14: bits per element are the stored bits over the elements of keys and values."""
    storage, workload = subject.measurements.storage, subject.record.workload
    stored = 8 * (storage.codes_bytes + storage.metadata_bytes + storage.window_bytes)
    computed = stored / (2 * workload.tokens * workload.kv_heads * workload.head_dimension)
    if is_close(storage.bits_per_element, computed):
        return None
    pointer = "/measurements/storage/bits_per_element"
    return finding(
        BITS_PER_ELEMENT, pointer, storage.bits_per_element, f"{computed!r}, from the stored bytes"
    )


METADATA_HEAVY = Code(
    "metadata-heavy",
    Reason.UNSUPPORTED_QUANTIZATION,
    "Codes and metadata of a quantized element take more than 4.5 bits: the groups are too small to call this 2 bits.",
    "Choose larger groups, or metadata of fewer bits.",
    "a float32 scale for every value",
    v2=14,
)
LARGEST_QUANTIZED_BITS = 4.5
"""Largest number of bits of a quantized element, codes and metadata together."""


def check_metadata(subject: SubjectV2) -> Finding | None:
    """Step 14: codes and metadata of the quantized tokens deserve the name of two bits."""
    recipe, workload = subject.record.recipe, subject.record.workload
    stored = expected_bytes(subject)
    quantized = max(0, workload.tokens - (recipe.sink_tokens or 0) - (recipe.recent_tokens or 0))
    bits = stored["codes_bytes"] + stored["metadata_bytes"]
    if bits * 8 > LARGEST_QUANTIZED_BITS * 2 * quantized * workload.kv_heads * workload.head_dimension:
        allowed = f"groups whose codes and metadata take at most {LARGEST_QUANTIZED_BITS} bits an element"
        return finding(METADATA_HEAVY, "/recipe/group_size", recipe.group_size, allowed)
    return None


RULES: tuple[RuleV2, ...] = (check_stored, check_bits_per_element, check_metadata)
