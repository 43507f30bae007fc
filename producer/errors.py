"""Errors of the producer.

The tree::

    ProducerError
    ├── SpecError               an argument or a specification is outside what is allowed
    ├── NonFiniteError          an input array holds NaN or infinity
    ├── DegenerateGroupError    a group has no scale or zero point that its dialect can store
    ├── FileFormatError         a rotation or trace file is not what it has to be
    ├── ExtraMissingError       a package of an optional extra is not installed
    ├── MemoryLimitError        a size needs more memory than there is
    ├── SearchError             a search cannot give what its protocol promises
    ├── RecordError             a record cannot be read, or names no protocol that is known here
    └── BackendUnavailableError the work is valid, but this machine cannot run it (CUDA is missing)

This module imports nothing of the project, so that every other module may import it.
"""

from __future__ import annotations

__all__ = [
    "BackendUnavailableError",
    "DegenerateGroupError",
    "ExtraMissingError",
    "FileFormatError",
    "MemoryLimitError",
    "NonFiniteError",
    "ProducerError",
    "RecordError",
    "SearchError",
    "SpecError",
]


class ProducerError(Exception):
    """Base of every error that the producer raises on purpose."""


class SpecError(ProducerError, ValueError):
    """An argument or specification is outside what is allowed; raised before any work starts."""


class NonFiniteError(ProducerError, ValueError):
    """An input array holds NaN or infinity; the message carries its first index in C order."""


class DegenerateGroupError(ProducerError, ValueError):
    """A group has no scale or zero point that its dialect can store; the message names the first one.

    The public implementation of the dialect stores NaN, infinity or a zero scale there.
    """


class FileFormatError(ProducerError):
    """A rotation or trace file is not what it has to be; the message names the file and the place in it."""


class ExtraMissingError(ProducerError):
    """A package of an optional extra is not installed; the message says how to install it."""


class MemoryLimitError(ProducerError):
    """A run needs more bytes than may be used.

    Attributes
    ----------
    needed_bytes, limit_bytes : int
        What the run would hold at its peak, and what it may hold.
    """

    def __init__(self, message: str, *, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.limit_bytes = limit_bytes


class SearchError(ProducerError):
    """A search cannot give what its protocol promises."""


class RecordError(ProducerError):
    """A record cannot be read, or names no protocol that is known here."""


class BackendUnavailableError(ProducerError):
    """The work is valid, but needs a backend that this machine does not have."""
