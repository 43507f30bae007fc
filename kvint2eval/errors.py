"""The errors of `kvint2eval`. This module imports nothing of the package.

```text
Kvint2evalError            everything below
├── StrictJsonError        bytes that are no acceptable JSON text; becomes a finding of the verdict
├── CanonicalFormError     a value that has no RFC 8785 form
├── InputError             an input that cannot be read: absent, not a regular file, a directory loop
├── PinsError              a pins file that cannot be used; adjudication does not start
├── PolicyError            a policy file that cannot be used; adjudication does not start
└── SigningError           a key or an envelope that cannot be made, read or used
```

A record that was read always gets a verdict, so no function of the adjudicator raises for what a record
holds: `StrictJsonError` never leaves `kvint2eval.adjudication`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvint2eval.codes.kinds import Code

__all__ = [
    "CanonicalFormError",
    "InputError",
    "Kvint2evalError",
    "PinsError",
    "PolicyError",
    "SigningError",
    "StrictJsonError",
]


class Kvint2evalError(Exception):
    """Base of all errors that this package raises on purpose."""


class StrictJsonError(Kvint2evalError):
    """Bytes that are no acceptable JSON text.

    Parameters
    ----------
    code
        Code of the finding, one of `kvint2eval.codes.FINDINGS`.
    found, allowed
        What stands there, and what may stand there.
    line, column
        Where, from 1, the column in code points; None where the fault has no place.
    """

    def __init__(
        self, code: Code, found: str, allowed: str, line: int | None = None, column: int | None = None
    ) -> None:
        super().__init__(f"{code}: found {found}, allowed: {allowed}")
        self.code = code
        self.found = found
        self.allowed = allowed
        self.line = line
        self.column = column


class InputError(Kvint2evalError):
    """An input that cannot be read."""


class PinsError(Kvint2evalError):
    """A pins file that cannot be used."""


class CanonicalFormError(Kvint2evalError):
    """A value that has no RFC 8785 form."""


class PolicyError(Kvint2evalError):
    """A policy file that cannot be used."""


class SigningError(Kvint2evalError):
    """A key or an envelope that cannot be made, read or used."""
