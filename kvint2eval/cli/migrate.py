"""`kvint2eval migrate`: a v1 record as a skeleton of v2."""

from __future__ import annotations

import sys
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
        "migrate",
        "Lift a v1 record into a skeleton of v2.",
        run,
        "The skeleton has null for all that v1 does not say, no trials and no claims, and is delegated: a run has to\n"
        "give them. A v1 record that is unsupported is refused.",
    )
    command.add_argument("record", metavar="RECORD", help="a file with one v1 record")
    command.add_argument("--output", metavar="FILE", help="write to FILE, which is replaced as a whole")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    import json
    from pathlib import Path

    from kvint2eval.adjudication import adjudicate
    from kvint2eval.codes import Outcome
    from kvint2eval.contract.v2.migrate import migrate_v1
    from kvint2eval.errors import CanonicalFormError
    from kvint2eval.files.atomic import write_whole

    try:
        skeleton = migrate_v1(_members(arguments.record))
    except CanonicalFormError as error:
        raise CannotJudge(f"{arguments.record}: v2 cannot hold it: {error}") from error
    text = (json.dumps(skeleton, indent=2, ensure_ascii=False) + "\n").encode()
    verdict = adjudicate(text)
    if verdict.outcome is not Outcome.DELEGATE and verdict.finding is not None:
        finding = verdict.finding
        raise CannotJudge(
            f"{arguments.record}: v2 does not cover it: {finding.code} at {finding.pointer}: found {finding.found}, "
            f"allowed: {finding.allowed}"
        )
    if arguments.output is None:
        sys.stdout.write(text.decode())
        return 0
    try:
        write_whole(Path(arguments.output), text)
    except OSError as error:
        raise CannotJudge(f"--output {arguments.output}: {error.strerror or error}") from error
    return 0


def _members(path: str) -> dict[str, object]:
    """Members of a v1 record that is not unsupported."""
    from kvint2eval.adjudication import adjudicate
    from kvint2eval.codes import Outcome
    from kvint2eval.errors import InputError
    from kvint2eval.files.inputs import read_record_file
    from kvint2eval.strict_json.parse import decode_bytes, parse_text

    try:
        data = read_record_file(path)
    except InputError as error:
        raise CannotJudge(str(error)) from error
    verdict = adjudicate(data)
    if verdict.outcome is Outcome.UNSUPPORTED:
        code = verdict.finding.code if verdict.finding else ""
        raise CannotJudge(f"{path}: found a record that is unsupported ({code}), allowed: one that is not")
    if verdict.contract == "v2":
        raise CannotJudge(f"{path}: found a record of v2, allowed: one of v1")
    members: dict[str, object] = parse_text(decode_bytes(data))
    return members
