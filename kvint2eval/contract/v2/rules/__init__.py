"""The rules of contract v2: one function a rule, in the order in which they are asked.

A rule takes a `SubjectV2` and gives the finding that it found, or None. The first finding decides, so the order
of `RULES_V2` is part of the contract. A rule may rely on what the rules before it have found to hold. The three
delegating rules stand where the contract's steps put them; the last rule delegates a sound record that was not
observed on CUDA.
"""

from __future__ import annotations

from kvint2eval.contract.v2.rules import (
    claims,
    evidence,
    pairing,
    provenance,
    recipe,
    search,
    soundness,
    storage,
    trials,
    witness,
)
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2

__all__ = ["RULES_V2", "RuleV2", "SubjectV2"]

RULES_V2: tuple[RuleV2, ...] = (
    *recipe.RULES,
    *provenance.RULES,
    *evidence.RULES,
    *search.RULES,
    *pairing.RULES,
    *trials.RULES,
    *soundness.RULES,
    *storage.RULES,
    *claims.RULES,
    *witness.RULES,
    *evidence.RULES_AFTER_ALL,
)
