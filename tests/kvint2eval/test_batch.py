"""Batches: blocks, streams, workers, and the independence of verdicts."""

import io
import json
import os
import random

import pytest

from kvint2eval import adjudicate, batch
from kvint2eval.batch import Judge, run_forked, run_serial
from kvint2eval.files import inputs
from kvint2eval.files.inputs import Input, read_block, stream_lines
from kvint2eval.report.json_lines import JsonDocument, JsonLines
from kvint2eval.report.text import Text
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES
from tests.helpers import RECORDS, published

RECORD = json.dumps(json.loads(published())).encode()


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(batch, "BLOCK_BYTES", 100)
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 100)


def lines_of(folder):
    """One line a record of testdata, with some that are blank, damaged or too long."""
    lines = [RECORD, b"", b"{}", b"\xff", b"  " + RECORD + b"\r", b"x" * 350]
    for path in sorted(folder.rglob("*.json")):
        data = path.read_bytes()
        if b"\n" in data.strip() and len(data) < 20_000 and b"\0" not in data:
            lines.append(data.replace(b"\n", b" "))
    return lines


def run(files, report, jobs, tmp_path):
    """Report and tally of files, by one worker or by several."""
    found = [
        Input(str(path), is_lines, path.stat().st_size if path.exists() else 0) for path, is_lines in files
    ]
    if jobs == 0:
        parts = []
        tally = run_serial(found, Judge(report, None), parts.append, io.BufferedReader(io.BytesIO()))
        return b"".join(parts), tally
    target = tmp_path / "out"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        tally = run_forked(found, Judge(report, None), descriptor, jobs)
    finally:
        os.close(descriptor)
    return target.read_bytes(), tally


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("report", [JsonLines(), JsonDocument(), Text()])
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_workers_give_the_report_of_one(tmp_path, report, jobs, capfd):
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b"\n".join(lines_of(RECORDS)))
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    files = [(lines, True), (RECORDS / "supported" / "escapes.json", False), (empty, True), (lines, True)]
    files += [(tmp_path / "gone.json", False), (tmp_path / "gone.jsonl", True)]
    expected = run(files, report, 0, tmp_path)
    expected_errors = capfd.readouterr().err
    assert expected[1].errors == 3
    assert expected[1].records == 2 * len(lines_of(RECORDS)) + 1
    assert run(files, report, jobs, tmp_path) == expected
    assert capfd.readouterr().err == expected_errors


def test_a_verdict_does_not_depend_on_its_neighbours(tmp_path):
    lines = lines_of(RECORDS)
    random.Random(1).shuffle(lines)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    out, _ = run([(path, True)], JsonLines(), 0, tmp_path)
    verdicts = [json.loads(line) for line in out.splitlines()]
    assert [one["line"] for one in verdicts] == list(range(1, len(lines) + 1))
    for line, verdict in zip(lines, verdicts, strict=True):
        alone = adjudicate(line)
        assert (verdict["outcome"], verdict["reason"]) == (alone.outcome, alone.reason)
        assert (verdict["finding"] or {}).get("code") == (alone.finding.code if alone.finding else None)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_and_streams_give_the_lines_of_the_file(tmp_path, monkeypatch, seed):
    numbers = random.Random(seed)
    data = b"".join(
        b"x" * numbers.choice([0, 1, 2, 5, 30, 100]) + b"\n" * numbers.choice([0, 1, 1, 2]) for _ in range(40)
    )
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    size = numbers.choice([1, 2, 3, 7, 50, 1000])
    monkeypatch.setattr(inputs, "BLOCK_BYTES", size)
    path = tmp_path / "a"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    found = []
    for start in range(0, len(data), size):
        found += read_block(descriptor, start, min(start + size, len(data)))
    os.close(descriptor)
    assert found == expected
    head = data[: numbers.randrange(20)]
    stream = io.BufferedReader(io.BytesIO(data[len(head) :]))
    assert [line for block in stream_lines(stream, head) for line in block] == expected


@pytest.mark.parametrize("size", [1 << 18, 1 << 20, 1 << 23])
def test_a_line_longer_than_a_record_is_cut_and_refused(tmp_path, monkeypatch, size):
    monkeypatch.setattr(batch, "BLOCK_BYTES", size)
    monkeypatch.setattr(inputs, "BLOCK_BYTES", size)
    long = b'"' + b"x" * (3 * MAX_RECORD_BYTES) + b'"'
    data = b"\n".join([RECORD, long, RECORD, long])
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    out, tally = run([(path, True)], JsonLines(), 0, tmp_path)
    assert (tally.supported, tally.unsupported) == (2, 2)
    codes = [(json.loads(line)["finding"] or {}).get("code") for line in out.splitlines()]
    assert codes == [None, "record-too-large", None, "record-too-large"]
    cut = [line for block in stream_lines(io.BufferedReader(io.BytesIO(data))) for line in block]
    assert [len(line) for line in cut] == [len(RECORD), MAX_RECORD_BYTES + 1] * 2


def test_many_short_lines_are_written_in_pieces(tmp_path, monkeypatch):
    """A million blank lines are a gigabyte of findings: none of it may be held."""
    monkeypatch.setattr(batch, "_BUFFER_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" * 500)
    pieces = []
    found = [Input(str(path), is_lines=True, size=500)]
    tally = run_serial(found, Judge(JsonLines(), None), pieces.append, io.BufferedReader(io.BytesIO()))
    assert tally.unsupported == 500
    assert len(pieces) > 100
    assert max(map(len, pieces)) < 2000
    assert run([(path, True)], JsonLines(), 2, tmp_path)[0] == b"".join(pieces)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("function", "dying"), [("_judge_unit", 0), ("_load", 1), ("_load", 0)])
def test_a_dead_worker_is_no_success(tmp_path, monkeypatch, function, dying):
    """Whichever step a worker dies in, its neighbours end too, and the run fails."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n" * 500)
    whole = getattr(batch, function)

    def die(unit, *rest):
        if unit.start == 100 * dying:
            raise OSError("disk on fire")
        return whole(unit, *rest)

    monkeypatch.setattr(batch, function, die)
    with pytest.raises(RuntimeError, match="3 of 3 workers died"):
        run([(path, True)], JsonLines(), 3, tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    def fail(*_arguments):
        raise OSError(5, "Input/output error")

    path = tmp_path / "a.jsonl"
    path.write_bytes(RECORD)
    monkeypatch.setattr(inputs.os, "pread", fail)
    assert run([(path, True)], JsonLines(), 0, tmp_path)[1].errors == 1
    monkeypatch.setattr(inputs, "_read_up_to", fail)
    assert run([(path, False)], JsonLines(), 0, tmp_path)[1].errors == 1
