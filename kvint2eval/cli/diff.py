"""`kvint2eval diff`: the differences between two records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import CannotJudge, add_command

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "diff",
        "Show what differs between two records, by field.",
        run,
        "Exit code 0 when nothing differs, 1 when something does, 2 when a record cannot be read.",
    )
    command.add_argument("first", metavar="A", help="a file with one record")
    command.add_argument("second", metavar="B", help="another one")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.report.escape import safe
    from kvint2eval.strict_json.describe import describe
    from kvint2eval.strict_json.diff import ABSENT, differences

    first, second = (_parsed(path) for path in (arguments.first, arguments.second))
    code = 0
    for difference in differences(first, second):
        code = 1
        values = (difference.first, difference.second)
        shown = ("(absent)" if value is ABSENT else describe(value) for value in values)
        print(f"{safe(difference.pointer) or '(the whole record)'}: {' -> '.join(shown)}")
    return code


def _parsed(path: str) -> object:
    from kvint2eval.errors import InputError, StrictJsonError
    from kvint2eval.files.inputs import read_record_file
    from kvint2eval.strict_json.parse import decode_bytes, parse_text

    try:
        return parse_text(decode_bytes(read_record_file(path)))
    except StrictJsonError as error:
        place = "" if error.line is None else f", line {error.line}, column {error.column}"
        raise CannotJudge(f"{path}{place}: {error}") from error
    except InputError as error:
        raise CannotJudge(str(error)) from error
