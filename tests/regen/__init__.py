"""Regenerates what is generated: `python -m tests.regen`, or compares it with `--check`."""
