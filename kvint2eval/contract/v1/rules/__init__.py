"""The rules of contract v1: one function a rule, in the order in which they are asked.

A rule takes a `Subject` and gives the finding that it found, or None. The first finding decides, so the order
of `RULES_V1` is part of the contract. To add a rule, follow docs/contributing.md.
"""

from __future__ import annotations

from kvint2eval.contract.v1.rules import binding, evidence, measurement, provenance, recipe, witness
from kvint2eval.contract.v1.rules.subject import Rule, Subject

__all__ = ["RULES_V1", "Rule", "Subject"]

RULES_V1: tuple[Rule, ...] = (
    *recipe.RULES,
    *provenance.RULES,
    *evidence.RULES,
    *measurement.RULES,
    *witness.RULES,
    *binding.RULES,
)
