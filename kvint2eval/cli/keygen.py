"""`kvint2eval keygen`: a new key pair that signs records."""

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
        "keygen",
        "Make a key pair that signs records.",
        run,
        "Writes KEY (the private key, PEM, readable by you alone) and KEY.pub, which goes into policies. Neither is\n"
        "overwritten. Needs the extra sign.",
    )
    command.add_argument("key", metavar="KEY", help="where the private key goes")
    command.add_argument(
        "--algorithm",
        choices=("ed25519", "ecdsa-p256"),
        default="ed25519",
        help="kind of key (default: ed25519)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from pathlib import Path

    from kvint2eval.errors import SigningError
    from kvint2eval.signing.keys import generate_key, write_key_pair

    try:
        key = generate_key(arguments.algorithm)
        write_key_pair(key, Path(arguments.key))
    except SigningError as error:
        raise CannotJudge(str(error)) from error
    print(key.public.keyid)
    return 0
