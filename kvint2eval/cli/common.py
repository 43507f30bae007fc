"""Options, errors and readers that several subcommands share."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "COULD_NOT_JUDGE",
    "INTERRUPTED",
    "CannotJudge",
    "Subcommands",
    "add_command",
    "add_what_holds",
    "complain",
    "remark",
]

COULD_NOT_JUDGE = 2
INTERRUPTED = 130

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""What `add_subparsers` gives; argparse has no public name for it."""


class CannotJudge(Exception):  # noqa: N818  # ends the command with a message; not an error of the package
    """A fault that the user can fix: the command says it and ends with exit code 2."""


def complain(message: str) -> None:
    """Print a message on standard error, on one line whatever it holds."""
    from kvint2eval.report.escape import safe

    # Where nobody can be told, the exit code still says it.
    with suppress(OSError):
        print(f"kvint2eval: error: {safe(message)}", file=sys.stderr, flush=True)


def remark(message: str) -> None:
    """Print what is said but decides nothing on standard error."""
    from kvint2eval.report.escape import safe

    print(f"kvint2eval: {safe(message)}", file=sys.stderr)


def add_command(
    commands: Subcommands, name: str, text: str, run: Callable[[argparse.Namespace], int], epilog: str
) -> argparse.ArgumentParser:
    """Add a subcommand.

    Parameters
    ----------
    commands
        What `add_subparsers` gave.
    name, text, epilog
        Its name; a description, whose first sentence is its line in the list; what stands below its options.
    run
        Takes the arguments and gives the exit code.
    """
    command = commands.add_parser(
        name,
        help=text[0].lower() + text[1:].partition(".")[0],
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def add_what_holds(command: argparse.ArgumentParser) -> None:
    """Add the options that say what records are compared with: pins, root and policy."""
    command.add_argument(
        "--pins", metavar="FILE", help="pins file (TOML) to compare the records' digests with"
    )
    command.add_argument(
        "--root",
        metavar="DIR",
        help="folder that the paths of v2 records are relative to: their files are rehashed",
    )
    command.add_argument(
        "--policy",
        metavar="FILE",
        help="policy file (TOML): every record needs the signatures it asks for, in PATH.dsse beside it",
    )
    command.add_argument(
        "--require",
        choices=("bound",),
        help="bound: refuse a record with a digest that is only declared, because no pin with a path and no file "
        "below --root has it",
    )
