"""The docs gate: what it holds, what it refuses, that it never writes, and what --update fixes."""

import json
import os
import stat

import pytest

from kvint2eval.cli import main
from kvint2eval.files.digest import sha256_hex
from kvint2eval.gate.codes import GATE_FINDINGS
from tests.helpers import published
from tests.kvint2eval.gate import site
from tests.tools.regen.published import BINARY, PRODUCER

# 3 artifacts, one without a file; 3 places; 11 figures; 2 pages
BINDINGS = 2 + 3 + 11 + 2

UPPER = PRODUCER.upper()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    site.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def findings(capfd, *arguments):
    """Exit code and the (code, file, line, found, expected) of each finding, in order."""
    code = main(["gate", "--format", "jsonl", *arguments])
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert all(line["format"] == "kvint2eval-gate/v1" for line in lines)
    assert all(line["holds"] == (not line["findings"]) for line in lines)
    found = [
        (one["code"], one["path"], one["line"], one["found"], one["expected"])
        for line in lines
        for one in line["findings"]
    ]
    return code, found


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.usefixtures("folder")
def test_the_published_page_holds(capfd):
    assert main(["gate"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"kvint2eval gate: {BINDINGS} bindings hold, 0 do not\n")


@pytest.mark.parametrize(
    ("old", "new", "line", "found", "expected"),
    [
        ("51.571284", "51.571285", 13, "52.353732 ± 51.571285", "52.353732 ± 51.571284"),
        ("52.353732 ± 51.571284", "", 13, "nothing", "52.353732 ± 51.571284"),
        ("52.353732 ±", "52.353732 +-", 13, "52.353732 +- 51.571284", "52.353732 ± 51.571284"),
        ("19,187.186", "19,187.185", 14, "19,187.185 ± 740.247 us", "19,187.186 ± 740.247 us"),
        ("**319.267520**", "**319.26752**", 11, "319.26752 ms", "319.267520 ms"),
        ("| 1.959262", "| -1.959262", 13, "-1.959262 ± 0.431511", "1.959262 ± 0.431511"),
        ("1,048,576 bytes | 1", "1048576 bytes | 1", 12, "1048576 bytes", "1,048,576 bytes"),
        ("\n7 was", "\n8 was", 17, "8", "7"),
        ("\n7 was", "\nseven was", 17, "seven", "7"),
        ("580.159.03", "580.159.3", 20, "580.159.3", "580.159.03"),
        ("580.159.03", "580.159.031", 20, "580.159.031", "580.159.03"),
        ("580.159.03", "580.159.03.1", 20, "580.159.03.1", "580.159.03"),
    ],
)
def test_an_edited_figure_is_refused_with_its_line(folder, capfd, old, new, line, found, expected):
    edit(folder / "docs/run.md", old, new)
    code, seen = findings(capfd)
    assert code == 1
    assert seen == [("figure-differs", "docs/run.md", line, found, expected)]


def test_an_edited_record_is_refused_at_its_pin_and_at_each_figure(folder, capfd):
    edit(folder / "records/l4.json", '"output_nmse_stddev": 51.571284', '"output_nmse_stddev": 51.5')
    code, seen = findings(capfd)
    assert code == 1
    changed = sha256_hex((folder / "records/l4.json").read_bytes())
    assert seen == [
        ("file-changed", "kvint2eval-pins.toml", 5, changed, sha256_hex(published())),
        (
            "record-unsupported",
            "records/l4.json",
            None,
            "KVINT2_FIXTURE_DIGEST_MISMATCH, witness-mismatch at /witness_sha256",
            "a record that is not unsupported",
        ),
        ("figure-differs", "docs/run.md", 13, "52.353732 ± 51.571284", "52.353732 ± 51.500000"),
    ]


def test_an_edited_artifact_is_refused_though_no_page_changed(folder, capfd):
    (folder / "kernels/q.cu").write_bytes(site.KERNEL + b"//\n")
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, ["file-changed"])


def test_a_text_artifact_of_a_crlf_checkout_is_the_same(folder, capfd):
    (folder / "kernels/q.cu").write_bytes(site.KERNEL.replace(b"\n", b"\r\n"))
    page = folder / "docs/run.md"
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert findings(capfd) == (0, [])


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("records/l4.json", ["file-missing"] + ["pointer-missing"] * 11),
        ("kernels/q.cu", ["file-missing"]),
        ("docs/run.md", ["page-unreadable"] * 14),
        ("README.md", ["page-unreadable"] * 2),
    ],
)
@pytest.mark.parametrize("kind", ["gone", "link", "folder"])
def test_a_missing_file_is_refused(folder, capfd, name, codes, kind):
    path = folder / name
    (folder / "kept").write_bytes(path.read_bytes())
    (folder / "docs/other.md").write_text("So that the folder of pages is not empty.\n")
    path.unlink()
    if kind == "link":
        path.symlink_to(folder / "kept")
    elif kind == "folder":
        path.mkdir()
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, codes)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # changed at a bound place: no longer the pinned one, and nobody's
        (PRODUCER, BINARY, [("digest-differs", 4, BINARY), ("digest-unlisted", 4, BINARY)]),
        (PRODUCER, UPPER, [("digest-differs", 4, UPPER), ("digest-unlisted", 4, UPPER)]),
        (f"`{PRODUCER}`", "not known", [("digest-differs", 4, "not known; the program was not kept.")]),
        # a new one, wherever it stands
        ("# The run", f"# The run\n\n{BINARY}", [("digest-unlisted", 3, BINARY)]),
        ("# The run", f"# The run\n\n<!-- {BINARY} -->", [("digest-unlisted", 3, BINARY)]),
        ("# The run", f"# The run\n\n[a]: http://x/{BINARY}", [("digest-unlisted", 3, BINARY)]),
        ("driver:", f"driver: 1\n{BINARY}\ndriver:", [("anchor-ambiguous", 20, None), ("digest-unlisted", 21, BINARY)]),
        # put together by markup, which a reader does not see
        ("# The run", f"# The run\n\nx\n{BINARY[:9]}**{BINARY[9:]}**", [("digest-unlisted", 4, BINARY)]),
        ("# The run", f"# The run\n\n&#x{ord(BINARY[0]):x};{BINARY[1:]}", [("digest-unlisted", 3, BINARY)]),
        ("# The run", f"# The run\n\n{BINARY[:3]}<i></i>{BINARY[3:]}", [("digest-unlisted", 3, BINARY)]),
        # longer or shorter ones are none
        ("# The run", f"# The run\n\n{BINARY}0 {BINARY[1:]}", []),
    ],
)  # fmt: skip
def test_a_digest_that_is_not_the_pinned_one_is_refused(folder, capfd, old, new, expected):
    edit(folder / "docs/run.md", old, new)
    code, seen = findings(capfd)
    shown = [(one[0], one[2], one[3] if one[0] != "anchor-ambiguous" else None) for one in seen]
    assert (code, shown) == (int(bool(expected)), expected)


def test_a_digest_that_left_its_page_is_refused(folder, capfd):
    (folder / "README.md").write_text("Nothing here.\n")
    code, seen = findings(capfd)
    assert code == 1
    assert [(one[0], one[1]) for one in seen] == [("digest-absent", "README.md")]


def test_a_digest_that_only_a_comment_holds_has_left_its_page(folder, capfd):
    (folder / "README.md").write_text(f"<!--\n{sha256_hex(published())}\n-->\n")
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, ["digest-absent"])


def test_a_bound_digest_on_a_page_that_no_place_names_is_refused(folder, capfd):
    (folder / "docs/more.md").write_text(f"Kernel {sha256_hex(site.KERNEL)}, producer {PRODUCER}.\n")
    code, seen = findings(capfd)
    assert code == 1
    assert seen == [
        ("digest-unplaced", "docs/more.md", 1, sha256_hex(site.KERNEL), "a [[place]] for this page")
    ]


def test_paths_are_gated_beside_the_pages_of_the_pins_file(folder, capfd):
    (folder / "more").mkdir()
    (folder / "more/a.md").write_text(f"{BINARY}\n")
    (folder / "more/.hidden").mkdir()
    (folder / "more/.hidden/b.md").write_text(f"{BINARY}\n")
    assert findings(capfd)[0] == 0
    code, seen = findings(capfd, "more", "README.md")
    assert (code, [one[:3] for one in seen]) == (1, [("digest-unlisted", "more/a.md", 1)])
    code, seen = findings(capfd, "more/absent.md")
    assert (code, [one[:2] for one in seen]) == (1, [("page-unreadable", "more/absent.md")])


def test_a_page_that_is_not_utf8_is_refused(folder, capfd):
    (folder / "README.md").write_bytes(b"\xff")
    code, seen = findings(capfd)
    assert (code, seen[0][:4]) == (
        1,
        ("page-unreadable", "README.md", None, "found a byte that is not UTF-8 at 0"),
    )


@pytest.mark.parametrize(
    ("keys", "code", "found"),
    [
        ({"row": "no such row"}, "anchor-missing", "no such place on the page"),
        ({"column": "no such column"}, "anchor-missing", "no such place on the page"),
        ({"under": "Method"}, "anchor-missing", "no such place on the page"),
        ({"pointer": "/metrics/candidates/9/clip_ratio"}, "pointer-missing", "nothing at /metrics/candidates/9"),
        ({"pointer": "/metrics/candidates/07/clip_ratio"}, "pointer-missing", "nothing at /metrics/candidates/07"),
        ({"pointer": "/metrics/clip"}, "pointer-missing", "nothing at /metrics/clip"),
        ({"pointer": "/runtime/driver/0"}, "pointer-missing", "nothing at /runtime/driver/0"),
        ({"pointer": "/runtime/driver"}, "format-mismatch", "the text '580.159.03'"),
        ({"pointer": "/metrics/candidates"}, "format-mismatch", None),
        ({"pointer": "/metrics/candidates/0/clip_ratio", "format": "{:d}"}, "format-mismatch", "0.8"),
    ],
)  # fmt: skip
def test_a_binding_that_leads_nowhere_is_refused(folder, capfd, keys, code, found):
    entry = {
        "page": "docs/run.md", "row": "searched clip ratio", "column": site.COLUMNS[0], "record": "records/l4.json",
        "pointer": "/metrics/candidates/0/clip_ratio", "format": "{:.2f}",
    }  # fmt: skip
    with (folder / "kvint2eval-pins.toml").open("a") as stream:
        stream.write(site.table("figure", **entry))
    assert findings(capfd)[0] == 0
    edited = (folder / "kvint2eval-pins.toml").read_text().removesuffix(site.table("figure", **entry))
    (folder / "kvint2eval-pins.toml").write_text(edited + site.table("figure", **entry | keys))
    exit_code, seen = findings(capfd)
    assert (exit_code, [one[0] for one in seen]) == (1, [code])
    assert found is None or seen[0][3] == found


def test_a_record_that_is_no_json_is_refused(folder, capfd):
    (folder / "records/l4.json").write_text("{")
    code, seen = findings(capfd)
    assert code == 1
    assert {one[0] for one in seen} == {"file-changed", "pointer-missing"}


@pytest.mark.parametrize("update", [[], ["--update"]])
def test_a_gate_that_binds_nothing_is_no_success(folder, capfd, update):
    text = (folder / "kvint2eval-pins.toml").read_text()
    (folder / "kvint2eval-pins.toml").write_text(text[: text.index("[[place]]")])
    for extra in ([], ["--format", "sarif"]):
        assert main(["gate", *update, *extra]) == 2
        assert "found no binding, allowed: one [[place]] or [[figure]] or more" in capfd.readouterr().err


def test_what_cannot_be_gated_is_said_and_exits_with_2(folder, capfd):
    assert main(["gate", "--pins", "absent.toml"]) == 2
    assert "pins file absent.toml: No such file" in capfd.readouterr().err
    (folder / "empty").mkdir()
    assert main(["gate", "empty"]) == 2
    assert "empty: found no *.md below this folder" in capfd.readouterr().err


def snapshot(folder):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("format_name", ["text", "jsonl", "sarif", "junit", "github"])
@pytest.mark.parametrize("is_broken", [True, False])
def test_check_mode_never_writes(folder, capfd, format_name, is_broken):
    if is_broken:
        edit(folder / "docs/run.md", "51.571284", "0")
        (folder / "kernels/q.cu").write_text("changed")
    before = snapshot(folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        code = main(["gate", "--format", format_name])
    finally:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(stat.S_IRWXU)
    assert code == (0 if format_name == "sarif" else is_broken)
    assert snapshot(folder) == before
    assert bool(capfd.readouterr().out) == (is_broken or format_name in ("jsonl", "sarif", "junit"))


def test_check_mode_opens_nothing_for_writing(folder, monkeypatch):
    """A read-only tree proves little to root, so every way to open a file is watched too."""
    edit(folder / "docs/run.md", "51.571284", "0")
    opened = []
    real = os.open

    def watch(path, flags, *rest, **options):
        opened.append((path, flags))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", watch)
    monkeypatch.setattr("pathlib.Path.write_bytes", lambda *_: pytest.fail("written"))
    assert main(["gate"]) == 1
    assert opened
    assert all(flags & os.O_ACCMODE == os.O_RDONLY for _, flags in opened)


def test_pins_file_elsewhere_shows_paths_as_typed_and_its_own_command(folder, capfd, monkeypatch):
    edit(folder / "docs/run.md", "51.571284", "0")
    monkeypatch.chdir(folder.parent)
    name = f"{folder.name}/kvint2eval-pins.toml"
    assert main(["gate", "--pins", name]) == 1
    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith(f"{folder.name}/docs/run.md:13  figure-differs: ")
    # The page was edited, and no file: --update is no advice.
    assert "--update" not in "".join(out)
    assert out[-1].startswith("    fix       Write what is expected back on the page")
    edit(folder / "docs/run.md", "52.353732 ± 0", "52.353732 ± 51.571284")
    (folder / "kernels/q.cu").write_bytes(b"other")
    assert main(["gate", "--pins", name]) == 1
    assert (
        f"    fix       If the change is meant, run kvint2eval gate --update --pins {name}; "
        "else restore what was changed."
    ) in capfd.readouterr().out


@pytest.mark.parametrize(
    "character", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\ufe0f", "&shy;", "&ZeroWidthSpace;", "<wbr>"]
)
def test_a_digest_that_unseen_characters_split_is_found(folder, capfd, character):
    page = folder / "README.md"
    page.write_text(page.read_text() + f"\nAlso {'ab' * 16}{character}{'cd' * 16}.\n")
    code, seen = findings(capfd)
    assert (code, [(one[0], one[3]) for one in seen]) == (1, [("digest-unlisted", "ab" * 16 + "cd" * 16)])


@pytest.mark.parametrize(
    "tail",
    [
        " x 10^3",
        " \u00d7 10<sup>3</sup>",
        " %",
        "%",
        "-9.9",
        "\u20139.9",
        " 000",
        "e3",
        " e3",
        "/2",
        "(3)",
        ",5",
        " million",
        ":1",
    ],
)
def test_a_figure_that_carries_on_is_another_one(folder, capfd, tail):
    edit(folder / "docs/run.md", "driver: 580.159.03", f"driver: 580.159.03{tail}")
    if "<sup>" in tail:  # the place is a code block, where markup is text
        tail = "^2"
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, ["figure-differs"])


def test_links_and_other_cases_of_pages_are_said_and_the_rest_is_gated(folder, capfd):
    (folder / "docs/loop").symlink_to(folder / "docs")
    (folder / "docs/self.md").symlink_to("self.md")
    (folder / "docs/OTHER.MD").write_text("f" * 64)
    code, seen = findings(capfd)
    assert code == 1
    assert sorted((one[0], one[1]) for one in seen) == [
        ("digest-unlisted", "docs/OTHER.MD"),
        ("page-unreadable", "docs/loop"),
        ("page-unreadable", "docs/self.md"),
    ]


@pytest.mark.parametrize("code", GATE_FINDINGS)
def test_explain_knows_the_codes_of_the_gate(code, capsys):
    assert main(["explain", code]) == 0
    text = capsys.readouterr().out
    assert GATE_FINDINGS[code].meaning in text
    assert GATE_FINDINGS[code].mend in text


@pytest.mark.usefixtures("folder")
def test_a_page_that_is_too_large_is_refused(capfd, monkeypatch):
    monkeypatch.setattr("kvint2eval.gate.check.MAX_FILE_BYTES", 100)
    code, seen = findings(capfd)
    assert code == 1
    assert (
        "page-unreadable",
        "docs/run.md",
        None,
        "found more than 100 bytes, allowed: at most that",
        "a page in UTF-8",
    ) in seen


def test_a_digest_may_be_a_figure_of_a_record(folder, capfd):
    witness = json.loads(published())["witness_sha256"]
    page = folder / "docs" / "run.md"
    page.write_text(page.read_text() + f"\nIts witness is\n`{witness}`.\n")
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, ["digest-unlisted"])
    with (folder / "kvint2eval-pins.toml").open("a") as stream:
        stream.write(
            site.table(
                "figure",
                page="docs/run.md",
                before="Its witness is",
                record="records/l4.json",
                pointer="/witness_sha256",
            )
        )
    assert findings(capfd) == (0, [])
    edit(page, witness, BINARY)
    code, seen = findings(capfd)
    assert (code, [one[0] for one in seen]) == (1, ["figure-differs", "digest-unlisted"])
