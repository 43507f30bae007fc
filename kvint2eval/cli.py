"""The command `kvint2eval`: the only module that prints or exits.

What a run does not need is imported inside the subcommand that does: the command is started once per record
in many CI systems, and its start is most of its time.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from kvint2eval._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import BufferedReader

    from kvint2eval.batch import Judge
    from kvint2eval.inputs import Input
    from kvint2eval.pins import Pins
    from kvint2eval.report import Report, Tally

__all__ = ["build_parser", "main"]

COULD_NOT_JUDGE = 2
_INTERRUPTED = 130

FORMATS = ("text", "json", "jsonl")

_EPILOG = """\
exit codes:
  0  every record is supported
  1  at least one record is unsupported
  2  could not judge: wrong usage, an input that cannot be read, nothing to check, an internal fault
  3  no record is unsupported, at least one is delegated (0 with --accept-delegate)
  2 goes before 1, and 1 before 3.

examples:
  kvint2eval adjudicate record.json
  kvint2eval adjudicate records/ --pins pins.toml --format jsonl --output verdicts.jsonl
  zcat records.jsonl.gz | kvint2eval adjudicate -
  kvint2eval explain KVINT2_PIN_MISMATCH
"""


class _CannotJudge(Exception):  # noqa: N818  # ends the command with a message; not an error of the package
    """A fault that is the user's to mend."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    argv
        Arguments without the program's name; None takes those of the process.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except _CannotJudge as fault:
        _complain(str(fault))
        return COULD_NOT_JUDGE
    except BrokenPipeError:
        # The reader went away. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_JUDGE
    except KeyboardInterrupt:
        _complain("interrupted; nothing was written to --output")
        return _INTERRUPTED
    except Exception as fault:  # noqa: BLE001  # the last line of defence: no traceback, and an exit code of its own
        _complain(f"internal fault, please report it: {type(fault).__name__}: {fault}")
        return COULD_NOT_JUDGE
    return code


def _complain(message: str) -> None:
    from kvint2eval.report.escape import safe  # noqa: PLC0415

    print(f"kvint2eval: error: {safe(message)}", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """Parser of the command line; the CLI page is made from it."""
    parser = argparse.ArgumentParser(
        prog="kvint2eval",
        description="Adjudicates evaluation records of 2-bit KV-cache schemes: supported, unsupported or delegate, "
        "each with a typed reason.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvint2eval {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_adjudicate(commands)
    _add_explain(commands)
    _add_schema(commands)
    _add_digest(commands)
    _add_diff(commands)
    return parser


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    run: Callable[[argparse.Namespace], int],
    epilog: str,
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text[0].lower() + text[1:].partition(".")[0],
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def _add_adjudicate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add_command(
        commands,
        "adjudicate",
        "Judge records and print one verdict for each.",
        _adjudicate,
        "PATH is a file with one record, a .jsonl file with one record a line, a folder (its *.json and *.jsonl, at\n"
        "any depth) or - for standard input. Standard input is taken as one record a line when its first line is a\n"
        "whole object. A record is at most 1 MiB; symbolic links are refused.\n\n"
        "The verdicts go to standard output, the tally and all complaints to standard error.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="file, folder, or - for standard input")
    command.add_argument(
        "--pins", metavar="FILE", help="pins file (TOML) to hold the records' digests against"
    )
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text for people; jsonl: one verdict a line; json: one document (default: text)",
    )
    command.add_argument(
        "--accept-delegate", action="store_true", help="exit 0 when nothing worse than delegate was met"
    )
    command.add_argument("--output", metavar="FILE", help="write the verdicts to FILE, whole or not at all")
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


def _add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add_command(
        commands,
        "explain",
        "Explain a code: what it means, an example, and how to mend it.",
        _explain,
        "CODE is a reason (KVINT2_...) or a finding. Without a code, all are listed.",
    )
    command.add_argument(
        "code", nargs="?", metavar="CODE", help="for example KVINT2_PIN_MISMATCH or cache-bytes"
    )


def _add_schema(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add_command(
        commands,
        "schema",
        "Print the JSON Schema of a contract.",
        _schema,
        "The schema describes the layout. What it cannot say stands in docs/contract-v1.md.",
    )
    command.add_argument(
        "version", nargs="?", default="v1", choices=("v1",), metavar="VERSION", help="v1 (the default)"
    )


def _add_digest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add_command(
        commands,
        "digest",
        "Print the SHA-256 of files.",
        _digest,
        "The output has the form of sha256sum: digest, two spaces, path.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="a regular file")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--text", action="store_true", help="hash text in LF form, the same on every checkout")
    how.add_argument(
        "--witness",
        action="store_true",
        help="witness digest of a v1 record: what its witness_sha256 must be",
    )


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _add_command(
        commands,
        "diff",
        "Show what differs between two records, by field.",
        _diff,
        "Exit code 0 when nothing differs, 1 when something does, 2 when a record cannot be read.",
    )
    command.add_argument("first", metavar="A", help="a file with one record")
    command.add_argument("second", metavar="B", help="another one")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 1 to 256")
    return int(text)


def _adjudicate(arguments: argparse.Namespace) -> int:
    from kvint2eval.batch import Judge  # noqa: PLC0415
    from kvint2eval.inputs import collect  # noqa: PLC0415

    judge = Judge(_report(arguments), _pins(arguments.pins))
    inputs, errors = collect(arguments.paths, lines=arguments.lines)
    for message in errors:
        _complain(message)
    if not inputs:
        return COULD_NOT_JUDGE
    if arguments.output is None:
        tally = _run(inputs, judge, sys.stdout.fileno(), arguments.jobs, len(errors))
    else:
        tally = _run_to_file(inputs, judge, arguments, len(errors))
    print(f"kvint2eval: {tally.sentence()}", file=sys.stderr)
    return tally.exit_code(accept_delegate=arguments.accept_delegate)


def _report(arguments: argparse.Namespace) -> Report:
    if arguments.format == "text":
        from kvint2eval.report.text import Text  # noqa: PLC0415

        is_terminal = arguments.output is None and sys.stdout.isatty()
        automatic = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return Text(colour=arguments.color == "always" or (arguments.color == "auto" and automatic))
    from kvint2eval.report.json_lines import JsonDocument, JsonLines  # noqa: PLC0415

    return JsonDocument() if arguments.format == "json" else JsonLines()


def _pins(path: str | None) -> Pins | None:
    if path is None:
        return None
    from kvint2eval.errors import PinsError  # noqa: PLC0415
    from kvint2eval.pins import read_pins  # noqa: PLC0415

    try:
        return read_pins(path)
    except PinsError as error:
        raise _CannotJudge(str(error)) from error


def _run(inputs: list[Input], judge: Judge, descriptor: int, jobs: int, errors: int) -> Tally:
    """Judge all inputs, writing the report to a descriptor."""
    from kvint2eval.batch import run_forked, run_serial  # noqa: PLC0415
    from kvint2eval.inputs import STDIN  # noqa: PLC0415
    from kvint2eval.report import Tally  # noqa: PLC0415

    def emit(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    sys.stdout.flush()
    sys.stderr.flush()
    emit(judge.report.start())
    if jobs > 1 and not any(source.path == STDIN for source in inputs):
        tally = run_forked(inputs, judge, descriptor, jobs)
    else:
        tally = run_serial(inputs, judge, emit, cast("BufferedReader", sys.stdin.buffer))
    tally = tally.plus(Tally(errors=errors))
    emit(judge.report.end(tally))
    return tally


def _run_to_file(inputs: list[Input], judge: Judge, arguments: argparse.Namespace, errors: int) -> Tally:
    """Judge all inputs into a file that appears, whole, only at the end."""
    target = Path(arguments.output)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.is_dir():
            raise _CannotJudge(f"--output {target}: found a folder, allowed: a file")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
    except OSError as error:
        raise _CannotJudge(f"--output {target}: {error.strerror or error}") from error
    try:
        try:
            tally = _run(inputs, judge, descriptor, arguments.jobs, errors)
        finally:
            os.close(descriptor)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return tally


def _explain(arguments: argparse.Namespace) -> int:
    from kvint2eval.explain import explain, index  # noqa: PLC0415

    if arguments.code is None:
        print(index(), end="")
        return 0
    text = explain(arguments.code)
    if text is None:
        raise _CannotJudge(f"found code {arguments.code!r}, allowed: a code that `kvint2eval explain` lists")
    print(text, end="")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from importlib import resources  # noqa: PLC0415

    name = f"{arguments.version}.schema.json"
    print(resources.files("kvint2eval.contract").joinpath(name).read_text(encoding="utf-8"), end="")
    return 0


def _digest(arguments: argparse.Namespace) -> int:
    from kvint2eval.digest import sha256_file, sha256_text_file  # noqa: PLC0415
    from kvint2eval.errors import InputError  # noqa: PLC0415
    from kvint2eval.report.escape import safe  # noqa: PLC0415

    compute = sha256_text_file if arguments.text else sha256_file
    code = 0
    for path in arguments.paths:
        try:
            digest = _witness(path) if arguments.witness else compute(path)
        except (InputError, _CannotJudge) as error:
            _complain(str(error))
            code = COULD_NOT_JUDGE
            continue
        print(f"{digest}  {safe(path)}")
    return code


def _witness(path: str) -> str:
    """Witness digest of a record, whatever witness it states."""
    from kvint2eval.adjudicate import read_subject  # noqa: PLC0415
    from kvint2eval.inputs import read_record  # noqa: PLC0415
    from kvint2eval.verdict import Finding  # noqa: PLC0415

    subject = read_subject(read_record(path))
    if isinstance(subject, Finding):
        raise _CannotJudge(
            f"{path}: no v1 record: {subject.code}: found {subject.found}, allowed: {subject.allowed}"
        )
    return subject.witness


def _diff(arguments: argparse.Namespace) -> int:
    from kvint2eval.contract.read import describe  # noqa: PLC0415
    from kvint2eval.diff import ABSENT, differences  # noqa: PLC0415
    from kvint2eval.report.escape import safe  # noqa: PLC0415

    first, second = (_parsed(path) for path in (arguments.first, arguments.second))
    code = 0
    for difference in differences(first, second):
        code = 1
        values = (difference.first, difference.second)
        shown = ("(absent)" if value is ABSENT else describe(value) for value in values)
        print(f"{safe(difference.pointer) or '(the whole record)'}: {' -> '.join(shown)}")
    return code


def _parsed(path: str) -> object:
    from kvint2eval.errors import InputError, StrictJsonError  # noqa: PLC0415
    from kvint2eval.inputs import read_record  # noqa: PLC0415
    from kvint2eval.strictjson import decode_bytes, parse_text  # noqa: PLC0415

    try:
        return parse_text(decode_bytes(read_record(path)))
    except StrictJsonError as error:
        place = "" if error.line is None else f", line {error.line}, column {error.column}"
        raise _CannotJudge(f"{path}{place}: {error}") from error
    except InputError as error:
        raise _CannotJudge(str(error)) from error


def entry() -> NoReturn:
    """Run the command and leave the process with its exit code."""
    sys.exit(main())
