"""Adjudication of evaluation records of 2-bit KV-cache schemes.

>>> from pathlib import Path
>>> from kvint2eval import adjudicate
>>> verdict = adjudicate(b"{}")
>>> verdict.outcome, verdict.reason
(<Outcome.UNSUPPORTED: 'unsupported'>, <Reason.UNKNOWN_CONTRACT: 'KVINT2_UNKNOWN_CONTRACT'>)

The names below are stable. They are imported on first use, so that the command starts fast: `Record` alone
brings pydantic with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvint2eval._version import __version__

if TYPE_CHECKING:
    from kvint2eval.adjudication import adjudicate, read_record
    from kvint2eval.codes import Outcome, Reason
    from kvint2eval.contract.v1.canonical import canonical_v1, witness_v1
    from kvint2eval.contract.v1.model import Record
    from kvint2eval.contract.v2.canonical import witness_v2
    from kvint2eval.errors import InputError, Kvint2evalError, PinsError, PolicyError
    from kvint2eval.files.inputs import read_envelope, read_record_file
    from kvint2eval.pins.pins import Pins, read_pins
    from kvint2eval.pins.root import Root
    from kvint2eval.signing.policy import Policy, read_policy
    from kvint2eval.strict_json.rfc8785 import canonical_json
    from kvint2eval.verdict import Binding, ClaimVerdict, Finding, Verdict

__all__ = [
    "Binding",
    "ClaimVerdict",
    "Finding",
    "InputError",
    "Kvint2evalError",
    "Outcome",
    "Pins",
    "PinsError",
    "Policy",
    "PolicyError",
    "Reason",
    "Record",
    "Root",
    "Verdict",
    "__version__",
    "adjudicate",
    "canonical_json",
    "canonical_v1",
    "read_envelope",
    "read_pins",
    "read_policy",
    "read_record",
    "read_record_file",
    "witness_v1",
    "witness_v2",
]

_HOMES = {
    "Binding": "verdict",
    "ClaimVerdict": "verdict",
    "Finding": "verdict",
    "InputError": "errors",
    "Kvint2evalError": "errors",
    "Outcome": "codes",
    "Pins": "pins.pins",
    "PinsError": "errors",
    "Policy": "signing.policy",
    "PolicyError": "errors",
    "Reason": "codes",
    "Record": "contract.v1.model",
    "Root": "pins.root",
    "Verdict": "verdict",
    "adjudicate": "adjudication",
    "canonical_json": "strict_json.rfc8785",
    "canonical_v1": "contract.v1.canonical",
    "read_envelope": "files.inputs",
    "read_pins": "pins.pins",
    "read_policy": "signing.policy",
    "read_record": "adjudication",
    "read_record_file": "files.inputs",
    "witness_v1": "contract.v1.canonical",
    "witness_v2": "contract.v2.canonical",
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
