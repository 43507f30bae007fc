"""Roles of what a pin or a record names by its digest."""

from __future__ import annotations

__all__ = ["GATE_ROLES", "ROLES", "ROLES_V2"]

ROLES = ("artifact", "recipe_artifact", "model", "runtime")
"""The objects of a v1 record that carry a digest, in declared order."""

ROLES_V2 = ("producer", "paper", "kernel-source", "kernel", "weights", "file")
"""The roles of a v2 record's artifacts."""

GATE_ROLES = ("record", "producer", "kernel-source", "kernel", "weights", "paper", "file")
"""What else may be pinned: the docs gate holds it; of these, adjudication holds the roles of v2 records.

The list is closed. A misspelt role would otherwise be a pin that no record meets.
"""
