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
        "Compute again all that is deterministic in a record and compare field by field, a v2 record trial by trial. "
        "Times, hardware and other artifacts' digests are only reported by a record, and are not compared.",
        run,
    )
    command.add_argument("record", metavar="RECORD", help="the record's file")
    add_backend_options(command)


def run(arguments: "argparse.Namespace") -> int:
    """Run a record's computation again."""
    from producer.backend import select_backend  # noqa: PLC0415
    from producer.computation import computation  # noqa: PLC0415
    from producer.memory import require_memory  # noqa: PLC0415
    from producer.record import RecordV2  # noqa: PLC0415
    from producer.rederive import rederive  # noqa: PLC0415
    from producer.rederive_v2 import rederive_v2  # noqa: PLC0415

    record = read_judgeable(arguments)
    if record is None:
        return DELEGATE
    backend = select_backend(arguments.backend, arguments.threads)
    require_memory(*computation(record), backend.workers, arguments.memory_limit)
    basis: dict[str, tuple[str, ...]] = {}
    if isinstance(record, RecordV2):
        done = rederive_v2(record, backend, ProgressBar())
        comparisons, basis = done.rederived, {"recomputed": done.recomputed, "reported": done.reported}
    else:
        comparisons = rederive(record, backend, ProgressBar())
    wrong = sum(not each.agrees for each in comparisons)
    if arguments.format == "json":
        fields = [dataclasses.asdict(each) for each in comparisons]
        print(json.dumps({"agrees": wrong == 0, "fields": fields, **basis}))
    else:
        # A v2 record has thousands of figures: only those that disagree are shown.
        shown_rows = [each for each in comparisons if not each.agrees] if basis else comparisons
        if shown_rows:
            print_table(shown_rows)
        print(f"{len(comparisons) - wrong} of {len(comparisons)} deterministic fields agree")
        for name, figures in basis.items():
            print(f"{_BASIS[name]}: {'; '.join(figures)}")
    return 1 if wrong else 0


_BASIS = {
    "recomputed": "not run again but recomputed by kvint2eval adjudicate",
    "reported": "only reported",
}


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
