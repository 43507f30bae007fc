"""The contracts, one module a version.

`v1` holds the public pydantic models. Importing this package does not import them: pydantic takes longer to
load than the rest of the adjudicator.
"""

from kvint2eval.contract.read import ShapeFault, contract_version, decode_v1, is_plain, read_v1

__all__ = ["KNOWN_VERSIONS", "V1", "ShapeFault", "contract_version", "decode_v1", "is_plain", "read_v1"]

V1 = "kvint2eval/v1"

KNOWN_VERSIONS = (V1,)
