"""Adjudicates evaluation records of 2-bit KV-cache schemes."""

from kvint2eval._version import __version__

__all__ = ["__version__"]
