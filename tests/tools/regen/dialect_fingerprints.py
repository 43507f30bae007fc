"""The fingerprints of all dialects and pairs, as the tests and the contract's table pin them."""

import json

from producer.quantize import DIALECTS, PAIRS, get_pair
from producer.quantize.fingerprint import fingerprint


def render() -> bytes:
    """JSON: name of the dialect → fingerprint, in the registry's order, then the pairs."""
    found = {name: fingerprint(dialect) for name, dialect in DIALECTS.items()}
    found |= {name: fingerprint(*get_pair(name)) for name in PAIRS}
    return (json.dumps(found, indent=2) + "\n").encode()
