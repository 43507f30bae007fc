"""The HTML report in headless Chromium: nothing is asked for, nothing is complained about, all can be reached."""

import base64
import json
import os
import statistics

import pytest

from tests.helpers import RECORDS, TESTDATA, published
from tests.kvint2eval.report.html.chromium import PROGRAM, Browser
from tests.kvint2eval.report.html.pages import HOSTILE, hostile_record, many, report

pytestmark = [
    pytest.mark.chromium,
    # CI installs Chromium and says so, and then a missing one is a failure.
    pytest.mark.skipif(
        PROGRAM is None and not os.environ.get("REQUIRE_CHROMIUM"), reason="Chromium is not installed"
    ),
]

WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """All records of testdata, hostile ones in files with hostile names, and a hostile audit."""
    folder = tmp_path_factory.mktemp("page")
    hostile = folder / HOSTILE.replace("/", "_")
    hostile.with_suffix(".json").write_text(json.dumps(hostile_record()))
    (folder / "b.json").write_bytes(published().replace(b"NVIDIA", b"<b>NVIDIA"))
    audit = folder / "x.audit.json"
    audit.write_text(json.dumps({"findings": [{"code": HOSTILE, "message": HOSTILE}]}))
    target = folder / "report.html"
    pins = TESTDATA / "pins" / "met.toml"
    assert report(target, folder, RECORDS, "--audit", audit, "--pins", pins) == 1
    return target


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_asks_for_nothing_and_nothing_is_complained_about(browser, page, width, theme):
    browser.open(page, width, prefers_color_scheme=theme)
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []
    # No sideways scrolling of the page itself, at either width.
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[theme]


def test_hostile_texts_are_shown_as_text(browser, page):
    browser.open(page)
    assert browser.evaluate("document.title") == "Verdicts on 99 records"
    assert browser.evaluate("[...document.querySelectorAll('script, img, b b')].length") == 0
    shown = browser.evaluate("document.body.textContent")
    start = HOSTILE.split("/")[0]
    assert shown.count(start) >= 5  # row, heading, three members
    assert "<b>NVIDIA" in shown


@pytest.mark.parametrize("name", ["supported", "unsupported", "delegate"])
def test_the_filter_shows_one_outcome(browser, page, name):
    browser.open(page)
    visible = (
        "[...document.querySelectorAll('.block .row')].filter(row => getComputedStyle(row).display != 'none')"
    )
    everything = browser.evaluate(f"{visible}.length")
    browser.evaluate(f"document.getElementById('f-{name}').click()")
    seen = browser.evaluate(f"{visible}.map(row => row.className)")
    assert set(seen) == {f"row {name}"}
    assert 0 < len(seen) < everything == 99


def press(browser, key, code):
    text = "\r" if key == "Enter" else ""
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
        )


def test_the_page_can_be_used_from_the_keyboard(browser, page):
    browser.open(page)
    seen = []
    for _ in range(4):
        press(browser, "Tab", 9)
        seen.append(
            browser.evaluate(
                "({tag: document.activeElement.tagName, id: document.activeElement.id, "
                "label: document.activeElement.ariaLabel || document.activeElement.textContent, "
                "left: document.activeElement.getBoundingClientRect().left, "
                "outline: getComputedStyle(document.activeElement).outlineStyle})"
            )
        )
    assert (seen[0]["tag"], seen[0]["label"]) == ("A", "Skip to the verdicts")
    assert seen[0]["left"] >= 0
    assert (seen[1]["tag"], seen[1]["id"]) == ("INPUT", "f-all")
    assert (seen[2]["tag"], seen[2]["label"]) == ("DIV", "Verdicts")
    assert seen[3]["tag"] == "A"
    assert {one["outline"] for one in seen} == {"solid"}
    press(browser, "Enter", 13)
    assert browser.evaluate("location.hash") == "#r1"


def test_a_screen_reader_finds_its_way(browser, page):
    browser.open(page)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    for role in ("banner", "main", "table", "columnheader", "rowheader", "radio", "figure", "region"):
        assert role in roles, role
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"]
        and node["role"]["value"] in ("link", "radio", "region", "table", "image", "img", "heading")
        and not node.get("name", {}).get("value")
    ]
    # The tables of a section take their name from the region around them.
    assert set(unnamed) <= {"table"}


def test_the_page_prints_in_light_colours_with_every_record(browser, page):
    browser.open(page, prefers_color_scheme="dark")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('.filter')).display") == "none"
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") > 30
    browser.call("Emulation.setEmulatedMedia", media="screen")


def test_ten_thousand_records_stay_small_and_open(browser, tmp_path):
    """Size is asserted; time is measured by `make bench` and asserted only against a hang."""
    lines = tmp_path / "many.jsonl"
    lines.write_bytes(b"\n".join(list(many(100)) * 100))
    target = tmp_path / "r.html"
    assert report(target, lines) == 1
    assert target.stat().st_size < 20_000_000
    times = [browser.open(target) for _ in range(3)]
    assert browser.evaluate("document.querySelectorAll('.block .row').length") == 10_000
    assert browser.evaluate("document.querySelector('.note').textContent").startswith(
        "The first 200 of 10,000"
    )
    assert browser.complaints() == []
    assert statistics.median(times) < 10_000
