"""What this project's own pages publish is what its files hold."""

import shutil

import pytest

from kvint2eval.cli import main
from kvint2eval.gate.check import Gate
from kvint2eval.gate.codes import GATE_FINDINGS
from kvint2eval.gate.tables import read_gate_file
from producer.record.provenance import source_digest
from tests.helpers import ROOT

PINS = "kvint2eval-pins.toml"
SOURCE_ROLES = ("producer", "kernel-source")


def findings(folder):
    file = read_gate_file(folder / PINS)
    return [one for binding in Gate(file, []).run() for one in binding.findings]


def test_the_pages_of_this_project_are_gated(monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    code = main(["gate"])
    out, err = capfd.readouterr()
    assert code == 0, out + err


@pytest.fixture
def copy(tmp_path):
    """The files that the pins file binds, where they may be changed."""
    file = read_gate_file(ROOT / PINS)
    names = {one.path for one in file.artifacts if one.path} | {
        one.page for one in (*file.places, *file.figures)
    }
    for name in [PINS, *names]:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
            )
        else:
            shutil.copyfile(ROOT / name, target)
    return tmp_path


def test_published_producer_digest_matches_the_producer(copy):
    """Each page publishes the digest that our sources have, and a change on either side shows."""
    file = read_gate_file(copy / PINS)
    places = [place for place in file.places if place.artifact.role in SOURCE_ROLES]
    published = {place.artifact.sha256 for place in places if place.artifact.role == "producer"}
    # The digest that the producer itself states in its records.
    assert published == {source_digest()}
    for place in places:
        artifact = place.artifact
        assert artifact.path is not None
        assert artifact.file_sha256 == artifact.sha256, "run: kvint2eval gate --update"
        assert artifact.sha256 in (copy / place.page).read_text(encoding="utf-8")
    assert findings(copy) == []
    for place in places:
        artifact = place.artifact
        target = copy / artifact.path
        source = (
            min(each for name in artifact.tree for each in target.rglob(name)) if artifact.tree else target
        )
        for path, code in ((source, "file-changed"), (copy / place.page, "digest-")):
            before = path.read_bytes()
            if path == source:
                path.write_bytes(before + b"# drift\n")
            else:
                path.write_bytes(before.replace(artifact.sha256.encode(), b"0" * 64))
            assert any(one.code.startswith(code) for one in findings(copy)), path
            path.write_bytes(before)
    assert findings(copy) == []


def test_every_bound_figure_of_this_project_is_noticed_when_its_record_changes(copy):
    file = read_gate_file(copy / PINS)
    assert len(file.figures) >= 15
    for name in {figure.record for figure in file.figures}:
        path = copy / name
        before = path.read_bytes()
        path.write_bytes(before.replace(b"1", b"3"))  # every number and digest with a 1 in it
        changed = findings(copy)
        assert any(one.code == "file-changed" for one in changed)
        assert any(one.code == "figure-differs" for one in changed)
        path.write_bytes(before)


def test_the_page_of_the_gate_lists_its_codes():
    text = (ROOT / "docs/guides/gate.md").read_text(encoding="utf-8")
    rows = [f"| `{code}` | {one.meaning} |" for code, one in GATE_FINDINGS.items()]
    assert "\n".join(rows) in text
