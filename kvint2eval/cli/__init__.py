"""The command `kvint2eval`: one module a subcommand, the only ones that print or exit.

What a run does not need is imported inside the subcommand that does: the command is started once per record
in many CI systems, and its start is most of its time.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from kvint2eval._version import __version__
from kvint2eval.cli import (
    adjudicate,
    diff,
    digest,
    explain,
    gate,
    keygen,
    migrate,
    report,
    schema,
    sign,
    verify,
)
from kvint2eval.cli.common import COULD_NOT_JUDGE, INTERRUPTED, CannotJudge, complain
from kvint2eval.files.names import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["build_parser", "entry", "main"]

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


def build_parser() -> argparse.ArgumentParser:
    """Parser of the command line; the command page is made from it."""
    parser = argparse.ArgumentParser(
        prog="kvint2eval",
        description="Adjudicates evaluation records of 2-bit KV-cache schemes: supported, unsupported or delegate, "
        "each with a typed reason.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvint2eval {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in (
        adjudicate,
        report,
        gate,
        explain,
        schema,
        digest,
        diff,
        migrate,
        keygen,
        sign,
        verify,
    ):
        subcommand.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    argv
        Arguments without the program's name; None takes those of the process.
    """
    arguments = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except CannotJudge as fault:
        complain(str(fault))
        return COULD_NOT_JUDGE
    except BrokenPipeError:
        _drop_output()
        return COULD_NOT_JUDGE
    except OSError as fault:
        _drop_output()
        where = "standard output" if fault.filename is None else quoted(str(fault.filename))
        complain(f"{where}: {fault.strerror or fault}")
        return COULD_NOT_JUDGE
    except KeyboardInterrupt:
        complain("interrupted; an --output file is as it was before")
        return INTERRUPTED
    except Exception as fault:  # noqa: BLE001  # the last line of defence: no traceback, and an exit code of its own
        complain(f"internal fault, please report it: {type(fault).__name__}: {fault}")
        return COULD_NOT_JUDGE
    return code


def _drop_output() -> None:
    """Let what standard output still holds go: Python would complain once more when it closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> NoReturn:
    """Run the command and leave the process with its exit code."""
    sys.exit(main())
