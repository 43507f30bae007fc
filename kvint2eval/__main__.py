"""`python -m kvint2eval`."""

from kvint2eval.cli import entry

entry()
