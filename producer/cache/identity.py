"""Identity of a cache: a digest of all that decides how a token is stored and what reads it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from producer.quantize import get_dialect
from producer.quantize.fingerprint import fingerprint
from producer.scheme.fitted_layer import digest_of_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from producer.scheme.fitted_layer import FittedLayer

__all__ = ["FORMAT", "identity_digest"]

#: Of saved caches; another number for another layout.
FORMAT = "kvint2eval-cache-v1"


def identity_digest(facts: dict[str, Any], fitted: Mapping[int, FittedLayer]) -> str:
    """Return the SHA-256 of a format, the facts of a cache, its dialects' fingerprints and its fitted layers."""
    scheme = fitted[0].scheme
    dialects = sorted({scheme.key_dialect, scheme.value_dialect})
    content = {
        "format": FORMAT,
        "facts": facts,
        "dialects": {name: fingerprint(get_dialect(name)) for name in dialects},
        "layers": digest_of_layers(fitted),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
