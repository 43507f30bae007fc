"""Results pages: every figure comes from a file of testdata, and the claims beside it hold in that file."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from producer.experiment.trace.check_comparison import check_comparison
from tests.helpers import ROOT, TESTDATA
from tests.tools.regen.artifacts import artifacts
from tests.tools.regen.balanced_says import t_interval
from tests.tools.regen.balanced_tables import Runs, by_length
from tests.tools.regen.figures import FIGURES, described

SHOWN = ("quarot-centred-tuned", "oscar-centred-tuned", "quarot-feedback", "balanced-feedback")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_shows_what_the_files_hold(name):
    svg = (ROOT / f"docs/results/{name}.svg").read_text(encoding="utf-8")
    data = json.loads(json.dumps(FIGURES[name][0]()))
    assert described(svg) == data
    assert len(data) >= 2
    assert f"]({name}.svg)" in (ROOT / f"docs/results/{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("tokens", [4096, 8192])
def test_the_runs_at_length_are_comparisons_of_the_published_fit(tokens):
    content = json.loads((TESTDATA / f"runs/length-{tokens // 1024}k.json").read_text(encoding="utf-8"))
    assert check_comparison(content) == []
    docs = Runs("docs")
    assert content["model"] == docs.content["model"]
    assert [one["tokens"] for one in content["evaluation"]] == [tokens]
    published = {one["name"]: one["text_sha256"] for one in docs.content["evaluation"]}
    assert {one["name"]: one["text_sha256"] for one in content["evaluation"]}.items() < published.items()
    # The same 2 x 2,048 tokens: the scheme in closed form is the published one but for its name.
    for scheme in content["schemes"][1:]:
        twin = docs.schemes[scheme["name"]]
        assert all(
            scheme[key] == twin[key] for key in ("clips", "balance", "rounding", "shrinkage", "group_size")
        )


def test_the_claim_holds_at_2048_and_is_reversed_at_8192():
    lengths = by_length()
    order = {
        tokens: sorted(SHOWN, key=lambda name: rows[name].divergence) for tokens, rows in lengths.items()
    }
    assert order[2048][0] == "balanced-feedback"
    assert order[8192][-1] == "balanced-feedback"
    assert lengths[8192]["balanced-feedback"].divergence > 2 * lengths[8192]["quarot-feedback"].divergence
    assert lengths[8192]["balanced-feedback"].error > 5 * lengths[8192]["quarot-feedback"].error
    runs = {one["name"]: one["runs"][0] for one in read_json("length-8k.json")["schemes"]}
    assert {one["first_token"] for one in runs.values()} == {7168}
    rivals = [runs[name]["divergence_nats"] for name in SHOWN[:3]]
    assert runs["balanced-feedback"]["divergence_nats"] > 3 * max(rivals)
    # Windows of 64 + 256 tokens in 16 bits, the rest in 2 bits and two float32 scalars a row of 64.
    for tokens, rows in lengths.items():
        assert rows["int2"].bits == pytest.approx((320 * 16 + (tokens - 320) * 3) / tokens, rel=1e-12)


def test_the_page_quotes_the_reversal_from_the_file():
    """A second way to the figures: sums over the file, and no helper of the generator."""
    content = json.loads((TESTDATA / "runs/length-8k.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/results/balanced.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| 8,192 \| 3\.51 \| (.*) \|$", page, re.MULTILINE)
    cells = [
        f"{np.sum(one['figures']['error']) / np.sum(one['figures']['reference']):.4f} / "
        f"{np.mean(one['figures']['divergence']) / content['queries_per_sum']:.4f}"
        for one in content["schemes"]
    ]
    assert line.split(" | ") == cells


DIGIT = re.compile(r"\d")
GENERATED = {
    "balanced": "docs/results/balanced.md",
    "optr": "docs/results/optr.md",
    "schemes": "docs/results/schemes.md",
    "performance": "docs/results/performance.md",
}


@pytest.mark.parametrize("name", GENERATED)
def test_a_changed_digit_of_a_results_page_is_noticed(name, monkeypatch):
    """In every row of every table: the page that is made of the files is not the page with the change."""
    path = GENERATED[name]
    (make,) = (one.make for one in artifacts() if one.path == path)
    page = (ROOT / path).read_text(encoding="utf-8")
    assert make() == page.encode()
    blocks = re.findall(r"<!-- (?:begin|Table)[^>]*-->\n(.*?)<!-- [Ee]nd", page, re.DOTALL)
    assert blocks
    changed, start = page, 0
    for block in blocks:
        for line in block.splitlines():
            digits = list(DIGIT.finditer(line))
            if not digits:
                continue
            at = changed.index(line, start) + digits[-1].start()
            changed = changed[:at] + str((int(changed[at]) + 1) % 10) + changed[at + 1 :]
            start = at
    monkeypatch.setattr(Path, "read_text", lambda self, **_: changed if self == ROOT / path else read(self))
    # Whatever the page says, the generator restores all of it.
    assert changed != page
    assert make() == page.encode()


def test_tables_outside_generated_blocks_hold_no_figures():
    """A decimal in a hand-written row of a results page would be bound to nothing."""
    for path in GENERATED.values():
        page = (ROOT / path).read_text(encoding="utf-8")
        rest = re.sub(r"<!-- (?:begin|Table)[^>]*-->\n.*?<!-- [Ee]nd", "", page, flags=re.DOTALL)
        rows = [line for line in rest.splitlines() if line.startswith("|")]
        assert [row for row in rows if re.search(r"\d\.\d{4}", row)] == []


#: Settings and sizes that hand-written prose of a results page may name: none is a measurement.
SETTINGS = {
    "balanced": {
        "3.0",
        "0.96",
        "0.92",
        "0.003",
        "0.001",
        "0.02",
        "0.1",
        "0.35",
        "0.3",
        "0.2",
        "0.06",
        "0.4",
        "3.11",
    },
    "optr": {"0.003"},
    "schemes": {"2.0", "1.3", "0.7"},
    "performance": {"3.8"},
}


@pytest.mark.parametrize("name", GENERATED)
def test_no_measurement_is_typed_into_the_prose(name):
    page = (ROOT / GENERATED[name]).read_text(encoding="utf-8")
    prose = re.sub(r"<!-- (?:begin|Table)[^>]*-->\n.*?<!-- [Ee]nd", "", page, flags=re.DOTALL)
    found = set(re.findall(r"\d+\.\d+", re.sub(r"SmolLM2-135M-Instruct\.Q4_1", "", prose)))
    assert found == SETTINGS[name]


def read_json(name):
    return json.loads(read(TESTDATA / "runs" / name))


def read(path):
    with path.open(encoding="utf-8") as stream:
        return stream.read()


def test_the_t_interval_is_students():
    """Of pairs whose rival is constant it is the one-sample interval of a mean, here of 0 … 7: 3.5 ± 2.364624·√6/√8."""
    low, high = t_interval([0.0, 1, 2, 3, 4, 5, 6, 7], [1.0] * 8)
    assert (low, high) == pytest.approx((3.5 - 2.364624 * 0.75**0.5, 3.5 + 2.364624 * 0.75**0.5), rel=1e-9)


def test_pages_say_the_limits_beside_the_claim():
    for page in ("README.md", "CHANGELOG.md", "docs/results/balanced.md", "docs/methods/balanced.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert "8,192" in text, page
        assert "reversed" in text, page
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert not any("No rival was published with such rounding" in text for text in pages)
    assert any("2503.24358" in text for text in pages)
