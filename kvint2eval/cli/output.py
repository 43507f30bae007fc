"""Output targets: standard output, or a file that is replaced as a whole; and the formats for CI."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from kvint2eval.cli.common import CannotJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvint2eval.report.model import CiReport, Frame, Tally

__all__ = ["CI_FORMATS", "Words", "assemble", "ci_report", "opened", "step_summary", "write_all"]

CI_FORMATS = ("sarif", "junit", "github")


@contextmanager
def opened(path: str | None) -> Iterator[int]:
    """Descriptor for the output: standard output, or a temporary file that takes the place of `path` at the end.

    Raises
    ------
    CannotJudge
        The file cannot be written.
    """
    if path is None:
        sys.stdout.flush()
        try:
            yield sys.stdout.fileno()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotJudge(f"standard output: {error.strerror or error}") from error
        return
    from pathlib import Path  # takes a sixth of the command's start

    from kvint2eval.files.atomic import replacing
    from kvint2eval.files.names import quoted

    if Path(path).is_dir():
        raise CannotJudge(f"--output {quoted(path)}: found a folder, allowed: a file")
    try:
        with replacing(Path(path)) as descriptor:
            yield descriptor
    except OSError as error:
        raise CannotJudge(f"--output {quoted(path)}: {error.strerror or error}") from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of some bytes, however few the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _now() -> int:
    """Unix time of the run; SOURCE_DATE_EPOCH stands in for it where outputs must not differ."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(epoch) if epoch.isascii() and epoch.isdecimal() and len(epoch) < 12 else int(time.time())


def ci_report(name: str, command: str, path_root: str | None = None) -> CiReport:
    """Report of one of `CI_FORMATS`.

    Parameters
    ----------
    name
        The format.
    command
        The subcommand that runs.
    path_root
        Folder that paths are told from; None for the root of the repository.
    """
    from kvint2eval.report.place import PathRoot

    if name == "sarif":
        from kvint2eval.report.sarif import Sarif

        return Sarif(command, PathRoot(path_root))
    if name == "junit":
        from kvint2eval.report.junit import Junit

        return Junit(f"kvint2eval {command}", _now())
    from kvint2eval.report.github import Github

    return Github(with_summary=step_summary(name) is not None, root=PathRoot(path_root))


def step_summary(name: str) -> str | None:
    """File for the step summary of GitHub Actions; None for another format, or outside of it."""
    return os.environ.get("GITHUB_STEP_SUMMARY") or None if name == "github" else None


class Words(NamedTuple):
    """What a step summary says above its table."""

    title: str
    sentence: Callable[[Tally], str]


def assemble(
    report: Frame,
    descriptor: int,
    write_pieces: Callable[[int], Tally],
    words: Words,
    summary_path: str | None = None,
) -> Tally:
    """Write a whole report; what needs the tally first waits in a temporary file, so memory stays bounded.

    Parameters
    ----------
    report
        Gives head and foot.
    descriptor
        Open for writing.
    write_pieces
        Writes all pieces to a descriptor and gives the tally.
    words
        For the step summary.
    summary_path
        The file that the step summary is appended to.
    """
    if not report.needs_tally and summary_path is None:
        write_all(descriptor, report.start())
        tally = write_pieces(descriptor)
        write_all(descriptor, report.end(tally))
        return tally
    import tempfile  # takes longer to import than most of the command

    with tempfile.TemporaryFile() as body:
        tally = write_pieces(body.fileno())
        body.seek(0)
        write_all(descriptor, report.head(tally) + report.start())
        if summary_path is None:
            for line in report.sift(body):
                write_all(descriptor, line)
        else:
            rows = _without_rows(body, descriptor)
            _append(summary_path, words, tally, rows)
    write_all(descriptor, report.end(tally))
    return tally


def _without_rows(body: IO[bytes], descriptor: int) -> Iterator[bytes]:
    """Write the lines of a report, except those for the step summary, which are given."""
    from kvint2eval.report.github import SUMMARY_MARK

    for line in body:
        if line.startswith(SUMMARY_MARK):
            yield line.removeprefix(SUMMARY_MARK)
        else:
            write_all(descriptor, line)


def _append(path: str, words: Words, tally: Tally, rows: Iterator[bytes]) -> None:
    from pathlib import Path

    from kvint2eval.report.github import summary

    text = summary(words.title, words.sentence(tally), rows)
    try:
        with Path(path).open("ab") as stream:
            stream.write(text)
    except OSError as error:
        raise CannotJudge(f"step summary {path}: {error.strerror or error}") from error
