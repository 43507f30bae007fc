"""The command on records of v2: report, schema, digest, root, batch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvint2eval.cli import main
from tests.tools.regen.records_v2 import edited, text
from tests.tools.regen.vector_v2 import vector

ROOT = Path(__file__).resolve().parents[3]
VECTOR = ROOT / "testdata/records/v2/supported/vector.json"


def _run(*arguments, data=b""):
    command = [sys.executable, "-m", "kvint2eval", *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=False, cwd=ROOT)


def test_schema_of_v2(capsys):
    assert main(["schema", "v2"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:kvint2eval:contract:v2"


def test_witness_of_v2(capsys):
    assert main(["digest", "--witness", str(VECTOR)]) == 0
    assert capsys.readouterr().out.split()[0] == vector()["witness_sha256"]


@pytest.mark.parametrize("code", ["clip-at-grid-end", "KVINT2_CLAIM_REFUSED"])
def test_explain_knows_the_codes(code, capsys):
    assert main(["explain", code]) == 0
    assert "  fix      " in capsys.readouterr().out


def test_explain_says_which_contract(capsys):
    main(["explain", "trial-nmse"])
    assert "step 11 of v2" in capsys.readouterr().out


def test_text_says_what_a_supported_record_rests_on():
    shown = _run("adjudicate", str(VECTOR), "--root", "testdata").stdout.decode()
    assert "producer bound, paper declared, kernel declared" in shown
    assert "recomputed here: trial NMSE and its split" in shown
    assert "only reported: " in shown
    assert shown.count("stands") == 2


def test_json_lines_of_both_contracts_in_one_batch():
    v1 = json.loads((ROOT / "testdata/records/v1/supported/l4-published.json").read_text())
    lines = b"".join(
        json.dumps(one).encode() + b"\n" for one in (vector(), v1, vector(), {"contract_version": "x"})
    )
    done = _run("adjudicate", "-", "--lines", "--format", "jsonl", data=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["outcome"] for row in rows] == ["supported", "supported", "supported", "unsupported"]
    assert [set(row) - set(rows[1]) for row in rows] == [
        {"claims", "basis"},
        set(),
        {"claims", "basis"},
        set(),
    ]
    assert [claim["stands"] for claim in rows[0]["claims"]] == [True, True]
    assert "trials" not in json.dumps(rows[0]["record"]["measurements"])


def test_hostile_text_cannot_forge_a_line(tmp_path):
    record = edited(vector(), ("/claims/0/metric", "x\n::error::forged\r\x1b[31m\u2028"))
    path = tmp_path / "record.json"
    path.write_bytes(text(record))
    done = _run("adjudicate", str(path))
    assert done.returncode == 1
    assert not any(line.startswith(b"::") for line in done.stdout.splitlines())
    assert b"\x1b" not in done.stdout


def test_function_is_callable_after_its_module_was_imported():
    code = "import kvint2eval.batch; from kvint2eval import adjudicate; print(adjudicate(b'{}').reason)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT, text=True)
    assert done.stdout.strip() == "KVINT2_UNKNOWN_CONTRACT"
