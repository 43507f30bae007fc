"""`kvint2eval sign`: a signature for a record."""

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
        "sign",
        "Sign a record: write or extend the DSSE envelope beside it.",
        run,
        "The envelope of RECORD is RECORD.dsse: an in-toto Statement v1 about the SHA-256 of the file. Where it is\n"
        "there already, a signature is added to it. Signing says who vouches, not that the record is supported: its\n"
        "verdict is printed on standard error. Needs the extra sign.",
    )
    command.add_argument("record", metavar="RECORD", help="a file with one record")
    command.add_argument(
        "--key", metavar="KEY", required=True, help="private key, as kvint2eval keygen writes it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from pathlib import Path

    from kvint2eval.errors import InputError, SigningError
    from kvint2eval.files.atomic import write_whole
    from kvint2eval.files.inputs import ENVELOPE_SUFFIX, read_record_file
    from kvint2eval.signing.envelope import EnvelopeFault, dump_envelope
    from kvint2eval.signing.keys import read_private_key, sign_statement

    target = Path(arguments.record + ENVELOPE_SUFFIX)
    try:
        record = read_record_file(arguments.record)
        version = _version(arguments.record, record)
        key = read_private_key(arguments.key)
        before = read_record_file(str(target)) if target.exists() or target.is_symlink() else None
        statement = _statement(Path(arguments.record).name, record, version, before)
        write_whole(target, dump_envelope(sign_statement(statement, key, before)))
    except (InputError, SigningError) as error:
        raise CannotJudge(str(error)) from error
    except EnvelopeFault as fault:
        raise CannotJudge(f"{target}: {fault}") from fault
    except OSError as error:
        raise CannotJudge(f"{target}: {error.strerror or error}") from error
    print(f"{key.public.keyid}  {target}")
    return 0


def _version(path: str, record: bytes) -> str:
    """Contract of a record that can be read; its verdict goes to the log."""
    from kvint2eval.adjudication import adjudicate

    verdict = adjudicate(record)
    if not verdict.echo:
        raise CannotJudge(f"{path}: no record of a known contract: {verdict.reason}; nothing was signed")
    print(f"kvint2eval: signing a record that is {verdict.outcome}: {verdict.reason}", file=sys.stderr)
    return str(verdict.echo["contract_version"])


def _statement(name: str, record: bytes, version: str, before: bytes | None) -> bytes:
    """The Statement that others signed, where it is about this record, else a new one."""
    from kvint2eval.signing.envelope import build_statement, check_statement, parse_envelope

    if before is None:
        return build_statement(name, record, version)
    envelope = parse_envelope(before)
    check_statement(envelope.payload, record)
    return envelope.payload
