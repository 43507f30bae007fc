"""Closed list of the docs gate's findings. A published code keeps its spelling and its meaning."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GATE_FINDINGS", "GateCode"]


class GateCode(NamedTuple):
    """What a finding of the gate means."""

    meaning: str
    mend: str


_UPDATE = "If the change is meant, run kvint2eval gate --update; else restore what was changed."

_WRITE_BACK = (
    "Write what is expected back on the page; where a file changed on purpose, file-changed says more."
)

GATE_FINDINGS: dict[str, GateCode] = {
    "file-changed": GateCode("A pinned file has another digest than the pins file states.", _UPDATE),
    "file-missing": GateCode(
        "A pinned file is gone or is no regular file.",
        "Restore the file, fix the path in the pins file, or say there why its digest is unbindable.",
    ),
    "page-unreadable": GateCode(
        "A gated page is gone, is no regular file, or is not UTF-8.",
        "Restore the page, or fix its path in the pins file.",
    ),
    "digest-differs": GateCode(
        "A page publishes another digest than the pinned one at a bound place.", _WRITE_BACK
    ),
    "digest-absent": GateCode(
        "A page no longer publishes a digest that the pins file says it does.",
        "Write the digest back, or remove the [[place]] from the pins file.",
    ),
    "digest-unlisted": GateCode(
        "A page holds a 64-hex string that no [[artifact]] of the pins file has.",
        "Bind it with an [[artifact]] and its path, or list it there as unbindable with the reason.",
    ),
    "digest-unplaced": GateCode(
        "A page publishes the digest of a bound artifact, and no [[place]] says so.",
        "Add a [[place]] with this page and the artifact's id to the pins file.",
    ),
    "figure-differs": GateCode("A page shows another figure than its record holds.", _WRITE_BACK),
    "record-unsupported": GateCode(
        "A figure is bound to a record that is unsupported.",
        "Bind it to a record that is supported, or fix the record; kvint2eval adjudicate says what is wrong with it.",
    ),
    "pointer-missing": GateCode(
        "The record of a figure is unreadable, or holds nothing at the figure's JSON pointer.",
        "Fix the pointer in the pins file, or restore the record.",
    ),
    "format-mismatch": GateCode(
        "The value in the record cannot be written in the figure's format.",
        "Fix the format in the pins file: {} for a text, {:d} for an integer, {:.3f} and the like for a number.",
    ),
    "anchor-missing": GateCode(
        "The place that a binding names is not on the page.",
        "Fix row, column, before, after or under in the pins file, or restore the page.",
    ),
    "anchor-ambiguous": GateCode(
        "The place that a binding names is on the page more than once.",
        "Name it closer: a longer before or after, or the heading with under.",
    ),
}
