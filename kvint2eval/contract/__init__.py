"""The contracts, one module a version.

`v1` and `v2` hold the public pydantic models. Importing this package does not import them: pydantic takes longer to
load than the rest of the adjudicator. Nor does it import the reader of v2, which most records do not need.
"""

from kvint2eval.contract.read import ShapeFault, contract_version, decode_v1, is_plain, read_v1

__all__ = ["KNOWN_VERSIONS", "V1", "V2", "ShapeFault", "contract_version", "decode_v1", "is_plain", "read_v1"]

V1 = "kvint2eval/v1"

V2 = "kvint2eval/v2"

KNOWN_VERSIONS = (V1, V2)
