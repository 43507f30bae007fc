"""What the report reads of a record, for both layouts."""

import msgspec

from kvint2eval import Outcome, Reason, Verdict, adjudicate
from kvint2eval.report import Source
from kvint2eval.report.html.figures import Curve, Spread, Trials, errors_of, figures_of
from kvint2eval.report.html.section import section
from tests.helpers import RECORDS, published


def test_bytes_without_a_layout_have_no_figures():
    assert figures_of(adjudicate(b"{")) is None


def test_a_record_without_a_search_has_no_table():
    data = (RECORDS / "delegate" / "modeled-evidence-without-search.json").read_bytes()
    figures = figures_of(adjudicate(data))
    assert (figures.arms, figures.plots) == ((), ())
    assert dict(figures.stated)["evidence"] == "modeled"


def test_v1_shows_means_with_deviations():
    figures = figures_of(adjudicate(published()))
    assert [type(plot) for plot in figures.plots] == [Spread, Spread]
    assert figures.plots[0].points[7] == ("7", 1.95926247, 0.431511456)
    assert errors_of(adjudicate(published())) == (52.3537316, 1.95926247)
    assert [arm.name for arm in figures.arms if arm.is_selected] == ["7"]


# The layout of contract v2, as far as the report reads it.
ARM = {
    "rotation": "r0",
    "clip_ratio": 0.7,
    "calibration": {"clip_ratio": [1.0, 0.7], "objective": [3.5, 2.5], "query_nmse": [[1.0], [2.0]]},
    "summary": {"nmse_mean": 2.5, "nmse_stddev": 0.5, "decode_us_median": 48.5},
    "trials": {"query": ["e0", "e1"], "nmse": [2.0, 3.0], "decode_us": [48.0, 49.0]},
}
V2 = {
    "contract_version": "kvint2eval/v2",
    "recipe": {
        "baseline": "r0",
        "clip_grid": [1.0, 0.7],
        "rotations": [{"id": "r0", "seed": None}, {"id": "<b>"}],
    },
    "protocol": {"arms_share_queries": True},
    "environment": {"python": None, "os": ""},
    "evidence": "observed",
    "measurements": {"selected": "<b>", "arms": [ARM, ARM | {"rotation": "<b>", "clip_ratio": 1.0}]},
    "claims": [{"metric": "output_nmse"}],
}


def verdict_of(record):
    return Verdict(Outcome.SUPPORTED, Reason.SUPPORTED, canonical=msgspec.json.encode(record))


def test_v2_shows_trials_and_clip_curves():
    figures = figures_of(verdict_of(V2))
    assert [arm.cells for arm in figures.arms] == [("0.7", "2.5", "0.5", "48.5"), ("1", "2.5", "0.5", "48.5")]
    assert [(arm.is_baseline, arm.is_selected) for arm in figures.arms] == [(True, False), (False, True)]
    nmse, decode, curve = figures.plots
    assert isinstance(nmse, Trials)
    assert errors_of(verdict_of(V2)) == (2.5, 2.5)
    assert nmse.arms == (("r0", (2.0, 3.0)), ("<b>", (2.0, 3.0)))
    assert (decode.unit, decode.arms[0]) == ("µs", ("r0", (48.0, 49.0)))
    assert isinstance(curve, Curve)
    assert curve.curves[0] == ("r0", ((1.0, 3.5), (0.7, 2.5)), 0.7)
    stated = dict(figures.stated)
    assert stated["recipe.clip_grid"] == "1, 0.7"
    assert stated["recipe.rotations.1.id"] == "<b>"
    assert stated["recipe.rotations.0.seed"] == stated["environment.python"] == "not stated"
    assert stated["protocol.arms_share_queries"] == "true"
    assert not any(path.startswith(("measurements", "claims")) for path in stated)
    text = section(Source("p"), verdict_of(V2), 1, None).decode()
    assert "<b>" not in text
    assert text.count("<svg") == 3
    assert "<dt><code>environment.os</code></dt><dd><i>empty</i></dd>" in text


def test_v2_without_measurements_has_no_table():
    empty = verdict_of({name: V2[name] for name in V2 if name != "measurements"})
    figures = figures_of(empty)
    assert (figures.arms, figures.plots) == ((), ())
    assert errors_of(empty) == (None, None)
