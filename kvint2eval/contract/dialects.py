"""What the contract knows by name: methods, constructions of rotations, and dialects with their fingerprints.

A dialect is a complete computation. Its *fingerprint* is the SHA-256 of what it makes of the golden inputs
(docs/contract-v2.md, "Fingerprint"); a producer computes it with the quantizer that it then measures with. A
dialect enters the table with a second implementation in the tests that gives the same fingerprint.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CONSTRUCTIONS", "DIALECTS", "METHODS"]

CONSTRUCTIONS = ("identity", "hadamard", "signed-hadamard", "quarot", "oscar", "optr")
"""How a rotation can have been made."""

METHODS: dict[str, tuple[str, ...]] = {
    "identity": ("identity",),
    "hadamard": ("hadamard", "signed-hadamard"),
    "quarot": ("quarot",),
    "oscar": ("oscar",),
    "optr": ("optr",),
    # The one method of v1: a choice among signed Hadamard rotations by the error of the projected output.
    "optr-output-aware-int2": ("signed-hadamard",),
}
"""Methods, each with the constructions that its selected rotation can have."""

DIALECTS: dict[str, dict[str, Any]] = {
    "symmetric-absmax-clip": {
        "clip_kind": "range-multiplier",
        "clip_scope": "group",
        "zero_point": "none",
        "rounding": "half-even",
        "range_floor": 1e-12,
        "metadata_dtype": "float32",
        "metadata_scalars": 1,
        "dequantization_dtype": "float32",
        "packing": "consecutive",
        "fingerprint_sha256": "061125289ad9073dd06dc8ca6713a24199125c121d5b56a130c69ce57e9edb72",
    },
}
"""Dialects: the value that each member of `recipe.dialect` must have."""
