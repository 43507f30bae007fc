"""Progress of long work, reported to a callback."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "no_progress"]


class Progress(Protocol):
    """A callback that is given the steps done."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Take the number of steps done, of all steps, and the name of the next one."""
        ...


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore progress."""
