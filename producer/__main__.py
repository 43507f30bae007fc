"""`python -m producer`."""

from __future__ import annotations

from producer.cli import entry

entry()
