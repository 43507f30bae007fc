"""`kvint2eval-producer check`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import add_command, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from producer.cli.common import Subcommands
    from producer.experiment.trace.check_comparison import ComparisonFinding

__all__ = ["add", "print_findings", "print_renamed"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "check",
        "Recompute every summary and interval of a comparison from its figures. Neither a model nor a trace is "
        "needed; whether the figures are those of a run is what `evaluate --against` says.",
        run,
    )
    command.add_argument("comparison", type=Path, metavar="FILE", help="output of `evaluate`")
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check a comparison."""
    from producer.experiment.trace.check_comparison import check_comparison, read_comparison

    content = read_comparison(arguments.comparison)
    print_renamed(content)
    findings = check_comparison(content)
    print_findings(
        {"agrees": not findings, "schemes": len(content["schemes"]), "sequences": len(content["evaluation"])},
        findings,
        is_json=arguments.format == "json",
    )
    return 1 if findings else 0


def print_renamed(content: dict[str, Any]) -> None:
    """Print on standard error which dialects of a comparison are called otherwise here."""
    from producer.experiment.trace.check_comparison import renamed_dialects

    for line in renamed_dialects(content):
        print(printable(f"note: {line}"), file=sys.stderr)


def print_findings(about: dict[str, Any], findings: Sequence[ComparisonFinding], *, is_json: bool) -> None:
    """Print findings, or that there are none."""
    if is_json:
        print(json.dumps({**about, "findings": [dataclasses.asdict(finding) for finding in findings]}))
        return
    for finding in findings:
        print(printable(str(finding)))
    print(f"{len(findings)} figures disagree" if findings else "all figures agree")
