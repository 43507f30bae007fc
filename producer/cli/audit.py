"""`kvint2eval-producer audit`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from producer.cli.common import (
    DELEGATE,
    ProgressBar,
    add_backend_options,
    add_command,
    backend_for,
    read_repeatable,
)

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "audit",
        "Report what is unsound in how a record was computed, each finding with the number that shows it. The "
        "computation that the record names is run again; no list of records is consulted.",
        run,
    )
    command.add_argument("record", metavar="RECORD", help="the record's file")
    add_backend_options(command)


def run(arguments: argparse.Namespace) -> int:
    """Audit a record's computation."""
    from producer.errors import RecordError
    from producer.record.audit import audit_record

    if arguments.record.endswith(".jsonl"):
        raise RecordError(
            f"{arguments.record}: found JSON Lines, allowed: one record of a synthetic slice; of records of a trace "
            "`kvint2eval adjudicate` holds what an audit asks (null checks, rotations that differ, one selection by "
            "the calibration, the same queries, clip optima inside the grid, better than zeros), and `rederive` runs "
            "them again with --calibration and --trace"
        )
    record = read_repeatable(arguments)
    if record is None:
        return DELEGATE
    backend = backend_for(record, arguments)
    findings = audit_record(record, backend, ProgressBar(quiet=arguments.quiet))
    if arguments.format == "json":
        print(json.dumps({"findings": [dataclasses.asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.code}: {finding.message}")
        print("no findings" if not findings else f"{len(findings)} findings")
    return 1 if findings else 0
