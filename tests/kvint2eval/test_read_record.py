"""`read_record`: the model of every well-formed record, whatever its verdict, and the finding of any other bytes."""

import json
from typing import Any

import pytest

from kvint2eval import Finding, Reason, adjudicate, read_record
from kvint2eval import adjudication as module
from kvint2eval.contract.v1.model import Record
from kvint2eval.contract.v2.model import Record as RecordV2
from tests.helpers import TESTDATA, published

FILES = [
    TESTDATA / "records" / contract / json.loads(line)["path"]
    for contract in ("v1", "v2")
    for line in (TESTDATA / f"manifest-{contract}.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_record_or_the_finding_of_step_0_or_1(path: Any) -> None:
    data = path.read_bytes()
    verdict, read = adjudicate(data), read_record(data)
    if verdict.reason in (Reason.MALFORMED_RECORD, Reason.UNKNOWN_CONTRACT):
        assert read == verdict.finding
    else:
        stated = json.loads(data)
        assert isinstance(read, RecordV2 if stated["contract_version"] == "kvint2eval/v2" else Record)
        # Every member that the text states, as it states it.
        assert json.loads(read.model_dump_json(exclude_unset=True)) == stated


def test_both_kinds_are_among_the_test_records() -> None:
    assert {type(read_record(path.read_bytes())) for path in FILES} == {Finding, Record, RecordV2}


def test_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: Any) -> None:
        pytest.fail("a rule was asked")

    monkeypatch.setattr(module, "judge_v1", judge)
    monkeypatch.setattr("kvint2eval.contract.v2.judge.judge_v2", judge)
    assert isinstance(read_record(published().replace(b"1048576", b"7")), Record)
    assert isinstance(
        read_record((TESTDATA / "records/v2/supported/vector.json").read_bytes().replace(b"r1", b"r7")),
        RecordV2,
    )


def test_place_of_what_is_no_record() -> None:
    fault = read_record(b'{"contract_version": "kvint2eval/v1",\n "colour": 2}')
    assert isinstance(fault, Finding)
    assert (fault.code, fault.pointer, fault.line, fault.column) == ("unknown-member", "/colour", 2, 12)
    assert fault == adjudicate(b'{"contract_version": "kvint2eval/v1",\n "colour": 2}').finding
