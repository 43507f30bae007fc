"""`python -m kvint2eval`."""

from __future__ import annotations

from kvint2eval.cli import entry

entry()
