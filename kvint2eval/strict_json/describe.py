"""Short descriptions of parsed values."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["describe"]

_SHOWN_CHARACTERS = 80  # a digest and its quotes fit


def describe(value: Any) -> str:
    """A parsed value in a few words, for the `found` of a finding; plain ASCII."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{json.dumps(value[:_SHOWN_CHARACTERS])}... ({len(value)} characters)"
    return json.dumps(value)
