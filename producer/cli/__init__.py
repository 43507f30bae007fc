"""The command `kvint2eval-producer`: one module a subcommand, the only ones that print or exit."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from producer.cli import (
    audit,
    check,
    compare,
    doctor,
    evaluate,
    export,
    fit,
    generate,
    kernels,
    plot,
    rederive,
    run,
    trace,
)
from producer.cli.common import COULD_NOT_JUDGE, DELEGATE, INTERRUPTED, complain, print_delegation
from producer.errors import BackendUnavailableError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["build_parser", "entry", "main"]

_EPILOG = """\
exit codes:
  0  done; all fields agree (rederive, evaluate --against, check); nothing found (audit)
  1  a field disagrees (rederive, evaluate --against, check); something found (audit);
     a record that the adjudicator refuses (compare); a program that is not pinned (kernels)
  2  could not judge: wrong usage, a file that cannot be read or written, a size that does not fit
  3  delegate: the work is valid, but needs what is not here (CUDA), or the figures were modeled

examples:
  kvint2eval-producer run -o record.json
  kvint2eval-producer run --protocol published -o published.json --plot published.svg
  kvint2eval-producer rederive record.json
  kvint2eval-producer audit record.json
  kvint2eval-producer trace --model model.gguf --text a.txt -o calibration
  kvint2eval-producer evaluate --calibration calibration --trace evaluation -o schemes.json
  kvint2eval-producer check schemes.json
  kvint2eval-producer plot schemes.json -o schemes.png
  kvint2eval-producer fit --calibration calibration --scheme balanced -o balanced.safetensors
  kvint2eval-producer fit --calibration calibration --scheme oscar-centred --refine optr-paper --held-out held-out \\
      --state optr-state -o optr.safetensors
  kvint2eval-producer generate --model model.gguf --fitted balanced.safetensors --prompt-file prompt.txt
  kvint2eval-producer compare --calibration calibration --trace evaluation --dialect affine-midpoint --centred \\
    --arm quarot --fitted balanced.safetensors -o records.jsonl
"""


class _Version(argparse.Action):
    """Prints the version. The models of records, which take longer to import than all the rest, come only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from producer.record.provenance import package_version

        print(f"{parser.prog} {package_version()}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; the command page is made from it."""
    parser = argparse.ArgumentParser(
        prog="kvint2eval-producer",
        description="Makes evaluation records of 2-bit KV-cache schemes, runs published ones again, and audits "
        "how they were computed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in (
        run,
        rederive,
        audit,
        trace,
        fit,
        export,
        evaluate,
        check,
        plot,
        generate,
        compare,
        doctor,
        kernels,
    ):
        subcommand.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process by default.
    """
    arguments = build_parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = command(arguments)
        sys.stdout.flush()
    except BackendUnavailableError as error:
        print_delegation(str(error), arguments)
        code = DELEGATE
    except (ProducerError, OSError) as error:
        code = COULD_NOT_JUDGE
        if isinstance(error, BrokenPipeError):
            # The reader went away. Python would complain once more when it closes standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            complain(_words(error))
    except KeyboardInterrupt:
        complain("interrupted; no file is half written")
        code = INTERRUPTED
    except MemoryError:
        complain("out of memory: take fewer tokens or heads, or fewer --threads")
        code = COULD_NOT_JUDGE
    except Exception as error:  # noqa: BLE001  # the last line of defence: no traceback, and an exit code
        complain(f"internal fault, please report it: {type(error).__name__}: {error}")
        code = COULD_NOT_JUDGE
    return code


def _words(error: Exception) -> str:
    """Return what an error says; of one of the operating system its file and its words, not its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    files = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([*files, error.strerror])


def entry() -> NoReturn:
    """Run the command and leave the process with its exit code."""
    sys.exit(main())
