"""One rule of what is judged, refused or passed over; and writes that destroy nothing."""

import errno
import os
import stat
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import pytest

from kvint2eval.cli import main
from kvint2eval.files.atomic import replacing, write_whole
from kvint2eval.files.inputs import collect
from kvint2eval.files.names import look_alike, quoted
from tests.helpers import RECORDS, ROOT, published

SUPPORTED = RECORDS / "supported" / "l4-published.json"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.json").write_bytes(published())
    return tmp_path


def names(found):
    return [one.path for one in found.inputs], [one.path for one in found.refused]


def test_links_are_refused_by_name_and_the_rest_is_judged(folder, capfd):
    for name, target in (
        ("self.json", "self.json"),
        ("dead", "nowhere"),
        ("to.json", "a.json"),
        ("up", ".."),
    ):
        (folder / "records" / name).symlink_to(target)
    found = collect(["records"])
    assert names(found) == (
        ["records/a.json"],
        [f"records/{one}" for one in ("dead", "self.json", "to.json", "up")],
    )
    assert main(["adjudicate", "records"]) == 2
    out, err = capfd.readouterr()
    assert out.count("supported    records/a.json") == 1
    assert err.count("found a symbolic link") == 4
    assert names(collect(["records/to.json", "records/up"])) == ([], ["records/to.json", "records/up"])


@pytest.mark.parametrize(
    "name", ["b.JSON", "b.Jsonl", "b.ndjson", "b.NDJSON", ".hidden.json", "build/b.json", ".x/b.json"]
)
def test_a_record_is_one_in_any_case_and_folder(folder, name):
    path = folder / "records" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    assert f"records/{name}" in names(collect(["records"]))[0]


@pytest.mark.parametrize("name", ["b.json.gz", "b.jsonl.zst", "b.JSON.GZ", "b.ndjson.xz", "b.json.dsse"])
def test_what_stands_for_a_record_that_is_not_there_is_refused(folder, name):
    (folder / "records" / name).write_bytes(b"x")
    assert names(collect(["records"])) == (["records/a.json"], [f"records/{name}"])
    assert main(["adjudicate", "records"]) == 2


@pytest.mark.parametrize("name", ["b.json.bak", "b.json5", "b.txt", "b.json~"])
def test_what_is_passed_over_is_named(folder, name, capfd):
    (folder / "records" / name).write_bytes(b"x")
    assert main(["adjudicate", "records"]) == 0
    assert f"records/{name}" in capfd.readouterr().err


@pytest.mark.parametrize(
    "paths", [["records"], ["records/a.audit.json", "records/a.json"], ["./records/../records"]]
)
def test_an_audit_is_never_judged(folder, paths, capfd):
    audit = folder / "records" / "a.audit.json"
    audit.write_text('{"findings": []}')
    assert main(["adjudicate", *paths]) == 0
    assert "an audit by its name" in capfd.readouterr().err
    audit.write_bytes(published())
    assert main(["adjudicate", *paths]) == 2
    assert "found a record that is named like an audit" in capfd.readouterr().err


def test_an_audit_is_shown_however_its_path_is_spelt(folder):
    (folder / "records" / "a.audit.json").write_text('{"findings": [{"code": "loud", "message": "heard"}]}')
    assert main(["report", "records", "-o", "r.html", "--audit", "./records/../records/a.audit.json"]) == 0
    page = (folder / "r.html").read_text()
    assert "<h4>Audit</h4>" in page
    assert "heard" in page
    (folder / "records" / "other.json").write_text('{"findings": []}')
    assert main(["report", "records", "-o", "r.html", "--audit", f"{folder}/records/other.json"]) == 0


def test_changed_files_are_taken_as_if_met_in_a_folder(folder, capfd):
    (folder / "records" / "a.json.dsse").write_text("{}")
    (folder / "records" / "notes.md").write_text("")
    assert main(["adjudicate", "--changed", "records/a.json.dsse", "records/a.json", "records/notes.md"]) == 0
    out, err = capfd.readouterr()
    assert out.count("supported    records/a.json") == 1
    assert "records/notes.md" in err
    assert main(["adjudicate", "--changed", "records/notes.md"]) == 0
    assert "no record is among the changed files" in capfd.readouterr().err
    assert main(["adjudicate", "--changed", "records/gone.json"]) == 2


def test_names_that_look_alike_are_said(folder, capfd):
    (folder / unicodedata.normalize("NFD", "ä.json")).write_bytes(published())
    assert main(["adjudicate", "ä.json"]) == 2
    assert "the same name in another Unicode form" in capfd.readouterr().err
    assert main(["adjudicate", "Records/a.json"]) == 2
    assert "the folder holds records, the same name in another case" in capfd.readouterr().err
    assert look_alike("quite/other") == ""


@pytest.mark.parametrize(
    ("path", "shown"), [("a/b.json", "a/b.json"), ("a b", '"a b"'), ("", '""'), ("x\n", '"x\\n"')]
)
def test_paths_are_quoted_where_they_could_be_misread(path, shown):
    assert quoted(path) == shown


# Writing


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o664])
def test_the_mode_of_a_file_stays(folder, mode):
    target = folder / "out"
    target.write_text("old")
    target.chmod(mode)
    write_whole(target, b"new")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", mode)


@pytest.mark.parametrize("command", [["adjudicate", "--output"], ["report", "-o"]])
def test_a_link_stays_and_leads_to_the_new_file(folder, command):
    (folder / "inner").mkdir()
    (folder / "inner" / "real").write_text("old")
    (folder / "link").symlink_to("inner/real")
    (folder / "chain").symlink_to("link")
    (folder / "fresh").symlink_to("inner/absent")
    for name in ("chain", "fresh"):
        assert main([*command, name, "records"]) == 0
        assert (folder / name).is_symlink()
        assert (folder / name).stat().st_size > 50
    assert (folder / "link").is_symlink()
    (folder / "loop").symlink_to("loop")
    assert main([*command, "loop", "records"]) == 2


@pytest.mark.parametrize("command", [["adjudicate", "--output"], ["report", "-o"]])
def test_devices_are_written_through(folder, command, capfd):
    before = Path("/dev/null").stat()
    assert main([*command, "/dev/null", "records"]) == 0
    after = Path("/dev/null").stat()
    assert (before.st_ino, before.st_rdev, before.st_mode) == (after.st_ino, after.st_rdev, after.st_mode)
    capfd.readouterr()
    assert main([*command, "/dev/full", "records"]) == 2
    assert "--output /dev/full: No space left on device" in capfd.readouterr().err
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert folder.is_dir()


@pytest.mark.parametrize("arguments", [[], ["--jobs", "2"], ["--format", "junit"], ["--format", "jsonl"]])
def test_a_full_disk_is_an_error_with_its_words(folder, arguments):
    command = [sys.executable, "-m", "kvint2eval", "adjudicate", str(folder / "records"), *arguments]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, cwd=ROOT)
        nowhere = subprocess.run(command, stdout=full, stderr=full, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"internal fault" not in done.stderr
    assert nowhere.returncode == 2


def test_a_pipe_is_written_through(folder):
    os.mkfifo("pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((folder / "pipe").read_bytes()))
    reader.start()
    assert main(["adjudicate", "records", "--output", "pipe"]) == 0
    reader.join()
    assert read[0].startswith(b"supported    records/a.json")
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused(folder, monkeypatch):
    os.mkfifo("pipe")
    monkeypatch.setattr("kvint2eval.files.atomic._PIPE_SECONDS", 0.0)
    with pytest.raises(OSError, match="a pipe without a reader") as raised, replacing(folder / "pipe"):
        pass
    assert raised.value.errno == errno.ENXIO


def test_standard_output_by_its_path_is_not_replaced(folder):
    target = folder / "shell.txt"
    command = f"{sys.executable} -m kvint2eval adjudicate {SUPPORTED} --output /dev/stdout; echo after"
    with target.open("wb") as stream:
        subprocess.run(["bash", "-c", command], stdout=stream, check=True, cwd=ROOT)  # noqa: S607
    assert target.read_text().startswith("supported")
    assert target.read_text().endswith("after\n")


def test_what_cannot_be_written_is_refused(folder, monkeypatch):
    (folder / "closed").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # noqa: ARG005
    with pytest.raises(PermissionError), replacing(folder / "closed"):
        pass
    assert (folder / "closed").read_text() == "old"
    assert sorted(os.listdir(folder)) == ["closed", "records"]  # noqa: PTH208
