"""`kvint2eval gate`: published digests and figures compared with files and records."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kvint2eval.cli.common import CannotJudge, add_command
from kvint2eval.cli.output import CI_FORMATS, Words, assemble, ci_report, opened, step_summary, write_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from kvint2eval.cli.common import Subcommands
    from kvint2eval.gate.check import Binding, Gate
    from kvint2eval.gate.tables import GateFile
    from kvint2eval.report.issue import Issue
    from kvint2eval.report.model import GateReport, Tally

__all__ = ["add", "run"]

DEFAULT_PINS = "kvint2eval-pins.toml"
FORMATS = ("text", "jsonl", *CI_FORMATS)


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "gate",
        "Compare the digests and figures that pages publish with files and records.",
        run,
        "PATH is a Markdown page, or a folder of them (*.md, at any depth), gated beside the pages that the pins\n"
        "file names. docs/guides/gate.md describes the pins file.\n\n"
        "Exit code 0 when everything holds, 1 when something does not, 2 when nothing is bound or the pins file\n"
        "cannot be used. Without --update only the report is written.",
    )
    command.add_argument("paths", nargs="*", metavar="PATH", help="page, or folder of pages")
    command.add_argument(
        "--pins", metavar="FILE", default=DEFAULT_PINS, help=f"pins file (default: {DEFAULT_PINS})"
    )
    command.add_argument(
        "--update",
        action="store_true",
        help="write the digests and figures of files and records into the pins file and the pages",
    )
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text for people; jsonl: one binding a line; sarif: SARIF 2.1.0; junit: JUnit XML; "
        "github: annotations and step summary (default: text)",
    )
    command.add_argument(
        "--path-root",
        metavar="DIR",
        help="folder that sarif and github tell paths from (default: the repository's root)",
    )
    command.add_argument(
        "--output",
        metavar="FILE",
        help="write the report to FILE: it is replaced by the whole report, or kept",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    report = _report(arguments.format, arguments.path_root)
    title = Words("kvint2eval gate", _sentence)
    try:
        gate = _prepare(arguments)
    except CannotJudge as error:
        if arguments.format in CI_FORMATS:
            message = str(error)
            with opened(arguments.output) as descriptor:
                assemble(report, descriptor, lambda target: _write_fault(report, message, target), title)
        raise
    with opened(arguments.output) as descriptor:
        tally = assemble(
            report,
            descriptor,
            lambda target: _write(report, gate.run(), arguments.pins, target),
            title,
            step_summary(arguments.format),
        )
    print(f"kvint2eval gate: {_sentence(tally)}", file=sys.stderr)
    if arguments.update and tally.unsupported:
        print("kvint2eval gate: what --update left has to be fixed by hand", file=sys.stderr)
    # Readers of SARIF take another exit code for a failure of the tool itself.
    return 1 if tally.unsupported and arguments.format != "sarif" else 0


def _prepare(arguments: argparse.Namespace) -> Gate:
    """The gate, after the update if one was asked for."""
    from kvint2eval.gate.check import Gate, collect_pages

    file = _read(arguments.pins)
    pages, errors = collect_pages([*(str(file.root / page) for page in file.pages), *arguments.paths])
    if errors:
        raise CannotJudge("; ".join(errors))
    if arguments.update:
        _update(file, pages)
        file = _read(arguments.pins)
    return Gate(file, pages, judge=_why_unsupported)


def _why_unsupported(data: bytes) -> str | None:
    """Finding of an unsupported record, in words."""
    from kvint2eval.adjudication import adjudicate
    from kvint2eval.codes import Outcome

    verdict = adjudicate(data)
    if verdict.outcome is not Outcome.UNSUPPORTED or verdict.finding is None:
        return None
    return f"{verdict.reason}, {verdict.finding.code} at {verdict.finding.pointer or 'the whole record'}"


def _read(path: str) -> GateFile:
    from kvint2eval.errors import PinsError
    from kvint2eval.gate.tables import read_gate_file

    try:
        file = read_gate_file(path)
    except PinsError as error:
        raise CannotJudge(str(error)) from error
    if not file.places and not file.figures:
        raise CannotJudge(
            f"pins file {path}: found no binding, allowed: one [[place]] or [[figure]] or more; "
            "a gate that binds nothing would pass by finding nothing"
        )
    return file


def _update(file: GateFile, pages: list[str]) -> None:
    from kvint2eval.gate.update import update
    from kvint2eval.report.escape import safe

    try:
        written = update(file, pages)
    except OSError as error:
        raise CannotJudge(f"--update: {error.filename}: {error.strerror or error}") from error
    for path in written:
        print(f"kvint2eval gate: written: {safe(path)}", file=sys.stderr)


def _report(name: str, path_root: str | None) -> GateReport:
    if name in CI_FORMATS:
        return ci_report(name, "gate", path_root)
    from kvint2eval.report.gate_text import GateLines, GateText

    return GateLines() if name == "jsonl" else GateText()


def _write(report: GateReport, bindings: Iterable[Binding], pins: str, descriptor: int) -> Tally:
    from kvint2eval.report import Tally, safe

    pieces = []
    held = failed = 0
    for binding in bindings:
        issues = _issues(binding, pins)
        held += not issues
        failed += bool(issues)
        name = f"{binding.kind} {safe(binding.path)}: {safe(binding.name)}"
        pieces.append(report.checked(name, issues))
    write_all(descriptor, report.separator.join(filter(None, pieces)))
    return Tally(held, failed)


def _write_fault(report: GateReport, message: str, descriptor: int) -> Tally:
    from kvint2eval.report import Tally

    write_all(descriptor, report.fault(message))
    return Tally(errors=1)


def _issues(binding: Binding, pins: str) -> list[Issue]:
    """Issues of a binding, the command that fixes them as the user would type it."""
    from kvint2eval.report.issue import of_gate

    issues = [of_gate(finding) for finding in binding.findings]
    if not issues or pins == DEFAULT_PINS:
        return issues
    import shlex

    command = f"gate --update --pins {shlex.quote(pins)}"
    return [
        one._replace(rows=(*one.rows[:-1], ("fix", one.rows[-1][1].replace("gate --update", command))))
        for one in issues
    ]


def _sentence(tally: Tally) -> str:
    return f"{tally.supported} bindings hold, {tally.unsupported} do not"
