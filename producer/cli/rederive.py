"""`kvint2eval-producer rederive`."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import (
    DELEGATE,
    ProgressBar,
    add_backend_options,
    add_command,
    backend_for,
    has_run_to_repeat,
    read_repeatable,
)

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.record.field_comparison import FieldComparison
    from producer.record.rederive_v2 import Rederivation

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "rederive",
        "Recompute all that is deterministic in a record and compare field by field, a v2 record trial by trial. "
        "Times, hardware and other artifacts' digests are only reported by a record, and are not compared. Records "
        "of a trace, one or a JSON Lines file of them, are run again from the traces that they name.",
        run,
    )
    command.add_argument("record", metavar="RECORD", help="the record's file; .jsonl for records of a trace")
    command.add_argument(
        "--calibration", type=Path, metavar="DIR", help="of a record of a trace: its calibration trace"
    )
    command.add_argument(
        "--trace", type=Path, metavar="DIR", help="of a record of a trace: its evaluation trace"
    )
    command.add_argument(
        "--fitted",
        default=[],
        action="append",
        type=Path,
        metavar="FILE",
        help="of a record of a trace: the file of an arm that was fitted; may be repeated",
    )
    command.add_argument(
        "--remade",
        action="store_true",
        help="of a record of a trace: traces and fitted files were rebuilt from the same model and texts; the "
        "errors of arms that were not trained are compared to 2 %%, and claims are judged on the new trials",
    )
    add_backend_options(command)


def run(arguments: argparse.Namespace) -> int:
    """Run a record's computation again."""
    from producer.record.reading import RecordV2
    from producer.record.rederive_v1 import rederive
    from producer.record.rederive_v2 import rederive_v2

    if (
        arguments.calibration is not None
        or arguments.trace is not None
        or arguments.remade
        or arguments.record.endswith(".jsonl")
    ):
        return _run_traces(arguments)
    record = read_repeatable(arguments)
    if record is None:
        return DELEGATE
    backend = backend_for(record, arguments)
    basis: dict[str, tuple[str, ...]] = {}
    if isinstance(record, RecordV2):
        done = rederive_v2(record, backend, ProgressBar(quiet=arguments.quiet))
        comparisons, basis = done.rederived, {"recomputed": done.recomputed, "reported": done.reported}
    else:
        comparisons = rederive(record, backend, ProgressBar(quiet=arguments.quiet))
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


def _run_traces(arguments: argparse.Namespace) -> int:
    """Run records of a trace again."""
    from producer.errors import RecordError, SpecError
    from producer.experiment.trace.fitted_arms import read_arms
    from producer.record.reading import read_record_file, read_record_lines, require_not_unsupported
    from producer.record.rederive_remade import trained_arms
    from producer.record.rederive_trace import rederive_traces
    from producer.record.v2_trace import is_of_trace
    from producer.system.processes import default_workers
    from producer.trace.files import read_trace

    path = arguments.record
    records = read_record_lines(path) if path.endswith(".jsonl") else [read_record_file(path)]
    if not all(map(is_of_trace, records)):
        raise RecordError(
            f"{path}: found a record that is not of a trace, allowed: v2 records of a trace, with these options"
        )
    if arguments.calibration is None or arguments.trace is None:
        raise SpecError(f"{path}: --calibration and --trace are needed: its records are of a trace")
    if arguments.remade:
        require_not_unsupported(path)
    judgeable = [record for record in records if has_run_to_repeat(record, arguments)]
    if len(judgeable) != len(records):
        return DELEGATE
    processes = default_workers() if arguments.threads is None else arguments.threads
    if processes < 1:
        raise SpecError(f"threads {processes} is not allowed: at least 1")
    traces = read_trace(arguments.calibration), read_trace(arguments.trace)
    fitted = read_arms(arguments.fitted, traces[1])
    done = rederive_traces(
        judgeable,  # type: ignore[arg-type]
        *traces,
        processes=processes,
        progress=ProgressBar(quiet=arguments.quiet),
        fitted=fitted,
        remade=arguments.remade,
    )
    fields = [(number, each) for number, one in enumerate(done, 1) for each in one.rederived]
    wrong = [(number, each) for number, each in fields if not each.agrees]
    basis = {
        name: tuple(dict.fromkeys(figure for one in done for figure in getattr(one, name)))
        for name in ("recomputed", "reported")
    }
    if arguments.format == "json":
        rows = [{"record": number, **dataclasses.asdict(each)} for number, each in fields]
        means = {"means": [one.means for one in done]} if arguments.remade else {}
        print(json.dumps({"agrees": not wrong, "records": len(done), "fields": rows, **basis, **means}))
        return 1 if wrong else 0
    for number in sorted({number for number, _ in wrong}):
        print(f"record {number}:")
        print_table([each for place, each in wrong if place == number])
    if arguments.remade:
        _print_remade(done, {name for record in judgeable for name in trained_arms(record, fitted)})  # type: ignore[arg-type]
    print(f"{len(fields) - len(wrong)} of {len(fields)} deterministic fields of {len(done)} records agree")
    for name, figures in basis.items():
        print(f"{_BASIS[name]}: {'; '.join(figures)}")
    return 1 if wrong else 0


def _print_remade(done: list[Rederivation], trained: set[str]) -> None:
    """Print the mean error of every arm, in the records and in this run, and how far apart the trials' errors are."""
    from producer.record.rederive_remade import REMADE_TOLERANCE

    means = [one.means or {} for one in done]
    for name in dict.fromkeys(name for one in means for name in one):
        pairs = [one[name] for one in means if name in one]
        stated, made = (math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))
        note = "; it was trained: not compared" if name in trained else ""
        print(f"mean NMSE of {name}: {stated:.6f} in {len(pairs)} records, {made:.6f} in this run{note}")
    found = (each for one in done for each in one.rederived if "/trials/nmse/" in each.field)
    differences = sorted(each.difference for each in found if each.difference is not None)
    line = f"{len(differences)} errors of trials compared"
    if differences:
        middle, most = (differences[int(part * len(differences))] for part in (0.5, 0.99))
        line += (
            f": half differ by at most {middle:.1e}, 99 of 100 by {most:.1e}, all by {differences[-1]:.1e}; "
            f"allowed {REMADE_TOLERANCE:g}"
        )
    print(line)


_BASIS = {
    "recomputed": "not run again but recomputed by kvint2eval adjudicate",
    "reported": "only reported",
}


def print_table(comparisons: list[FieldComparison]) -> None:
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
