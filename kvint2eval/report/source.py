"""Origin of a record."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Source"]


class Source(NamedTuple):
    """Where a record came from."""

    path: str
    """The file, or `-` for standard input."""
    line: int | None = None
    """Line of the file for a record of JSON Lines, from 1."""
