"""The docs gate: digests and figures that pages publish, bound to files and records.

`tables` reads what a pins file binds, `page` a Markdown page, `figures` what a figure must read, `check` holds
them against each other and never writes, and `update` writes. `codes` lists what can be found.
"""

from __future__ import annotations

from kvint2eval.gate.codes import GATE_FINDINGS

__all__ = ["GATE_FINDINGS"]
