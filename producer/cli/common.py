"""Options, checks and readers that several subcommands share."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.backend.base import Backend
    from producer.record.reading import RecordV2
    from producer.record.v1 import Record

__all__ = [
    "COULD_NOT_JUDGE",
    "DELEGATE",
    "INTERRUPTED",
    "ProgressBar",
    "Subcommands",
    "add_backend_options",
    "add_command",
    "add_model_options",
    "add_quiet",
    "backend_for",
    "complain",
    "has_run_to_repeat",
    "note",
    "print_delegation",
    "read_repeatable",
]

COULD_NOT_JUDGE = 2
DELEGATE = 3
INTERRUPTED = 130

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""What `add_subparsers` gives; argparse has no public name for it."""

_BAR_WIDTH = 24
#: Between two lines of progress where standard error is no terminal.
_LINE_SECONDS = 30.0


def add_command(
    commands: Subcommands, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a subcommand; the first sentence of `text` is its line in the list."""
    command = commands.add_parser(
        name,
        help=text[0].lower() + text[1:].partition(".")[0],
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def add_backend_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say where a computation runs."""
    command.add_argument(
        "--backend",
        default="auto",
        choices=("auto", "numpy", "cupy"),
        help="where to compute; auto takes a GPU where there is one (default: auto)",
    )
    command.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="cores of the CPU to use; changes times and nothing else (default: all)",
    )
    command.add_argument(
        "--memory-limit",
        type=memory_size,
        metavar="BYTES",
        help="refuse what needs more, for example 4G (default: what is free)",
    )
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )
    add_quiet(command)


def add_model_options(command: argparse.ArgumentParser, *, dtype_help: str) -> None:
    """Add the options that say where and in which type a model runs."""
    command.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="where the model runs: cpu, cuda or cuda:N (default: cpu)",
    )
    command.add_argument("--dtype", metavar="TYPE", help=dtype_help)


def memory_size(text: str) -> int:
    """Return the bytes that a text such as 300000000, 300M or 4G means (K, M, G: powers of 1024)."""
    factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: digits, then nothing or one of K, M, G")
    return int(digits) * factor


def printable(message: str) -> str:
    """Return a message on one line: control characters are escaped, so that no input can forge a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)


def complain(message: str) -> None:
    """Print a message on standard error, on one line, in the place of a progress bar."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}kvint2eval-producer: error: {printable(message)}", file=sys.stderr)


def print_delegation(detail: str, arguments: argparse.Namespace, *, modeled: bool = False) -> None:
    """Print the typed delegate result on standard output."""
    from producer.record.provenance import delegation

    result = delegation(detail, modeled=modeled)
    if arguments.format == "json":
        members = {"outcome": result.outcome, "reason": result.reason, "detail": result.detail}
        print(json.dumps(members))
    else:
        print(f"{result.outcome} {result.reason}: {printable(result.detail)}")


class ProgressBar:
    """How far a run is, on standard error: a bar on a terminal, elsewhere a line every half minute.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._is_bar = sys.stderr.isatty() and not quiet
        self._is_lines = not sys.stderr.isatty() and not quiet
        self._shown_at = time.monotonic()
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show how far a run is; see `producer.system.progress.Progress`."""
        now = time.monotonic()
        # Steps that were done before are no measure of how long the others take.
        first_at, first = self._first = self._first or (now, done)
        left = ""
        if first < done < total:
            left = f", about {_words_of_time((now - first_at) / (done - first) * (total - done))} left"
        if self._is_bar:
            filled = _BAR_WIDTH * done // max(total, 1)
            bar = "#" * filled + "." * (_BAR_WIDTH - filled)
            end = "\r\033[K" if done == total else ""
            print(f"\r\033[K[{bar}] {printable(what)}{left}{end}", end="", file=sys.stderr, flush=True)
        elif self._is_lines and now - self._shown_at >= _LINE_SECONDS:
            self._shown_at = now
            print(
                f"kvint2eval-producer: {done} of {total} done{left}; next: {printable(what)}",
                file=sys.stderr,
                flush=True,
            )


def _words_of_time(seconds: float) -> str:
    """Return a time in its largest unit that is no fraction."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def add_quiet(command: argparse.ArgumentParser) -> None:
    """Add the option that silences progress."""
    command.add_argument(
        "--quiet",
        action="store_true",
        help="show no progress on standard error (default: a bar on a terminal, a line every half minute elsewhere)",
    )


def note(message: str) -> None:
    """Print on standard error what a user should know, on one line."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}note: {printable(message)}", file=sys.stderr)


def read_repeatable(arguments: argparse.Namespace) -> Record | RecordV2 | None:
    """Return the record of a command, or None after printing that there is no run to repeat.

    Raises
    ------
    RecordError
        If the file cannot be read or holds no well-formed record.
    """
    from producer.record.reading import read_record_file

    record = read_record_file(arguments.record)
    return record if has_run_to_repeat(record, arguments) else None


def backend_for(record: Record | RecordV2, arguments: argparse.Namespace) -> Backend:
    """Return where a record's computation is run again, as the options ask.

    Raises
    ------
    SpecError, RecordError, BackendUnavailableError, MemoryLimitError
        If the record names no computation that is known here, the options ask for what there is not, or the memory does
        not suffice.
    """
    from producer.backend import select_backend
    from producer.experiment.slice.memory import require_memory
    from producer.record.computation import computation

    backend = select_backend(arguments.backend, arguments.threads)
    require_memory(*computation(record), backend.workers, arguments.memory_limit)
    return backend


def has_run_to_repeat(record: Record | RecordV2, arguments: argparse.Namespace) -> bool:
    """Return whether a record has a run to repeat; print the delegation where it has none."""
    from producer.record.reading import RecordV2

    if record.evidence == "modeled":
        print_delegation(
            "the record's figures are modeled: there is no run to repeat", arguments, modeled=True
        )
        return False
    if isinstance(record, RecordV2) and record.measurements is None:
        print_delegation("the record holds no measurements: there is no run to repeat", arguments)
        return False
    return True
