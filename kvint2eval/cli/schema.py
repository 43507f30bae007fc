"""`kvint2eval schema`: the JSON Schema of a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "schema",
        "Print the JSON Schema of a contract.",
        run,
        "The schema describes the layout. What it cannot say stands in docs/contract-VERSION.md.",
    )
    command.add_argument(
        "version",
        nargs="?",
        default="v1",
        choices=("v1", "v2"),
        metavar="VERSION",
        help="v1 (the default) or v2",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from importlib import resources  # noqa: PLC0415

    name = f"{arguments.version}.schema.json"
    print(resources.files("kvint2eval.contract").joinpath(name).read_text(encoding="utf-8"), end="")
    return 0
