"""The contracts, one package a version, with the same file names in each.

`v1.model` and `v2.model` hold the public pydantic models. Importing this package imports neither: pydantic takes longer
to load than the rest of the adjudicator.
"""

from __future__ import annotations

__all__ = ["KNOWN_VERSIONS", "V1", "V2"]

V1 = "kvint2eval/v1"

V2 = "kvint2eval/v2"

KNOWN_VERSIONS = (V1, V2)
