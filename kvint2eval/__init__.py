"""Adjudicates evaluation records of 2-bit KV-cache schemes.

>>> from pathlib import Path
>>> from kvint2eval import adjudicate
>>> verdict = adjudicate(b"{}")
>>> verdict.outcome, verdict.reason
(<Outcome.UNSUPPORTED: 'unsupported'>, <Reason.UNKNOWN_CONTRACT: 'KVINT2_UNKNOWN_CONTRACT'>)

The names below are stable. They are imported on first use, so that the command starts fast: `Record` alone
brings pydantic with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvint2eval._version import __version__

if TYPE_CHECKING:
    from kvint2eval.adjudicate import adjudicate
    from kvint2eval.canonical import canonical_v1, witness_v1
    from kvint2eval.codes import Outcome, Reason
    from kvint2eval.contract.v1 import Record
    from kvint2eval.errors import InputError, Kvint2evalError, PinsError
    from kvint2eval.pins import Pins, read_pins
    from kvint2eval.verdict import Binding, Finding, Verdict

__all__ = [
    "Binding",
    "Finding",
    "InputError",
    "Kvint2evalError",
    "Outcome",
    "Pins",
    "PinsError",
    "Reason",
    "Record",
    "Verdict",
    "__version__",
    "adjudicate",
    "canonical_v1",
    "read_pins",
    "witness_v1",
]

_HOMES = {
    "Binding": "verdict",
    "Finding": "verdict",
    "InputError": "errors",
    "Kvint2evalError": "errors",
    "Outcome": "codes",
    "Pins": "pins",
    "PinsError": "errors",
    "Reason": "codes",
    "Record": "contract.v1",
    "Verdict": "verdict",
    "adjudicate": "adjudicate",
    "canonical_v1": "canonical",
    "read_pins": "pins",
    "witness_v1": "canonical",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
