"""`kvint2eval-producer rederive`."""

import dataclasses
import json
from typing import TYPE_CHECKING

from producer.cli.common import DELEGATE, ProgressBar, add_backend_options, add_command, read_judgeable

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.rederive import Comparison

__all__ = ["add"]


def add(commands: "Subcommands") -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "rederive",
        "Compute again all that is deterministic in a record and compare field by field. Times, hardware and "
        "other artifacts' digests are only reported by a record, and are not compared.",
        run,
    )
    command.add_argument("record", metavar="RECORD", help="the record's file")
    add_backend_options(command)


def run(arguments: "argparse.Namespace") -> int:
    """Run a record's computation again."""
    from producer.backend import select_backend  # noqa: PLC0415
    from producer.memory import require_memory  # noqa: PLC0415
    from producer.record import computation_of  # noqa: PLC0415
    from producer.rederive import rederive  # noqa: PLC0415

    record = read_judgeable(arguments)
    if record is None:
        return DELEGATE
    backend = select_backend(arguments.backend, arguments.threads)
    require_memory(*computation_of(record), backend.workers, arguments.memory_limit)
    comparisons = rederive(record, backend, ProgressBar())
    wrong = sum(not each.agrees for each in comparisons)
    if arguments.format == "json":
        print(
            json.dumps({"agrees": wrong == 0, "fields": [dataclasses.asdict(each) for each in comparisons]})
        )
    else:
        print_table(comparisons)
        print(f"{len(comparisons) - wrong} of {len(comparisons)} deterministic fields agree")
    return 1 if wrong else 0


def print_table(comparisons: "list[Comparison]") -> None:
    """Print field, published, recomputed, relative difference, tolerance and whether they agree."""
    rows = [("field", "published", "recomputed", "difference", "tolerance", "")]
    rows += [
        (
            each.field,
            shown(each.published),
            shown(each.recomputed),
            "-" if each.difference is None else f"{each.difference:.2e}",
            f"{each.tolerance:.0e}" if each.tolerance else "exact",
            "ok" if each.agrees else "DISAGREES",
        )
        for each in comparisons
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def shown(value: float | str | None) -> str:
    """Return a value as it is printed: nine digits of a number, the first twelve characters of a digest."""
    if value is None:
        return "missing"
    if isinstance(value, str):
        return ascii(value[:12])[1:-1] + "…"
    return f"{value:.9g}"
