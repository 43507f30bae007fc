"""Regenerates what is generated: `python -m tests.tools.regen`, or compares it with `--check`."""
