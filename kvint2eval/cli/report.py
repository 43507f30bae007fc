"""`kvint2eval report`: judge records and show the verdicts on one HTML page."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from kvint2eval.cli.common import COULD_NOT_JUDGE, CannotJudge, add_command, add_what_holds
from kvint2eval.cli.output import Words, assemble, opened

if TYPE_CHECKING:
    from kvint2eval.cli.common import Subcommands
    from kvint2eval.report.html.section import AuditFinding

__all__ = ["add", "run"]

DETAILS = 200


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "report",
        "Judge records and show the verdicts on one HTML page.",
        run,
        "PATH is as for adjudicate. The page needs no network and holds no script. An audit named like a record,\n"
        "RECORD.audit.json for RECORD.json, is shown with it, any other by itself.\n\n"
        "Exit codes are those of adjudicate.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="file, folder, or - for standard input")
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="write the page to FILE, which is replaced as a whole",
    )
    add_what_holds(command)
    command.add_argument(
        "--audit",
        metavar="FILE",
        action="append",
        default=[],
        help="findings of `kvint2eval-producer audit --format json`; may be given several times",
    )
    command.add_argument(
        "--details",
        type=_details,
        default=DETAILS,
        metavar="N",
        help=f"records with a section of their own; the others have their row (default: {DETAILS})",
    )
    command.add_argument(
        "--accept-delegate", action="store_true", help="exit 0 when the worst outcome is delegate"
    )
    command.add_argument("--lines", action="store_true", help="every input holds one record a line")


def _details(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 0 to 999999")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from kvint2eval.batch import Judge
    from kvint2eval.cli.adjudicate import (
        judge_inputs,
        read_pins_or_complain,
        read_policy_or_complain,
        read_root_or_complain,
        say,
        say_remarks,
    )
    from kvint2eval.files.inputs import AUDIT_SUFFIX, collect
    from kvint2eval.report.html import HtmlPage

    held = (
        read_pins_or_complain(arguments.pins),
        read_root_or_complain(arguments.root),
        read_policy_or_complain(arguments.policy),
    )
    audits = {path: _read_audit(path) for path in arguments.audit}
    found = collect(arguments.paths, lines=arguments.lines)
    # An audit that lies beside its record is no record, whatever it is called and however its path is spelt.
    audited = {_same(path) for path in audits}
    found = found._replace(inputs=[one for one in found.inputs if _same(one.path) not in audited])
    say(found)
    if not found.inputs:
        return COULD_NOT_JUDGE
    records = {_stem(one.path, ".json"): one.path for one in found.inputs}
    audit_of = {
        records[_stem(name, AUDIT_SUFFIX)]: name for name in audits if _stem(name, AUDIT_SUFFIX) in records
    }
    judge = Judge(HtmlPage(arguments.details, audits, audit_of), *held, arguments.require == "bound")
    with opened(arguments.output) as descriptor:
        tally = assemble(
            judge.report,
            descriptor,
            lambda target: judge_inputs(found, judge, target, 1),
            Words("kvint2eval report", lambda tally: tally.sentence()),
        )
    say_remarks(judge.report, found)
    print(f"kvint2eval: {tally.sentence()}", file=sys.stderr)
    return tally.exit_code(accept_delegate=arguments.accept_delegate)


def _same(path: str) -> str:
    """One text for one file, however its path is spelt."""
    return os.path.realpath(path)


def _stem(path: str, suffix: str) -> str:
    """Path of a file without its suffix; the whole path, which no record's stem is, where it has another."""
    whole = _same(path)
    return whole[: -len(suffix)] if whole.lower().endswith(suffix) else whole


def _read_audit(path: str) -> tuple[AuditFinding, ...]:
    """Findings of an audit.

    Raises
    ------
    CannotJudge
        The file is not what `kvint2eval-producer audit --format json` writes.
    """
    from kvint2eval.errors import InputError, StrictJsonError
    from kvint2eval.files.inputs import read_record_file
    from kvint2eval.report.html.section import AuditFinding
    from kvint2eval.strict_json.parse import decode_bytes, parse_text

    try:
        document: Any = parse_text(decode_bytes(read_record_file(path)))
    except InputError as error:
        raise CannotJudge(f"--audit {error}") from error
    except StrictJsonError as error:
        raise CannotJudge(f"--audit {path}: {error}") from error
    findings = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(findings, list) or not all(map(_is_finding, findings)):
        raise CannotJudge(
            f"--audit {path}: found no list of findings with code and message, "
            "allowed: the output of kvint2eval-producer audit --format json"
        )
    return tuple(AuditFinding(one["code"], one["message"]) for one in findings)


def _is_finding(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("code"), str) and isinstance(one.get("message"), str)
