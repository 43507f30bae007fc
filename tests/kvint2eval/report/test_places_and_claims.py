"""Paths from the repository's root, identities of SARIF results, its limit, and claims in every format."""

import json

import pytest
from lxml import etree

from kvint2eval import Record, adjudicate
from kvint2eval.cli import main
from kvint2eval.report import sarif
from tests.helpers import ROOT, TESTDATA, published

VECTOR = TESTDATA / "records/v2/supported/vector.json"
CLAIM = json.loads(VECTOR.read_bytes())["claims"][0]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "bad.json").write_bytes(b"{}")
    (tmp_path / "a" / "bad.jsonl").write_bytes(b"{}\n{}\n[]\n")
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def results(paths, capfd, *options):
    main(["adjudicate", *map(str, paths), "--format", "sarif", *options])
    (only,) = json.loads(capfd.readouterr().out)["runs"]
    return only


def test_one_file_has_one_path_and_one_identity_however_it_is_typed(repository, capfd):
    spelt = ["../bad.json", "./../bad.json", repository / "a" / "bad.json", "../../a/b/../bad.json"]
    seen = set()
    for path in spelt:
        (one,) = results([path], capfd)["results"]
        uri = one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        seen.add((uri, *one["partialFingerprints"].values()))
        main(["adjudicate", str(path), "--format", "github"])
        assert "file=a/bad.json," in capfd.readouterr().out
    assert len(seen) == 1
    assert seen.pop()[0] == "a/bad.json"
    (one,) = results(["../bad.json"], capfd, "--path-root", "..")["results"]
    assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "bad.json"


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_records_of_one_file_are_told_apart(repository, capfd, jobs):
    found = results(["../bad.jsonl", "../bad.json"], capfd, "--jobs", jobs)
    assert found["automationDetails"] == {"id": "kvint2eval/adjudicate/"}
    assert len({*(one["partialFingerprints"]["kvint2evalFinding/v2"] for one in found["results"])}) == 4
    assert repository.is_dir()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_too_many_results_are_cut_and_said(repository, capfd, monkeypatch, jobs):
    monkeypatch.setattr(sarif, "MAX_RESULTS", 2)
    main(["adjudicate", "..", "--format", "sarif", "--jobs", jobs])
    out, err = capfd.readouterr()
    (only,) = json.loads(out)["runs"]
    (note,) = only["invocations"][0]["toolExecutionNotifications"]
    assert len(only["results"]) == 2
    assert note["message"]["text"].startswith("2 results are left out")
    assert "2 results are left out" in err
    assert repository.is_dir()


@pytest.mark.parametrize("name", ["text", "jsonl", "json", "sarif", "junit", "github", "html"])
def test_a_claim_is_shown_whole_in_every_format(tmp_path, name):
    target = tmp_path / "out"
    command = ["report"] if name == "html" else ["adjudicate", "--format", name]
    main([*command, str(VECTOR), "--output", str(target)])
    text = target.read_text().replace("%25", "%")  # as the runner of GitHub Actions reads it
    if name == "junit":
        assert etree.fromstring(text.encode()).find(".//system-out").text
    if name in ("jsonl", "json"):
        document = json.loads(text)
        (shown, *_) = (document if name == "jsonl" else document["verdicts"][0])["claims"]
        stated = {key: shown[key] for key in ("value", "low", "high", "level", "candidate", "baseline")}
        assert stated == {key: CLAIM[key] for key in stated}
        assert (shown["bits"], shown["unit"]) == (2, "")
        return
    for part in (f"{CLAIM['value']:.6g}", f"{CLAIM['low']:.6g} to {CLAIM['high']:.6g}", "95 % interval", "2 bits",
                 f"of {CLAIM['candidate']} is below that of {CLAIM['baseline']}", "a ratio, no unit"):  # fmt: skip
        assert part in text, part


def test_a_model_takes_what_json_gives():
    assert Record.model_validate(json.loads(published())) == adjudicate(published()).record


def test_a_text_is_answered_with_what_is_wanted():
    with pytest.raises(TypeError, match="found str, allowed: bytes"):
        adjudicate(published().decode())
    assert ROOT.is_dir()
