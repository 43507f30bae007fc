"""Contract v1: the first published layout, and what judges it."""
