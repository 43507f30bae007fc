"""A v1 record becomes a skeleton of v2: delegated, nothing invented."""

import json
from pathlib import Path

import pytest

from kvint2eval import adjudicate
from kvint2eval.cli import main
from kvint2eval.contract.v2.migrate import migrate_v1

RECORDS = Path(__file__).resolve().parents[4] / "testdata/records"
LIFTED = [
    *(
        RECORDS / f"v1/supported/{name}.json"
        for name in ("l4-published", "l4-drifted-pin", "two-candidates", "escapes")
    ),
    *sorted((RECORDS / "v1/delegate").glob("*.json")),
]


def _values(value):
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values(one)
    else:
        yield value


@pytest.mark.parametrize("path", LIFTED, ids=lambda path: path.stem)
def test_skeleton_is_delegated(path, tmp_path, capsys):
    target = tmp_path / "v2.json"
    assert main(["migrate", str(path), "--output", str(target)]) == 0
    verdict = adjudicate(target.read_bytes())
    assert verdict.outcome == "delegate"
    assert verdict.contract == "v2"
    assert main(["migrate", str(path)]) == 0
    assert capsys.readouterr().out == target.read_text()


@pytest.mark.parametrize("path", LIFTED, ids=lambda path: path.stem)
def test_every_value_of_a_skeleton_stands_in_the_v1_record(path):
    record = json.loads(path.read_text())
    known = set(_values(record)) | {None, False, "kvint2eval/v2", "producer", "paper", "kernel"}
    skeleton = migrate_v1(record)
    made = {"carried over from a v1 record, which names no file", skeleton["witness_sha256"]}
    assert set(_values(skeleton)) - made <= known
    assert skeleton["measurements"] is None
    assert skeleton["claims"] == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("v1/unsupported/cache-bytes-one-too-high.json", "unsupported (cache-bytes)"),
        ("v2/supported/vector.json", "a record of v2, allowed: one of v1"),
        ("v1/supported/extremes.json", "v2 cannot hold it: found the integer 18446744073709551615"),
        ("v1/absent.json", "No such file"),
    ],
)
def test_other_records_are_refused_with_a_message(path, message, capsys):
    assert main(["migrate", str(RECORDS / path)]) == 2
    assert message in capsys.readouterr().err


def test_recipe_that_v2_does_not_cover_is_refused(tmp_path, capsys):
    record = json.loads((RECORDS / "v1/delegate/gpu-unnamed-empty.json").read_text())
    record["hardware"]["head_dimension"] = 64
    path = tmp_path / "v1.json"
    path.write_text(json.dumps(record))
    assert main(["migrate", str(path)]) == 2
    assert "group-size-not-divisor" in capsys.readouterr().err


def test_folder_for_an_output_is_refused(tmp_path, capsys):
    assert main(["migrate", str(LIFTED[0]), "--output", str(tmp_path)]) == 2
    assert f"--output {tmp_path}" in capsys.readouterr().err
    assert main(["migrate", str(LIFTED[0]), "--output", str(tmp_path / "absent/x")]) == 2
    assert list(tmp_path.iterdir()) == []
