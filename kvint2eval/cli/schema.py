"""`kvint2eval schema`: the JSON Schema of a contract, or of the pins file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]

_FOLDERS = {"v1": "contract/v1", "v2": "contract/v2", "pins": "pins"}


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "schema",
        "Print the JSON Schema of a contract.",
        run,
        "The schema describes the layout. The rest is in docs/reference/contract-v1.md, docs/reference/contract-v2.md\n"
        "and, for the pins file, in docs/guides/gate.md.",
    )
    command.add_argument(
        "version",
        nargs="?",
        default="v1",
        choices=tuple(_FOLDERS),
        metavar="VERSION",
        help="v1 (the default), v2, or pins for the pins file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from importlib import resources  # noqa: PLC0415

    name = f"{_FOLDERS[arguments.version]}/{arguments.version}.schema.json"
    print(resources.files("kvint2eval").joinpath(name).read_text(encoding="utf-8"), end="")
    return 0
