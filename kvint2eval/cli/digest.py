"""`kvint2eval digest`: the SHA-256 of files, and the witness digest of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.cli.common import COULD_NOT_JUDGE, CannotJudge, add_command, complain

if TYPE_CHECKING:
    import argparse

    from kvint2eval.cli.common import Subcommands

__all__ = ["add", "run"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "digest",
        "Print the SHA-256 of files.",
        run,
        "The output has the form of sha256sum: digest, two spaces, path.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="a regular file")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--text", action="store_true", help="hash text in LF form, the same on every checkout")
    how.add_argument(
        "--witness",
        action="store_true",
        help="witness digest of a record: what its witness_sha256 must be",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.errors import InputError
    from kvint2eval.files.digest import sha256_file, sha256_text_file
    from kvint2eval.report.escape import safe

    compute = sha256_text_file if arguments.text else sha256_file
    code = 0
    for path in arguments.paths:
        try:
            digest = _witness(path) if arguments.witness else compute(path)
        except (InputError, CannotJudge) as error:
            complain(str(error))
            code = COULD_NOT_JUDGE
            continue
        print(f"{digest}  {safe(path)}")
    return code


def _witness(path: str) -> str:
    """Witness digest of a record, whatever witness it states."""
    from kvint2eval.adjudication import read_subject
    from kvint2eval.files.inputs import read_record_file
    from kvint2eval.verdict import Finding

    data = read_record_file(path)
    subject = read_subject(data)
    if isinstance(subject, Finding):
        contract = "v2" if b'"kvint2eval/v2"' in data else "v1"
        raise CannotJudge(
            f"{path}: no {contract} record: {subject.code}: found {subject.found}, allowed: {subject.allowed}"
        )
    return subject.witness
