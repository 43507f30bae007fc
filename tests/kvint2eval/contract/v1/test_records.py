"""The records of testdata: each gives what the manifest says, and each code has one."""

import json
import sys

import pytest

from kvint2eval import adjudicate, read_pins
from kvint2eval.codes import FINDINGS, REASONS, Reason
from kvint2eval.strict_json.diff import differences
from kvint2eval.strict_json.parse import decode_bytes, parse_text
from tests.helpers import RECORDS, TESTDATA, manifest
from tests.tools.regen.artifacts import artifacts

ROWS = manifest()


def judge(row):
    pins = read_pins(TESTDATA / "pins" / row["pins"]) if row["pins"] else None
    return adjudicate((RECORDS / row["path"]).read_bytes(), pins=pins)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_record_gives_its_verdict(row):
    verdict = judge(row)
    assert (verdict.outcome, verdict.reason) == (row["outcome"], row["reason"])
    assert (verdict.finding.code if verdict.finding else None) == row["finding"]
    # A result that is not supported carries no metrics.
    assert ("metrics" in verdict.echo) == (verdict.outcome == "supported")
    assert (verdict.record is not None) == (verdict.outcome == "supported")


@pytest.mark.parametrize("row", [row for row in ROWS if row["twin"]], ids=lambda row: row["path"])
def test_twin_is_accepted_and_differs_in_one_place(row):
    twin = next(one for one in ROWS if one["path"] == row["twin"])
    assert judge(twin).outcome == "supported"
    if row["pins"] or row["reason"] == Reason.MALFORMED_RECORD:
        return  # differs in the pins, or in the bytes
    first, second = (json.loads((RECORDS / one["path"]).read_bytes()) for one in (row, twin))
    assert len(list(differences(first, second))) == 1


def test_each_code_has_a_record():
    of_v1 = {code for code in FINDINGS.values() if "v1" in code.steps}
    assert {row["finding"] for row in ROWS} - {None} == of_v1
    assert {row["reason"] for row in ROWS} == {code.reason for code in of_v1} | {Reason.SUPPORTED}
    assert set(REASONS) == set(Reason)
    assert all(code.example and code.meaning and code.mend for code in FINDINGS.values())


def test_each_record_of_the_folder_is_listed():
    assert sorted(str(path.relative_to(RECORDS)) for path in RECORDS.rglob("*.json")) == sorted(
        row["path"] for row in ROWS
    )


@pytest.mark.parametrize("artifact", list(artifacts()), ids=lambda artifact: artifact.path)
def test_generated_file_is_up_to_date(artifact):
    if artifact.path == "docs/reference/cli.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("argparse lays out its help in another way; the page is made with Python 3.11")
    path = TESTDATA.parent / artifact.path
    assert path.read_bytes() == artifact.make(), f"{artifact.path} differs: run `make regen`"


def test_places_are_those_of_the_text():
    for row in ROWS:
        finding = judge(row).finding
        if finding is None or not finding.pointer or finding.line is None:
            continue
        text = decode_bytes((RECORDS / row["path"]).read_bytes())
        rest = "\n".join(text.split("\n")[finding.line - 1 :])[finding.column - 1 :]
        value = parse_text(text)
        for step in finding.pointer.split("/")[1:]:
            inner = value[int(step)] if isinstance(value, list) else value.get(step)
            if inner is None and step not in value:
                break  # missing: the place is that of the object that lacks it
            value = inner
        read, _ = json.JSONDecoder().raw_decode(rest)
        assert read == value, row["path"]
