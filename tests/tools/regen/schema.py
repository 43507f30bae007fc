"""The published JSON Schemas of the contracts, from the pydantic models."""

import json

from pydantic.json_schema import GenerateJsonSchema

from kvint2eval.contract.v1 import model as v1
from kvint2eval.contract.v2 import model as v2

_COMMENT = (
    "The layout alone. JSON Schema takes 2.0 for an integer and cannot see duplicate members, negative zeros or "
    "literals of more than 20 digits; docs/contract-{version}.md says what is refused beyond this schema."
)


def render(version: str) -> bytes:
    """Text of `v1.schema.json` or `v2.schema.json`."""
    schema = {"v1": v1, "v2": v2}[version].Record.model_json_schema()
    head = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"urn:kvint2eval:contract:{version}",
        "$comment": _COMMENT.format(version=version),
    }
    return (json.dumps(head | schema, indent=2) + "\n").encode()
