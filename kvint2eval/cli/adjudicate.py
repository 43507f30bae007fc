"""`kvint2eval adjudicate`: judge records and print one verdict for each."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, cast

from kvint2eval.cli.common import COULD_NOT_JUDGE, CannotJudge, add_command, add_what_holds, complain, remark
from kvint2eval.cli.output import CI_FORMATS, Words, assemble, ci_report, opened, step_summary, write_all

if TYPE_CHECKING:
    from io import BufferedReader

    from kvint2eval.batch import Judge
    from kvint2eval.cli.common import Subcommands
    from kvint2eval.files.inputs import Collected
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.report import Report, Tally
    from kvint2eval.signing.policy import Policy

_SHOWN_PINS = 10
FORMATS = ("text", "json", "jsonl", *CI_FORMATS)

__all__ = [
    "add",
    "judge_inputs",
    "read_pins_or_complain",
    "read_policy_or_complain",
    "read_root_or_complain",
    "run",
    "say",
    "say_remarks",
    "unmet_pins",
]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "adjudicate",
        "Judge records and print one verdict for each.",
        run,
        "PATH is a file with one record, a .jsonl or .ndjson file with one a line, a folder (its *.json, *.jsonl\n"
        "and *.ndjson, at any depth) or - for standard input. Standard input is taken as one record a line when its\n"
        "first line is a whole object. A record is at most 1 MiB; symbolic links are refused. Audits (*.audit.json)\n"
        "are never judged; what is passed over in a folder is named.\n\n"
        "The verdicts go to standard output, the tally and all complaints to standard error.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="file, folder, or - for standard input")
    add_what_holds(command)
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text for people; jsonl: one verdict a line; json: one document; sarif: SARIF 2.1.0; "
        "junit: JUnit XML; github: annotations and step summary (default: text)",
    )
    command.add_argument(
        "--accept-delegate", action="store_true", help="exit 0 when the worst outcome is delegate"
    )
    command.add_argument(
        "--output",
        metavar="FILE",
        help="write the verdicts to FILE: it is replaced by the whole report, or kept",
    )
    command.add_argument(
        "--changed",
        action="store_true",
        help="PATHs are what a change touched: an envelope stands for its record, what is no record is passed over "
        "and named, and no record at all is well",
    )
    command.add_argument(
        "--path-root",
        metavar="DIR",
        help="folder that sarif and github tell paths from (default: the repository's root)",
    )
    command.add_argument("--lines", action="store_true", help="every input holds one record a line")
    command.add_argument(
        "--jobs",
        type=_positive,
        default=1,
        metavar="N",
        help="judge with N processes; the order is kept (default: 1)",
    )
    command.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour the outcomes; auto: on a terminal, unless NO_COLOR is set (default: auto)",
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 1 to 256")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.batch import Judge
    from kvint2eval.files.inputs import collect

    judge = Judge(
        _report(arguments),
        read_pins_or_complain(arguments.pins),
        read_root_or_complain(arguments.root),
        read_policy_or_complain(arguments.policy),
        arguments.require == "bound",
    )
    found = collect(arguments.paths, lines=arguments.lines, changed=arguments.changed)
    say(found)
    if arguments.changed and not found.inputs and not found.refused:
        remark("no record is among the changed files")
        return 0
    if not found.inputs and arguments.format not in CI_FORMATS:
        return COULD_NOT_JUDGE
    with opened(arguments.output) as descriptor:
        tally = assemble(
            judge.report,
            descriptor,
            lambda target: judge_inputs(found, judge, target, arguments.jobs),
            Words("kvint2eval adjudicate", lambda tally: tally.sentence()),
            step_summary(arguments.format),
        )
    say_remarks(judge.report, found)
    print(f"kvint2eval: {tally.sentence()}", file=sys.stderr)
    code = tally.exit_code(accept_delegate=arguments.accept_delegate)
    # Readers of SARIF take another exit code for a failure of the tool itself.
    return 0 if arguments.format == "sarif" and code != COULD_NOT_JUDGE else code


def _report(arguments: argparse.Namespace) -> Report:
    if arguments.format == "text":
        from kvint2eval.report.text import Text

        is_terminal = arguments.output is None and sys.stdout.isatty()
        automatic = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return Text(colour=arguments.color == "always" or (arguments.color == "auto" and automatic))
    if arguments.format in CI_FORMATS:
        return ci_report(arguments.format, "adjudicate", arguments.path_root)
    from kvint2eval.report.json_lines import JsonDocument, JsonLines

    return JsonDocument() if arguments.format == "json" else JsonLines()


def read_pins_or_complain(path: str | None) -> Pins | None:
    """Pins of the file that an option names; None without one."""
    if path is None:
        return None
    from kvint2eval.errors import PinsError
    from kvint2eval.pins.pins import read_pins

    try:
        return read_pins(path)
    except PinsError as error:
        raise CannotJudge(f"--pins: {error}") from error


def read_root_or_complain(path: str | None) -> Root | None:
    """Folder that an option names; None without one."""
    if path is None:
        return None
    from kvint2eval.errors import InputError
    from kvint2eval.pins.root import Root

    try:
        return Root(path)
    except InputError as error:
        raise CannotJudge(f"--root: {error}") from error


def read_policy_or_complain(path: str | None) -> Policy | None:
    """Policy of the file that an option names; None without one."""
    if path is None:
        return None
    from kvint2eval.errors import PolicyError
    from kvint2eval.signing.policy import read_policy

    try:
        return read_policy(path)
    except PolicyError as error:
        raise CannotJudge(f"--policy: {error}") from error


def say(found: Collected) -> None:
    """Say on standard error what cannot be judged, and what is passed over."""
    for refusal in found.refused:
        complain(str(refusal))
    for line in found.passed_over:
        remark(line)


def say_remarks(report: Report, found: Collected) -> None:
    """Say on standard error what a report has to say that decides nothing, and that was not said of the paths."""
    for line in (*report.remarks, *getattr(report, "cuts", ())):
        if line not in found.passed_over:
            remark(line)


def judge_inputs(found: Collected, judge: Judge, descriptor: int, jobs: int) -> Tally:
    """Judge all inputs, writing the verdicts to a descriptor; what the run has to say goes to the report's remarks."""
    from kvint2eval.batch import run_forked, run_serial
    from kvint2eval.files.inputs import STDIN
    from kvint2eval.report import Tally

    sys.stdout.flush()
    sys.stderr.flush()
    inputs = found.inputs
    for refusal in found.refused:
        write_all(descriptor, judge.report.fault(str(refusal)))
    if jobs > 1 and not any(source.path == STDIN for source in inputs):
        tally = run_forked(inputs, judge, descriptor, jobs)
    else:
        stdin = cast("BufferedReader", sys.stdin.buffer)
        tally = run_serial(inputs, judge, lambda data: write_all(descriptor, data), stdin)
    judge.report.remarks = [*found.passed_over, *unmet_pins(judge.pins)]
    return tally.plus(Tally(errors=len(found.refused)))


def unmet_pins(pins: Pins | None) -> list[str]:
    """What is said of pins that no record of the run was compared with."""
    unmet = [] if pins is None else pins.unmet
    if not unmet:
        return []
    shown = ", ".join(unmet[:_SHOWN_PINS]) + (
        f" and {len(unmet) - _SHOWN_PINS} more" if len(unmet) > _SHOWN_PINS else ""
    )
    return [f"unmet pins, which no record of this run was compared with: {shown}"]
