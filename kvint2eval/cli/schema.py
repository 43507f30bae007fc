"""`kvint2eval schema`: the JSON Schema of a contract, of the pins file, or of the policy file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]

_FOLDERS = {"v1": "contract/v1", "v2": "contract/v2", "pins": "pins", "policy": "signing"}


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "schema",
        "Print the JSON Schema of a contract.",
        run,
        "The schema describes the layout. What it cannot say stands in docs/reference/contract-v1.md,\n"
        "docs/reference/contract-v2.md (for the policy file too) and, for the pins file, in docs/guides/gate.md.",
    )
    command.add_argument(
        "version",
        nargs="?",
        default="v1",
        choices=tuple(_FOLDERS),
        metavar="VERSION",
        help="v1 (the default), v2, pins for the pins file, or policy for the policy file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from importlib import resources

    name = f"{_FOLDERS[arguments.version]}/{arguments.version}.schema.json"
    print(resources.files("kvint2eval").joinpath(name).read_text(encoding="utf-8"), end="")
    return 0
