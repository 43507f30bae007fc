"""`kvint2eval-producer export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "export",
        "Write the rotations of a fitted scheme as an OSCAR rotation file for a server. Refused are transforms that "
        "are not orthogonal, centred keys and clip ratios by head, which such a file cannot hold.",
        run,
    )
    command.add_argument("fitted", type=Path, metavar="FILE", help="what `fit` wrote")
    command.add_argument(
        "--side",
        required=True,
        choices=("key", "value"),
        help="keys or values: a server takes one file for each",
    )
    command.add_argument(
        "-o", "--output", required=True, type=Path, metavar="FILE", help="file to write (.pt)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Export a fitted scheme."""
    from producer.scheme.export_oscar import export_oscar
    from producer.scheme.fitted_file import read_fitted_file
    from producer.system.files import require_writable

    require_writable(arguments.output)
    fitted = read_fitted_file(arguments.fitted)
    export_oscar(arguments.output, fitted, arguments.side)
    print(f"{arguments.side} rotations of {fitted.scheme.name}: {len(fitted.layers)} layers")
    return 0
