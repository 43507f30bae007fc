"""The HTML report: everything is on it, nothing of it is markup of a record's, and nothing is dropped silently."""

import json
import re
from importlib import resources
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree, html

from kvint2eval import adjudicate, read_pins
from kvint2eval.cli import main
from kvint2eval.files.digest import sha256_hex
from kvint2eval.report import Source, Tally, safe
from kvint2eval.report.html import HtmlPage
from kvint2eval.report.html.section import AuditFinding, rests_on, section
from tests.helpers import RECORDS, TESTDATA, manifest, published
from tests.kvint2eval.report.html.pages import HOSTILE, hostile_record, many, report
from tests.tools.regen.pins import PINNED_TEXT
from tests.tools.regen.published import PRODUCER, ROWS, observed, sealed


def parsed(path):
    return html.fromstring(path.read_bytes())


def words(element):
    return " ".join(" ".join(element.itertext()).split())


def test_each_record_has_a_row_with_its_verdict_and_a_section(tmp_path, capfd):
    target = tmp_path / "r.html"
    assert report(target, RECORDS) == 1
    page = parsed(target)
    rows = {row[1].text_content().removeprefix(f"{RECORDS}/"): row for row in page.cssselect(".block .row")}
    expected = {row["path"]: row for row in manifest()}
    assert rows.keys() == expected.keys()
    for path, row in rows.items():
        if expected[path]["pins"] is None:
            assert expected[path]["outcome"] in row.get("class").split()
            assert expected[path]["finding"] is None or expected[path]["finding"] in words(row)
        (link,) = row.cssselect("a")
        (section,) = page.cssselect(link.get("href"))
        assert section.get("aria-labelledby") == section.cssselect("h3")[0].get("id")
    assert len(page.cssselect("section")) == len(rows)
    assert "97 records" not in capfd.readouterr().out


def test_section_of_the_published_record_shows_its_figures_and_what_they_rest_on(tmp_path):
    target = tmp_path / "r.html"
    pins = TESTDATA / "pins" / "met.toml"
    assert report(target, RECORDS / "supported" / "l4-published.json", "--pins", pins) == 0
    page = parsed(target)
    table = page.cssselect("table.numbers")[0]
    cells = [[cell.text_content() for cell in row] for row in table.cssselect("tbody tr")]
    assert [(int(row[0].split()[0]), *(float(cell) for cell in row[1:])) for row in cells] == [
        tuple(map(float, row)) for row in ROWS
    ]
    assert [row[0] for row in cells if " " in row[0]] == ["0 baseline", "7 selected"]
    basis = [
        [words(cell) for cell in row] for row in page.cssselect("section table")[0].cssselect("tbody tr")
    ]
    assert [row[:2] for row in basis] == [
        ["witness digest", "recomputed"],
        ["digest of artifact", "declared"],
        ["digest of recipe_artifact", "declared"],
        ["digest of model", "declared"],
        ["digest of runtime", "declared"],
        ["summary figures, cache bytes", "recomputed"],
        ["means and deviations of the rows", "only reported"],
        ["times, hardware, driver", "only reported"],
    ]
    assert basis[1][2] == f"{PRODUCER} the publication holds no such file"
    assert len(page.cssselect("svg")) == 2
    assert "7: 1.95926247 ± 0.431511456" in page.cssselect("svg desc")[0].text_content()
    stated = dict(
        zip(map(words, page.cssselect("details dt")), map(words, page.cssselect("details dd")), strict=True)
    )
    record = json.loads(published())
    assert stated["hardware.gpu"] == "NVIDIA L4"
    assert stated["hardware.gpu_memory_bytes"] == str(record["hardware"]["gpu_memory_bytes"])
    assert not any(path.startswith(("metrics", "witness")) for path in stated)


def test_a_bound_digest_names_its_file(tmp_path):
    record = observed(sha256_hex(PINNED_TEXT))
    record["artifact"]["id"] = "stand-in"
    (tmp_path / "a.json").write_text(json.dumps(sealed(record)))
    target = tmp_path / "r.html"
    assert report(target, tmp_path / "a.json", "--pins", TESTDATA / "pins" / "bound.toml") == 0
    page = parsed(target)
    assert "digest of artifact bound" in words(page.cssselect("section table")[0])
    assert "rehashed pinned.txt" in words(page.cssselect("section table")[0])
    assert "digests: 1 bound, 3 declared" in words(page.cssselect(".block .row")[0])


def test_figures_of_a_record_that_is_not_supported_are_marked(tmp_path):
    target = tmp_path / "r.html"
    assert report(target, RECORDS / "unsupported" / "cache-bytes-one-too-high.json") == 1
    section = parsed(target).cssselect("section")[0]
    assert "Candidates as stated; the record is not supported, so do not use them" in words(section)
    assert "What this rests on" not in words(section)
    assert "Finding cache-bytes" in words(section)
    assert "/metrics/cache_bytes, line " in words(section)


def test_no_script_no_request_and_a_policy_that_forbids_them(tmp_path):
    target = tmp_path / "r.html"
    (tmp_path / "a.json").write_text(json.dumps(hostile_record()))
    report(target, tmp_path / "a.json", RECORDS)
    page = parsed(target)
    (policy,) = page.cssselect('meta[http-equiv="Content-Security-Policy"]')
    assert policy.get("content").startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert not page.cssselect(
        "script, iframe, object, embed, form, base, img, audio, video, link:not([rel=icon])"
    )
    links = {
        element.get(name)
        for element in page.iter()
        for name in ("href", "src", "action", "data")
        if element.get(name)
    }
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not [name for element in page.iter() for name in element.attrib if name.startswith("on")]
    css = resources.files("kvint2eval.report.html").joinpath("style.css").read_text()
    assert "url(" not in css
    assert "@import" not in css


texts = st.text(st.characters(), min_size=1, max_size=40) | st.just(HOSTILE)


@given(texts, texts)
def test_no_text_of_a_record_a_path_or_an_audit_becomes_markup(text, path):
    plain = _page(Source("p"), published(), AuditFinding("c", "m"))
    record = json.loads(published())
    record["recipe"]["method"] = text.encode("utf-8", "replace").decode()
    hostile = _page(Source(path), json.dumps(record).encode(), AuditFinding(text, text))
    unsupported = json.loads(published()) | {"evidence": "estimated"}
    same = _page(Source("p"), json.dumps(unsupported).encode(), AuditFinding("c", "m"))
    # The same elements as for harmless texts, and the texts as text.
    assert [element.tag for element in hostile.iter()] == [element.tag for element in same.iter()]
    assert safe(text) in "".join(hostile.cssselect("section ul li")[0].itertext())
    assert safe(path) in "".join(hostile.cssselect("section h3")[0].itertext())
    assert len(list(plain.iter())) > 100


def _page(source, data, finding):
    page = HtmlPage(9, {"a": (finding,)}, {source.path: "a"})
    body = page.one(source, adjudicate(data), is_first=True)
    return etree.HTML((page.head(Tally(1)) + page.start() + body + page.end(Tally(1))).decode())


def test_records_beyond_the_details_keep_their_row_and_the_page_says_so(tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b"\n".join(many(450)))
    target = tmp_path / "r.html"
    assert report(target, lines, "absent.json", "--details", "7") == 2
    page = parsed(target)
    assert len(page.cssselect(".block .row:not(.error)")) == 450
    assert len(page.cssselect("section")) == 7
    assert len(page.cssselect(".block .row a")) == 7
    assert [len(block) for block in page.cssselect(".block")] == [201, 200, 50]
    (note,) = page.cssselect(".note")
    assert words(note).startswith(
        "The first 7 of 450 records have a section below. The other 443 have their row here"
    )
    (error,) = page.cssselect(".row.error")
    assert words(error) == "not judged absent.json: No such file or directory"
    assert "could not be judged 1" in words(page.cssselect(".tally")[0])
    assert report(target, lines, "--details", "0") == 1
    assert not parsed(target).cssselect("section, h2 ~ h2")


def test_audits_stand_with_their_record_or_by_themselves(tmp_path):
    audit = {"findings": [{"code": "AUDIT_LOSES_TO_ZERO", "message": "1.959 is not below 1", "figures": {}}]}
    (tmp_path / "a.json").write_bytes(published())
    (tmp_path / "b.json").write_bytes(published())
    (tmp_path / "a.audit.json").write_text(json.dumps(audit))
    (tmp_path / "other.json").write_text(json.dumps({"findings": []}))
    target = tmp_path / "out" / "r.html"
    target.parent.mkdir()
    options = [item for name in ("a.audit.json", "other.json") for item in ("--audit", tmp_path / name)]
    assert report(target, tmp_path, *options) == 0
    page = parsed(target)
    sections = page.cssselect("section")
    assert [words(section.cssselect("h3")[0]) for section in sections] == [
        f"{tmp_path}/a.json",
        f"{tmp_path}/b.json",
    ]
    assert "AUDIT_LOSES_TO_ZERO 1.959 is not below 1" in words(sections[0])
    assert "Audit" not in [words(head) for head in sections[1].cssselect("h4")]
    assert f"Audits {tmp_path}/other.json The audit found nothing." in words(page)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "--audit {path}: No such file or directory"),
        (b"{", "--audit {path}: invalid-json: "),
        (b"[]", "--audit {path}: found no list of findings with code and message, allowed: the output of"),
        (b'{"findings": [{"code": 1, "message": "x"}]}', "--audit {path}: found no list of findings"),
        (b'{"findings": {}}', "--audit {path}: found no list of findings"),
    ],
)
def test_an_audit_that_is_none_is_refused(tmp_path, capfd, data, message):
    path = tmp_path / "audit.json"
    if data is not None:
        path.write_bytes(data)
    target = tmp_path / "r.html"
    assert report(target, RECORDS / "supported", "--audit", path) == 2
    assert message.format(path=path) in capfd.readouterr().err
    assert not target.exists()


def test_nothing_to_report_is_no_success(tmp_path, capfd):
    target = tmp_path / "r.html"
    assert report(target, "absent.json") == 2
    assert "absent.json: No such file" in capfd.readouterr().err
    assert not target.exists()
    assert report(target, RECORDS / "delegate") == 3
    assert report(target, RECORDS / "delegate", "--accept-delegate") == 0


@pytest.mark.parametrize("value", ["-1", "x", "1000000", "\u0661"])
def test_a_wrong_number_of_details_is_refused(capsys, value):
    with pytest.raises(SystemExit) as left:
        main(["report", "x", "-o", "y", f"--details={value}"])
    assert left.value.code == 2
    assert "allowed: a whole number from 0 to 999999" in capsys.readouterr().err


def test_headings_do_not_skip_a_level_and_ids_are_unique(tmp_path):
    target = tmp_path / "r.html"
    report(target, RECORDS)
    page = parsed(target)
    levels = [int(head.tag[1]) for head in page.cssselect("h1, h2, h3, h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [element.get("id") for element in page.cssselect("[id]")]
    assert len(ids) == len(set(ids))
    for figure in page.cssselect("svg"):
        assert figure.get("role") == "img"
        assert all(page.cssselect(f"#{name}") for name in figure.get("aria-labelledby").split())
    for table in page.cssselect("table"):
        assert all(cell.get("scope") for cell in table.cssselect("th"))
        assert table.getparent().get("tabindex") == "0"
        assert table.getparent().get("aria-label")


def _luminance(colour):
    def linear(part):
        share = int(part, 16) / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    digits = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    return sum(weight * linear(digits[at : at + 2]) for weight, at in ((0.2126, 0), (0.7152, 2), (0.0722, 4)))


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_can_be_read(theme):
    """WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for text; 1.4.11: 3 to 1 for what a plot draws."""
    css = resources.files("kvint2eval.report.html").joinpath("style.css").read_text()
    root = re.findall(r":root\{(.*?)\}", css, re.DOTALL)[theme]
    colours = {name: _luminance(value) for name, value in re.findall(r"--(\w+):#([0-9a-f]+)", root)}
    for ground in ("bg", "panel"):
        for name in ("fg", "soft", "link", "good", "bad", "open"):
            high, low = sorted((colours[name], colours[ground]), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)
        for name in ("mark", "dot"):
            high, low = sorted((colours[name], colours[ground]), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, (name, ground)


def test_pins_of_the_page_are_those_of_adjudication(tmp_path, capfd):
    pins = TESTDATA / "pins" / "moved.toml"
    target = tmp_path / "r.html"
    assert report(target, RECORDS / "supported" / "l4-published.json", "--pins", pins) == 1
    verdict = adjudicate(published(), pins=read_pins(pins))
    assert verdict.finding.code in words(parsed(target).cssselect(".block .row")[0])
    assert report(target, RECORDS / "supported", "--pins", "absent.toml") == 2
    assert "pins file absent.toml" in capfd.readouterr().err


def test_a_v2_record_shows_its_claims_its_basis_and_its_bound_files(tmp_path):
    folder = RECORDS.parent / "v2" / "supported"
    target = tmp_path / "r.html"
    record = folder / "one-claim-refused.json"
    assert report(target, record, "--root", TESTDATA) == 0
    page = parsed(target)
    verdict = adjudicate(record.read_bytes())
    refused = [claim.finding.code for claim in verdict.claims if claim.finding is not None]
    assert len(refused) == 1
    claims = [words(item) for item in page.cssselect("section ul li")]
    assert len(claims) == len(verdict.claims)
    assert sum(claim.endswith(": stands") for claim in claims) == len(claims) - 1
    assert any(f"refused, {refused[0]}: " in claim for claim in claims)
    assert f"claims: {len(claims) - 1} stand, 1 refused" in words(page.cssselect(".block .row")[0])
    basis = {words(row[0]): words(row[1]) for row in page.cssselect("section table")[0].cssselect("tbody tr")}
    assert [what for what, level in basis.items() if level == "only reported"] == list(verdict.basis.reported)
    assert set(verdict.basis.recomputed) < {what for what, level in basis.items() if level == "recomputed"}
    assert "bound" in basis.values()
    assert len(page.cssselect("svg")) == 3


def test_a_signed_record_names_its_keys():
    signed = msgspec.structs.replace(adjudicate(published()), signers=("<k1>",))
    (row,) = [row for row in rests_on(signed) if row[0] == "signatures"]
    assert row[1:] == ("verified", "keys <k1>")
    assert b"&lt;k1&gt;" in section(Source("p"), signed, 1, None)


@pytest.mark.parametrize("option", ["--root", "--policy"])
def test_what_the_report_cannot_hold_records_against_is_said(tmp_path, capfd, option):
    target = tmp_path / "r.html"
    assert report(target, RECORDS / "supported", option, "absent") == 2
    assert "absent" in capfd.readouterr().err
    assert not target.exists()
