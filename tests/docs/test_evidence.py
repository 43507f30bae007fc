"""The published comparisons say what their figures say, and the campaign's table is whole."""

import hashlib
import json

import pytest

from kvint2eval import adjudicate
from producer.comparison_check import check_comparison
from producer.schemes import SCHEMES
from tests.evidence.texts import made, table
from tests.helpers import TESTDATA

PUBLISHED = sorted({*TESTDATA.glob("runs/*schemes*.json"), *TESTDATA.glob("runs/*balanced*.json")})


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_every_published_summary_follows_from_its_figures(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] == "kvint2eval-comparison-v1":
        pytest.skip("summaries alone were kept in v1: there are no figures to compute them from")
    assert check_comparison(content) == []


def test_the_table_of_texts_is_whole():
    plan = table()
    texts = {entry["name"]: entry for entry in plan["text"]}
    assert len(texts) == len(plan["text"])
    assert all(len(entry["sha256"]) == 64 for entry in texts.values())
    fitted_to = {name for one in plan["calibration"].values() for name in one["texts"]}
    judged_on = set(plan["evaluation"]["texts"])
    assert not fitted_to & judged_on
    assert fitted_to | judged_on == set(texts)
    for one in plan["calibration"].values():
        assert len(one["texts"]) * one["sequences"] == 2
    assert set(plan["campaign"]["schemes"]) <= set(SCHEMES)
    refined = {job["name"]: job["scheme"] for job in plan["campaign"]["refined"]}
    assert set(refined.values()) <= set(plan["campaign"]["schemes"])
    assert set(plan["campaign"]["rivals"]) <= {*plan["campaign"]["schemes"], *refined}
    assert set(plan["campaign"]["full"]) <= set(plan["calibration"])


def test_the_needles_are_those_of_the_table(tmp_path):
    (entry,) = [entry for entry in table()["text"] if entry["origin"] == "made"]
    assert hashlib.sha256(made(entry, tmp_path)).hexdigest() == entry["sha256"]


def test_the_records_by_layer_are_sound_and_choose_what_the_page_says():
    lines = (TESTDATA / "runs/smollm2-layers.jsonl").read_bytes().splitlines()
    selected = []
    for layer, line in enumerate(lines):
        verdict, record = adjudicate(line), json.loads(line)
        assert record["workload"]["trace"]["layer"] == layer
        assert (verdict.outcome, [one.finding for one in verdict.claims]) == ("delegate", [None])
        assert verdict.finding.code == "environment-not-cuda"
        selected.append(record["measurements"]["selected"])
    assert len(lines) == 30
    assert [layer for layer, name in enumerate(selected) if name != "balanced-docs"] == [7]
