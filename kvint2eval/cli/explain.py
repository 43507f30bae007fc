"""`kvint2eval explain`: the meaning of a code, an example, and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import CannotJudge, add_command

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "explain",
        "Explain a code: what it means, an example, and how to fix it.",
        run,
        "CODE is a reason (KVINT2_...) or a finding. Without a code, all are listed.",
    )
    command.add_argument(
        "code", nargs="?", metavar="CODE", help="for example KVINT2_PIN_MISMATCH or cache-bytes"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.explain import explain, index

    if arguments.code is None:
        print(index(), end="")
        return 0
    text = explain(arguments.code)
    if text is None:
        raise CannotJudge(f'found code "{arguments.code}", allowed: a code that `kvint2eval explain` lists')
    print(text, end="")
    return 0
