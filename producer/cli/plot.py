"""`kvint2eval-producer plot`."""

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
        "plot",
        "Draw pictures of a finished comparison: error by layer and head, the residual stream, perplexity and "
        "divergence with intervals, and bits against error. Only the JSON is read.",
        run,
    )
    command.add_argument("comparison", type=Path, metavar="FILE", help="output of `evaluate`")
    command.add_argument(
        "--picture",
        action="append",
        choices=("error", "residual", "model", "frontier"),
        help="what to draw; may be repeated (default: all that the file has figures for)",
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="picture.svg or picture.png; each picture is written beside it with its name, such as picture-error.png",
    )


def run(arguments: argparse.Namespace) -> int:
    """Draw pictures."""
    from producer.cli.check import print_renamed
    from producer.experiment.slice.plot import require_plot
    from producer.experiment.trace.check_comparison import read_comparison
    from producer.experiment.trace.plot import PICTURES, draw_picture
    from producer.system.files import require_writable

    output: Path = arguments.output
    require_plot(output)
    content = read_comparison(arguments.comparison)
    print_renamed(content)
    has_runs = any(scheme["runs"] for scheme in content["schemes"])
    names = arguments.picture or [
        name for name, (_, needs_runs) in PICTURES.items() if has_runs or not needs_runs
    ]
    for name in dict.fromkeys(names):
        path = output.with_name(f"{output.stem}-{name}{output.suffix}")
        require_writable(path)
        draw_picture(content, name, path)
        print(path)
    return 0
