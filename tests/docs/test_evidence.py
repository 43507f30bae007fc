"""The published comparisons say what their figures say, and the campaign's table is whole."""

import copy
import hashlib
import json

import pytest

from kvint2eval import adjudicate
from producer.experiment.trace.check_comparison import check_comparison
from producer.scheme.registry import SCHEMES
from tests.helpers import TESTDATA
from tests.tools.evidence.beside import beside
from tests.tools.evidence.texts import made, table
from tests.tools.regen.balanced_tables import Runs

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
    judged_on = {name for names in plan["evaluation"].values() for name in names}
    assert not fitted_to & judged_on
    assert fitted_to | judged_on == set(texts)
    assert len(judged_on) == sum(map(len, plan["evaluation"].values()))
    refined = {job["name"]: job["scheme"] for job in plan["refined"]}
    assert set(refined.values()) <= set(SCHEMES)
    assert not set(refined) & set(SCHEMES)
    lists = plan["lists"]
    assert {name for names in lists.values() for name in names} <= {*SCHEMES, *refined}
    for job in plan["comparison"]:
        assert set(lists[job["rivals"]]) <= set(lists[job["schemes"]]), job["name"]
        assert job["set"] in plan["calibration"]
        assert job["texts"] in plan["evaluation"]


def test_every_comparison_of_the_table_is_published_and_holds_what_it_says():
    plan = table()
    texts = {entry["name"]: entry for entry in plan["text"]}
    for job in plan["comparison"]:
        content = json.loads((TESTDATA / f"runs/balanced-{job['name']}.json").read_text(encoding="utf-8"))
        names = [f"{scheme}@{job['set']}" for scheme in plan["lists"][job["schemes"]]]
        assert [one["name"] for one in content["schemes"]] == ["int2", *names]
        assert content["rivals"] == ["int2", *(f"{one}@{job['set']}" for one in plan["lists"][job["rivals"]])]
        found = [(one["name"], one["text_sha256"]) for one in content["evaluation"]]
        assert found == [(name, texts[name]["sha256"]) for name in plan["evaluation"][job["texts"]]]
        assert all(bool(one["runs"]) == job["model"] for one in content["schemes"])


def test_the_page_s_verdict_is_what_the_intervals_say():
    """Less than half of every tuned rival's KL, with every calibration set and on the fresh texts."""
    tuned = ("quarot-centred-tuned", "oscar-centred-tuned", "optr-quarot-tuned", "optr-oscar-tuned")
    for name in ("docs", "code", "prose", "fresh"):
        runs = Runs(name)
        highs = [runs.ratio("balanced-feedback", one, "model_divergence_nats")["high"] for one in tuned]
        assert max(highs) < 0.5
        assert all(runs.ratio("balanced", one, "model_divergence_nats")["mean"] > 0.5 for one in tuned)
        same = [
            runs.ratio("balanced-feedback", one, "model_divergence_nats")
            for one in ("quarot-feedback", "oscar-feedback")
        ]
        assert all(0.5 < one["mean"] < one["high"] < 1 for one in same)


def test_a_campaign_beside_the_published_one_is_judged_by_its_closed_forms():
    published = Runs("size-1k").content
    names = [scheme["name"] for scheme in published["schemes"]]
    assert beside(published, published, ())[1]

    def changed(index, factor):
        fresh = copy.deepcopy(published)
        fresh["schemes"][index]["summary"]["divergence_nats"] *= factor
        return fresh

    lines, agrees = beside(changed(1, 1.03), published, ())
    assert not agrees
    assert [line.partition(":")[0] for line in lines] == names
    assert [line.rpartition(": ")[2] for line in lines] == [
        "as published",
        "DIFFERS",
        *["as published"] * (len(names) - 2),
    ]
    assert "+3.00 %" in lines[1]
    assert beside(changed(1, 1.01), published, ())[1]
    # What was trained is shown, not judged.
    lines, agrees = beside(changed(1, 1.03), published, [names[1].partition("@")[0]])
    assert agrees
    assert lines[1].endswith(": trained")
    fewer = copy.deepcopy(published)
    fewer["schemes"].pop()
    assert not beside(fewer, published, ())[1]
    assert not beside(published, fewer, ())[1]


def test_the_objectives_are_as_the_page_says():
    runs = Runs("objectives")
    figures = ("relative_error", "divergence_nats")
    for name in ("optr-cache", "optr-readout", "optr-oscar-tuned"):
        assert all(runs.ratio(name, "oscar-centred-tuned", figure)["high"] < 1 for figure in figures)
    for figure in figures:
        cache = runs.ratio("optr-cache", "optr-oscar-tuned", figure)
        assert cache["low"] < 1 < cache["high"]
    assert runs.ratio("optr-readout", "optr-oscar-tuned", "divergence_nats")["low"] > 1


def test_seeds_agree_in_attention_and_not_in_the_model():
    runs = Runs("seeds")
    seeds = [name for name in runs.schemes if name.startswith("optr-")]
    assert len(seeds) == 4
    start = "oscar-centred-tuned"
    assert all(runs.ratio(name, start, "divergence_nats")["high"] < 0.82 for name in seeds)
    model = [runs.figure(name, "model_divergence_nats") for name in seeds]
    assert min(model) < runs.figure(start, "model_divergence_nats") < max(model)
    # The run that the other comparisons hold is the best of the four: no better rival was left out.
    assert runs.figure("optr-oscar-tuned", "model_divergence_nats") == min(model)


def test_the_needles_are_those_of_the_table(tmp_path):
    entries = [entry for entry in table()["text"] if entry["origin"] == "made"]
    assert len(entries) == 2
    for entry in entries:
        assert hashlib.sha256(made(entry, tmp_path)).hexdigest() == entry["sha256"]


def test_the_records_by_layer_are_sound_and_choose_what_the_page_says():
    lines = (TESTDATA / "runs/smollm2-layers.jsonl").read_bytes().splitlines()
    selected = []
    for layer, line in enumerate(lines):
        verdict, record = adjudicate(line), json.loads(line)
        assert record["workload"]["trace"]["layer"] == layer
        selected.append(record["measurements"]["selected"])
        claims = [None] if selected[-1] == "balanced-docs" else []
        assert (verdict.outcome, [one.finding for one in verdict.claims]) == ("delegate", claims)
        assert verdict.finding.code == "environment-not-cuda"
    assert len(lines) == 30
    assert [layer for layer, name in enumerate(selected) if name != "balanced-docs"] == [7]
