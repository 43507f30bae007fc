"""`kvint2eval verify`: the signatures of records, and nothing else."""

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
        "verify",
        "Check the signatures of records against a policy.",
        run,
        "Looks at the bytes of each record and at its envelope, RECORD.dsse; the record itself is not judged, and\n"
        "is not compared with the policy's producers: kvint2eval adjudicate --policy does both.\n"
        "Exit code 0 when every record is trusted, 1 when one is not, 2 when one cannot be read. Needs the extra sign.",
    )
    command.add_argument("records", nargs="+", metavar="RECORD", help="a file with one record")
    command.add_argument("--policy", metavar="FILE", required=True, help="policy file (TOML)")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.errors import InputError, PolicyError
    from kvint2eval.files.inputs import read_envelope, read_record_file
    from kvint2eval.report.escape import safe
    from kvint2eval.signing.policy import read_policy
    from kvint2eval.verdict import Finding

    try:
        policy = read_policy(arguments.policy)
    except PolicyError as error:
        raise CannotJudge(str(error)) from error
    code = 0
    for path in arguments.records:
        try:
            record = read_record_file(path)
        except InputError as error:
            complain(str(error))
            code = COULD_NOT_JUDGE
            continue
        trust = policy.verify(record, read_envelope(path))
        if isinstance(trust, Finding):
            code = code or 1
            print(
                f"untrusted  {safe(path)}  {trust.code}: found {safe(trust.found)}, allowed: {safe(trust.allowed)}"
            )
        else:
            print(f"trusted    {safe(path)}  signed by {', '.join(trust.signers)}")
    return code
