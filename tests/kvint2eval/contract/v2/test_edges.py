"""Corners of v2 that no record of testdata reaches: bindings of both kinds, records of odd shapes, a missing extra."""

import json
import sys
from pathlib import Path

import pytest

from kvint2eval import adjudicate
from kvint2eval.cli import main
from kvint2eval.errors import InputError, PolicyError, SigningError
from kvint2eval.pins.pins import parse_pins
from kvint2eval.pins.root import Root
from kvint2eval.signing.keys import generate_key
from kvint2eval.signing.policy import read_policy
from tests.tools.regen.records_v2 import edited, text
from tests.tools.regen.vector_v2 import claim, sealed, vector

TESTDATA = Path(__file__).resolve().parents[4] / "testdata"
BASE = vector()
PINNED = BASE["artifacts"][0]["sha256"]


def _pins(*artifacts):
    tables = {"format": "kvint2eval-pins/v1", "artifact": list(artifacts)}
    return parse_pins(tables, TESTDATA / "pins")


@pytest.mark.parametrize(
    ("pins", "root", "levels"),
    [
        (None, TESTDATA, ["bound", "declared", "declared"]),
        (
            _pins({"role": "producer", "sha256": PINNED, "path": "pinned.txt"}),
            None,
            ["bound", "declared", "declared"],
        ),
        # A pin without a file leaves it to the root.
        (
            _pins({"role": "producer", "sha256": PINNED, "unbindable": "kept elsewhere"}),
            TESTDATA,
            ["bound", "declared", "declared"],
        ),
        (
            _pins({"role": "producer", "sha256": PINNED, "unbindable": "kept elsewhere"}),
            None,
            ["declared", "declared", "declared"],
        ),
        (_pins({"role": "weights", "sha256": PINNED, "unbindable": "x"}), None, ["declared"] * 3),
    ],
)
def test_levels_of_binding(pins, root, levels):
    verdict = adjudicate(text(BASE), pins=pins, root=root and Root(root))
    assert verdict.outcome == "supported"
    assert [binding.level for binding in verdict.bindings] == levels
    assert all(binding.why for binding in verdict.bindings if binding.level == "declared")


def test_file_is_hashed_once_for_many_records():
    root = Root(TESTDATA)
    for _ in range(2):
        assert adjudicate(text(BASE), root=root).outcome == "supported"
    assert len(root._digests) == 1


def test_root_has_to_be_a_folder(tmp_path):
    with pytest.raises(InputError, match="found no folder"):
        Root(tmp_path / "absent")


@pytest.mark.parametrize("trials", [1, 257])
def test_number_of_trials_has_bounds(trials):
    record = vector(trials, claims=False)
    assert adjudicate(text(record)).finding.code == "trial-count"


def test_largest_number_of_trials_is_judged():
    record = vector(256, 2, claims=False)
    record["claims"] = [claim(record)]
    assert adjudicate(text(sealed(record))).outcome == "supported"


def test_object_in_the_place_of_a_part_is_named():
    finding = adjudicate(text(edited(BASE, ("/recipe", [])))).finding
    assert (finding.code, finding.pointer, finding.allowed) == ("wrong-type", "/recipe", "an object")
    finding = adjudicate(text(edited(BASE, ("/recipe/dialect", 7)))).finding
    assert (finding.code, finding.allowed) == ("wrong-type", "an object or null")
    finding = adjudicate(text(edited(BASE, ("/recipe/rotations/0/seed", "x")))).finding
    assert finding.allowed == "an unsigned integer or null"


def test_digest_of_another_alphabet_is_malformed():
    finding = adjudicate(text(edited(BASE, ("/artifacts/2/sha256", "g" * 64)))).finding
    assert (finding.code, finding.allowed) == ("digest-malformed", "64 lower-case hexadecimal characters")


def test_unsigned_file_of_no_record_is_not_signed(tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text("[]")
    assert main(["sign", str(path), "--key", "absent"]) == 2
    assert "nothing was signed" in capsys.readouterr().err


def test_folder_that_cannot_be_written_ends_with_a_message(tmp_path, capsys, monkeypatch):
    assert main(["keygen", str(tmp_path / "key")]) == 0
    path = tmp_path / "x.json"
    path.write_bytes(text(BASE))

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvint2eval.files.atomic.write_whole", refuse)
    assert main(["sign", str(path), "--key", str(tmp_path / "key")]) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_policy_file_has_a_size(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(PolicyError, match="found more than"):
        read_policy(path)
    path.write_text("a = " + "[" * 5000)
    with pytest.raises(PolicyError, match="nested too deep"):
        read_policy(path)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "securesystemslib.signer", None)
    with pytest.raises(SigningError, match="need the extra sign"):
        generate_key("ed25519")


def test_verdict_of_a_delegated_run_keeps_its_basis():
    run = (TESTDATA / "runs/paired.json").read_bytes()
    assert adjudicate(run).basis is not None
    skeleton = edited(json.loads(run), ("/measurements", None), ("/claims", []))
    assert adjudicate(text(skeleton)).basis is None
