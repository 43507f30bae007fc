"""Outcomes, reasons and findings of verdicts.

A verdict has one outcome and one *reason* (`KVINT2_…`, the contract's own code). Below the reason stands at
most one *finding*, which says which check decided, with found, allowed and where. A published code never
changes its spelling or its meaning and is never removed.

The code of a finding is declared beside the rule that gives it. `FINDINGS` collects the codes of both contracts when it
is asked for, and imports every rule for that; judging a record does not need it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from kvint2eval.codes.kinds import Code, Outcome, Reason, ReasonCode
from kvint2eval.codes.reasons import REASONS

if TYPE_CHECKING:
    FINDINGS: dict[str, Code]
    """All codes of findings, by name: of the bytes, of v1, of v2, of pins and of policies."""

__all__ = ["FINDINGS", "REASONS", "Code", "Outcome", "Reason", "ReasonCode"]

_HOMES = (
    "strict_json.parse",
    "adjudication",
    "contract.shape",
    "contract.shared",
    "contract.v1.rules",
    "contract.v2.rules",
    "contract.v2.bind",
    "pins.pins",
    "signing.policy",
    "signing.envelope",
    "signing.trust",
)
"""Where codes are declared: modules, and packages whose modules declare them."""


def __getattr__(name: str) -> Any:
    if name != "FINDINGS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _collected()


@cache
def _collected() -> dict[str, Code]:
    found: dict[str, Code] = {}
    for home in _HOMES:
        module = import_module(f"kvint2eval.{home}")
        parts = [module]
        if hasattr(module, "__path__"):
            names = [one.name for one in iter_modules(module.__path__)]
            parts += [import_module(f"{module.__name__}.{name}") for name in names]
        for part in parts:
            for value in vars(part).values():
                if isinstance(value, Code) and found.setdefault(value, value) is not value:
                    raise AssertionError(f"two codes are named {value}")
    in_order = list(Reason)
    return dict(
        sorted(found.items(), key=lambda item: (in_order.index(item[1].reason), _first_step(item[1])))
    )


def _first_step(code: Code) -> int:
    return min(code.steps.values(), default=0)
