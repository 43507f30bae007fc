"""The published JSON Schema of contract v1, from the pydantic models."""

import json

from pydantic.json_schema import GenerateJsonSchema

from kvint2eval.contract.v1 import Record

_COMMENT = (
    "The layout alone. JSON Schema takes 2.0 for an integer and cannot see duplicate members, negative zeros or "
    "literals of more than 20 digits; docs/contract-v1.md says what is refused beyond this schema."
)


def render() -> bytes:
    """Text of `v1.schema.json`."""
    schema = Record.model_json_schema()
    head = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": "urn:kvint2eval:contract:v1",
        "$comment": _COMMENT,
    }
    return (json.dumps(head | schema, indent=2) + "\n").encode()
