"""Registry of contract v2: methods, constructions of rotations, and dialects with their fingerprints.

A dialect is a complete computation. Its *fingerprint* is the SHA-256 of what it makes of the golden inputs
(docs/reference/contract-v2.md, "Fingerprint"); a producer computes it with its quantizer. A dialect enters the table
with a second implementation in the tests that gives the same fingerprint.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CONSTRUCTIONS",
    "DIALECTS",
    "EARLIER_FINGERPRINTS",
    "KEY_GRANULARITIES",
    "METHODS",
    "ONE_GROUP_A_ROW",
]

CONSTRUCTIONS = ("identity", "hadamard", "signed-hadamard", "quarot", "oscar", "optr", "balanced", "file")
"""How a rotation can have been made; a balanced transform has an inverse and need not be orthogonal.

`file` is one that was read and that nothing in its file lets a reader build again: its digests alone tell it.
"""

METHODS: dict[str, tuple[str, ...]] = {
    "identity": ("identity",),
    "hadamard": ("hadamard", "signed-hadamard"),
    "quarot": ("quarot",),
    "oscar": ("oscar",),
    "optr": ("optr",),
    "balanced": ("balanced",),
    "file": ("file",),
    # The one method of v1: a choice among signed Hadamard rotations by the error of the projected output.
    "optr-output-aware-int2": ("signed-hadamard",),
}
"""Methods, each with the constructions that its selected rotation can have."""


def _dialect(
    clip: tuple[str, str], zero_point: str, rounding: str, fingerprint: str, **others: Any
) -> dict[str, Any]:
    """Return an entry of the table; `clip` is kind and scope."""
    return {
        "clip_kind": clip[0],
        "clip_scope": clip[1],
        "zero_point": zero_point,
        "rounding": rounding,
        "range_floor": 0.0,
        "metadata_dtype": "float32",
        "metadata_scalars": 2,
        "dequantization_dtype": "float32",
        "packing": "consecutive",
        "fingerprint_sha256": fingerprint,
    } | others


_NONE = ("none", "none")
_RANGE, _RANGE_OF_ROW = ("range-multiplier", "group"), ("range-multiplier", "row")
_SORTED, _SEARCHED = ("order-statistic", "row"), ("binary-search", "row")
_SHRINK = ("midpoint-shrink", "group")
_OSCAR: dict[str, Any] = {"range_floor": 1e-8, "packing": "quartered"}

DIALECTS: dict[str, dict[str, Any]] = {
    "symmetric-absmax-clip": _dialect(
        _RANGE,
        "none",
        "half-even",
        "061125289ad9073dd06dc8ca6713a24199125c121d5b56a130c69ce57e9edb72",
        range_floor=1e-12,
        metadata_scalars=1,
    ),
    "oscar-prefill": _dialect(
        _SORTED,
        "float",
        "half-up",
        "5329c74c3547f18d03cb0995a65acf972e98220b22ef7db9dc6ab739aef6eff0",
        **_OSCAR,
    ),
    "oscar-prefill-bfloat16": _dialect(
        _SORTED,
        "float",
        "half-up",
        "c4ee0ae0e9231f340d00f1c79250266432b9a5cba3212ec0932144aadb2421ce",
        metadata_dtype="bfloat16",
        **_OSCAR,
    ),
    "oscar-flush": _dialect(
        _SEARCHED,
        "float",
        "half-up",
        "ad48e3aee1d9ee596d8ec81b4ed4c468d5a226b0325cecb35446029b1d252941",
        **_OSCAR,
    ),
    "oscar-uniform-lloyd": _dialect(
        _SORTED,
        "float",
        "thresholds",
        "4e2db0d73c5a7eb50eb89b4b2103a83d32539136d7089226f18be9d0c00a1d0d",
        **_OSCAR,
    ),
    "lloyd-max": _dialect(
        _NONE,
        "mean",
        "thresholds",
        "9837c424fd2e0318b38c3f21564e3c72b6dace3c8048c11a1813754f91929417",
    ),
    "quarot-head-wise": _dialect(
        _RANGE_OF_ROW,
        "integer",
        "half-even",
        "8e3c4fcaa38794736247f302b714b5a1b54d341661de52d48f9c874687d3580c",
    ),
    "quarot-group": _dialect(
        _RANGE,
        "integer",
        "half-even",
        "4d14a5c170b0296979e07ec1af0e0e29c43e7fe914349bc2e11a30788d3de000",
    ),
    "rotatekv": _dialect(
        _RANGE,
        "integer",
        "half-even",
        "fdf231891678555fca49a7bdb82f9d60cd80b192e90168c10d499613af2c6057",
    ),
    "kivi": _dialect(
        _NONE,
        "minimum",
        "half-even",
        "33b51f9049833c419b2cb4d98f49ca115d569b3fac76ee73c18294f55f1715b6",
        metadata_dtype="float16",
        packing="int32",
    ),
    "kivi-float32": _dialect(
        _NONE,
        "minimum",
        "half-even",
        "0d4f44b4e25183f037b2b6fe754c0262790b36190f01b2ec6c092b3e5d7f332d",
        metadata_dtype="float16",
        packing="int32",
    ),
    "affine-midpoint": _dialect(
        _SHRINK,
        "float",
        "half-up",
        "ef4b6e3ac9e22158335e415e4cbf77c94d684b00d45e427705aa02401040fb11",
        range_floor=1e-8,
    ),
    "oscar-transformers": _dialect(
        _SHRINK,
        "integer",
        "half-even",
        "5c92ad4afc4eadd36a60ac37f016b73639a625439d706b52fdc1b199d84de75f",
        range_floor=1e-8,
        metadata_dtype="float16",
    ),
}
"""Dialects: the value that each member of `recipe.dialect` must have."""

# The name under which QuaRot's head-wise setting was published first.
DIALECTS["quarot-token"] = DIALECTS["quarot-head-wise"]

EARLIER_FINGERPRINTS: dict[str, str] = {"kivi": DIALECTS["kivi-float32"]["fingerprint_sha256"]}
"""What a name stood for in records before it was given to another computation: such records keep their verdict."""

ONE_GROUP_A_ROW = frozenset({"oscar-uniform-lloyd", "quarot-head-wise", "quarot-token"})
"""Dialects whose group is the whole row: the group size is the head dimension."""

KEY_GRANULARITIES = {"kivi": "per-channel-group", "kivi-float32": "per-channel-group"}
"""Granularity of keys by dialect where it is not `per-token-group`: tokens of one channel share a scale."""
