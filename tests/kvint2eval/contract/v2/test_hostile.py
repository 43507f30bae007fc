"""Every hostile-input rule of v1 holds for v2: the same change to the bytes of a record gives the same finding."""

import json
import os
import subprocess
import sys

import pytest

from kvint2eval import adjudicate
from kvint2eval.cli import main
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES
from tests.helpers import ROOT, SHARED

V1 = (ROOT / "testdata/records/v1/supported/l4-published.json").read_bytes()
V2 = (ROOT / "testdata/records/v2/supported/vector.json").read_bytes()
SUITE = SHARED / "corpora/json-test-suite/test_parsing"

CHANGES = {
    "empty-input": lambda data: data[:0],
    "record-too-large": lambda data: data + b" " * MAX_RECORD_BYTES,
    "utf16": lambda data: data.decode().encode("utf-16"),
    "byte-order-mark": lambda data: b"\xef\xbb\xbf" + data,
    "not-utf8": lambda data: data.replace(b'"observed"', b'"observ\xe9d"'),
    "nested-too-deep": lambda data: data.replace(b'"bits": 2', b'"bits": ' + b"[" * 31 + b"]" * 31),
    "invalid-json": lambda data: data.rstrip()[:-1],
    "trailing-content": lambda data: data + b"{}",
    "duplicate-member": lambda data: data.replace(b'"bits": 2', b'"bits": 2, "b\\u0069ts": 2'),
    "not-a-number": lambda data: data.replace(b'"bits": 2', b'"bits": Infinity'),
    "number-overflow": lambda data: data.replace(b'"bits": 2', b'"bits": 2e999'),
    "negative-zero": lambda data: data.replace(b'"bits": 2', b'"bits": -0'),
    "integer-too-long": lambda data: data.replace(b'"bits": 2', b'"bits": ' + b"2" * 21),
    "lone-surrogate": lambda data: data.replace(b'"observed"', b'"\\udc00"'),
    "unknown-member": lambda data: data.replace(b'"bits": 2', b'"bits": 2, "Bits": 2'),
    "wrong-type": lambda data: data.replace(b'"bits": 2', b'"bits": true'),
    "fraction-in-integer": lambda data: data.replace(b'"bits": 2', b'"bits": 2.0'),
    "integer-out-of-range": lambda data: data.replace(b'"seed": 6260', b'"seed": -6260'),
}


@pytest.mark.parametrize("code", CHANGES)
def test_same_change_gives_the_same_finding(code):
    first, second = (adjudicate(CHANGES[code](data)) for data in (V1, V2))
    assert (first.finding.code, second.finding.code) == (code, code)
    assert first.reason == second.reason == "KVINT2_MALFORMED_RECORD"


@pytest.mark.shared
def test_texts_of_the_parsing_suite_never_raise_inside_a_v2_record():
    if not SUITE.is_dir():
        pytest.skip(f"{SUITE} is absent")
    head, tail = b'{"contract_version": "kvint2eval/v2", "recipe": ', b"}"
    for path in sorted(SUITE.iterdir()):
        assert adjudicate(head + path.read_bytes() + tail).outcome == "unsupported", path.name


def test_a_verdict_does_not_depend_on_what_else_is_in_the_batch(capfd, tmp_path):
    records = [path.read_bytes() for path in sorted((ROOT / "testdata/records/v2").rglob("*.json"))]
    lines = [json.dumps(json.loads(data)).encode() for data in records if _is_plain(data)]
    path = tmp_path / "batch.jsonl"
    path.write_bytes(b"\n".join(lines + lines[::-1]) + b"\n")
    assert main(["adjudicate", str(path), "--format", "jsonl"]) == 1
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    codes = [(row["outcome"], row["finding"] and row["finding"]["code"]) for row in shown]
    assert codes == codes[::-1]
    alone = [adjudicate(line) for line in lines]
    assert codes[: len(lines)] == [(one.outcome, one.finding and one.finding.code) for one in alone]


def _is_plain(data):
    try:
        return adjudicate(data).reason != "KVINT2_MALFORMED_RECORD"
    except ValueError:
        return False


@pytest.mark.parametrize(
    "module", ["pydantic", "jsonschema", "numpy", "cryptography", "securesystemslib", "producer"]
)
def test_adjudicating_a_v2_file_does_not_import(module):
    script = (
        "import sys\nfrom kvint2eval.cli import main\n"
        "main(['adjudicate', 'testdata/records/v2/supported/vector.json'])\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, f"{module} was imported"
