"""The fingerprints of all dialects, as the tests and the contract's table pin them."""

import json

from producer.fingerprint import fingerprint
from producer.quantize import DIALECTS


def render() -> bytes:
    """JSON: name of the dialect → fingerprint, in the registry's order."""
    return (
        json.dumps({name: fingerprint(dialect) for name, dialect in DIALECTS.items()}, indent=2) + "\n"
    ).encode()
