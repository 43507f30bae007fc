"""`gate --update`: what it fixes, and what it leaves."""

import json
import shutil
import stat

import pytest

from kvint2eval.cli import main
from kvint2eval.files.digest import sha256_hex
from tests.helpers import published
from tests.kvint2eval.gate import site
from tests.kvint2eval.gate.test_gate import BINDINGS, edit, snapshot
from tests.tools.regen.published import BINARY


@pytest.fixture
def folder(tmp_path, monkeypatch):
    site.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_update_of_a_clean_tree_writes_nothing(folder):
    before = snapshot(folder)
    assert main(["gate", "--update"]) == 0
    assert snapshot(folder) == before


def test_update_carries_a_new_record_and_kernel_into_pages_and_pins(folder, capfd, monkeypatch):
    # The figures are chosen for their rounding: no record could hold them together.
    monkeypatch.setattr("kvint2eval.cli.gate._why_unsupported", lambda _data: None)
    record = json.loads(published())
    record["metrics"]["candidates"][0] |= {"output_nmse_mean": 5.0000005, "output_nmse_stddev": 1234.5}
    record["metrics"]["candidates"][7]["calibration_milliseconds"] = 1.5
    record["metrics"] |= {"selected_rotation": 3}
    record["runtime"]["driver"] = "600.1 beta"
    (folder / "records/l4.json").write_text(json.dumps(record, indent=1))
    (folder / "kernels/q.cu").write_bytes(b"// new\n")
    page = folder / "docs/run.md"
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    page.chmod(0o640)
    pins = (folder / "kvint2eval-pins.toml").read_text()
    assert main(["gate"]) == 1
    capfd.readouterr()
    assert main(["gate", "--update"]) == 0
    assert capfd.readouterr().err.splitlines() == [
        "kvint2eval gate: written: docs/run.md",
        "kvint2eval gate: written: README.md",
        "kvint2eval gate: written: kvint2eval-pins.toml",
        f"kvint2eval gate: {BINDINGS} bindings hold, 0 do not",
    ]
    digests = {
        sha256_hex(published()): sha256_hex((folder / "records/l4.json").read_bytes()),
        sha256_hex(site.KERNEL): sha256_hex(b"// new\n"),
    }
    expected = site.PAGE.replace("KERNEL", digests[sha256_hex(site.KERNEL)])
    for old, new in (
        ("52.353732 ± 51.571284", "5.000000 ± 1234.500000"),  # 5.0000005: half to even
        ("319.267520", "1.500000"),
        ("\n7 was", "\n3 was"),
        ("580.159.03", "600.1 beta"),
    ):
        expected = expected.replace(old, new)
    assert page.read_bytes() == expected.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    for old, new in digests.items():
        pins = pins.replace(old, new)
    assert (folder / "kvint2eval-pins.toml").read_text() == pins
    assert not list(folder.rglob("*.part"))


def test_update_mends_a_page_and_leaves_what_it_cannot_tell(folder, capfd):
    edit(folder / "docs/run.md", "**319.267520** ms", "319.2<b>6</b>7521 ms")
    edit(folder / "docs/run.md", "51.571284", "51.571285")
    edit(folder / "docs/run.md", "# The run", f"# The run\n\n{BINARY}")
    assert main(["gate", "--update"]) == 1
    out, err = capfd.readouterr()
    assert "what --update left has to be fixed by hand" in err
    assert [line.split("  ")[1].split(":")[0] for line in out.splitlines() if line[:1] != " "] == [
        "figure-differs",
        "digest-unlisted",
    ]
    assert "52.353732 ± 51.571284" in (folder / "docs/run.md").read_text()


def test_update_does_not_touch_a_digest_that_belongs_to_something_else_too(folder):
    """Two artifacts with one digest part: which of them the page means, only its author knows."""
    shutil.copy(folder / "kernels/q.cu", folder / "kernels/copy.cu")
    with (folder / "kvint2eval-pins.toml").open("a") as stream:
        stream.write(
            site.table(
                "artifact", role="kernel", id="copy", path="kernels/copy.cu", sha256=sha256_hex(site.KERNEL)
            )
        )
    (folder / "kernels/q.cu").write_bytes(b"// new\n")
    before = (folder / "docs/run.md").read_bytes()
    assert main(["gate", "--update"]) == 1
    assert (folder / "docs/run.md").read_bytes() == before


def test_update_says_what_it_cannot_write(folder, capfd, monkeypatch):
    edit(folder / "docs/run.md", "51.571284", "0")

    def fail(self, *_):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr("os.fchmod", fail)
    assert main(["gate", "--update"]) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("kind", ["gone", "link", "bytes"])
def test_update_does_not_write_a_page_that_the_gate_cannot_read(folder, capfd, kind):
    kept = (folder / "README.md").read_bytes()
    (folder / "README.md").unlink()
    if kind == "link":
        (folder / "kept").write_bytes(kept)
        (folder / "README.md").symlink_to(folder / "kept")
    elif kind == "bytes":
        (folder / "README.md").write_bytes(kept + b"\xff")
    (folder / "records/l4.json").write_bytes(published() + b"\n")
    assert main(["gate", "--update"]) == 1
    assert "page-unreadable" in capfd.readouterr().out
    if kind == "link":
        assert (folder / "kept").read_bytes() == kept


def test_two_figures_of_one_place_that_disagree_are_not_both_written(folder, capfd):
    with (folder / "kvint2eval-pins.toml").open("a") as stream:
        stream.write(
            site.table(
                "figure",
                page="docs/run.md",
                before="driver:",
                record="records/l4.json",
                pointer="/runtime/version",
            )
        )
    edit(folder / "docs/run.md", "580.159.03", "1.0")
    assert main(["gate", "--update"]) == 1
    assert capfd.readouterr().out.count("figure-differs") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('sha256 = "{}"', 'sha256 = """\\\n{}"""'),  # the digest stands on a line of its own
        ("[[artifact]]", 'id = """\n[[artifact]]\n"""'),  # a header inside a text
    ],
)
def test_update_leaves_a_pins_file_whose_lines_it_cannot_tell(folder, capfd, old, new):
    digest = sha256_hex(site.KERNEL)
    path = folder / "kvint2eval-pins.toml"
    text = path.read_text()
    if "{}" in old:
        text = text.replace(old.format(digest), new.format(digest))
    else:
        text += site.table("artifact", role="file", sha256="0" * 64, unbindable="x") + new
    path.write_text(text)
    assert main(["gate"]) == 0
    (folder / "kernels/q.cu").write_bytes(b"// new\n")
    capfd.readouterr()
    assert main(["gate", "--update"]) == 1
    assert "file-changed" in capfd.readouterr().out
    assert path.read_text() == text


def test_update_that_cannot_tell_a_place_writes_nothing(folder, capfd):
    edit(folder / "docs/run.md", "**319.267520** ms", "319.2<b>6</b>7521 ms")
    before = snapshot(folder)
    assert main(["gate", "--update"]) == 1
    assert "written" not in capfd.readouterr().err
    assert snapshot(folder) == before


def test_update_does_not_write_where_the_source_holds_a_text_more_often_than_a_reader_sees_it(folder, capfd):
    """The first 8 of the source is in a comment, and replacing it would fix nothing."""
    edit(folder / "docs/run.md", "rotation\n7 was", "rotation <!-- 8 -->\n8 was")
    before = snapshot(folder)
    assert main(["gate", "--update"]) == 1
    assert snapshot(folder) == before
    assert "docs/run.md:17  figure-differs" in capfd.readouterr().out
