"""Plots: each value is where its axis says, whatever the values are."""

import re
from math import log10

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from kvint2eval.report.html.figures import Curve, Spread, Trials
from kvint2eval.report.html.plots import draw


def parsed(plot):
    return etree.fromstring(draw(plot, "p"))


def height_of(figure, value):
    """y coordinate of a value, by the labels of the axis: linear, or logarithmic where the plot says so."""
    is_log = "logarithmic axis" in "".join(figure.itertext())
    labels = [
        (float(text.text.replace(",", "")), float(text.get("y")) - 4)
        for text in figure.iter("text")
        if text.get("text-anchor") == "end" and text.get("class") is None
    ]
    (low, at_low), (high, at_high) = labels[0], labels[-1]
    share = (
        (log10(value) - log10(low)) / (log10(high) - log10(low)) if is_log else (value - low) / (high - low)
    )
    return at_low + (at_high - at_low) * share


@pytest.mark.parametrize(
    "points",
    [
        [("0", 52.3537316, 51.571284), ("7", 1.95926247, 0.431511456)],
        [("0", 19907.1976, 1938.675565), ("7", 19187.1855, 740.247367)],
        [("a", 0.1, 0.0), ("b", 0.3, 0.05)],
        [("a", 1e-7, 1e-8), ("b", 1e7, 1e6)],
    ],
)
def test_a_mean_stands_where_the_axis_says(points):
    figure = parsed(Spread("t", "", tuple(points)))
    circles = [float(circle.get("cy")) for circle in figure.iter("circle")]
    assert len(circles) == len(points)
    for y, (_, mean, _) in zip(circles, points, strict=True):
        assert abs(y - height_of(figure, mean)) <= 0.15
    xs = [float(circle.get("cx")) for circle in figure.iter("circle")]
    assert xs == sorted(xs)


def test_the_error_of_an_output_of_zeros_is_marked():
    for points, is_marked in (
        ((("0", 52.0, 51.5), ("7", 1.9, 1.5)), True),
        ((("0", 3.0, 0.1), ("7", 2.0, 0.1)), True),
    ):
        marks = [line for line in parsed(Spread("t", "", points)).iter("line") if line.get("class") == "mark"]
        assert bool(marks) == is_marked
    assert not [
        line for line in parsed(Spread("t", "µs", points)).iter("line") if line.get("class") == "mark"
    ]


def test_trials_are_drawn_one_by_one_and_the_rest_is_counted():
    figure = parsed(Trials("t", "µs", (("a", (1.0, 2.0, 3.0)), ("b", tuple(map(float, range(1, 301)))))))
    groups = [[float(one.get("cy")) for one in group.iter("circle")] for group in figure.iter("g")]
    assert [len(group) for group in groups] == [3, 200]
    for y, value in zip(groups[0], (1.0, 2.0, 3.0), strict=True):
        assert abs(y - height_of(figure, value)) <= 0.15
    assert figure.find(".//desc").text == (
        "a: 3 trials from 1 to 3 µs; b: 300 trials from 1 to 300 µs, the first 200 drawn"
    )


def test_a_clip_curve_runs_through_its_points_and_marks_the_chosen_one():
    # The published run's calibration objective of the baseline.
    objective = (
        (1.0, 8.80031528),
        (0.95, 8.04982777),
        (0.9, 7.24826845),
        (0.85, 6.4770923),
        (0.8, 5.77103382),
    )
    figure = parsed(
        Curve("t", (("0", objective, 0.8), *((f"r{at}", objective[:2], 0.7) for at in range(1, 14))))
    )
    line = figure.find(".//polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    for (_, y), (_, value) in zip(points, sorted(objective), strict=True):
        assert abs(y - height_of(figure, value)) <= 0.15
    (chosen,) = figure.iter("circle")
    assert (float(chosen.get("cx")), float(chosen.get("cy"))) == points[0]
    assert figure.find(".//desc").text.startswith(
        "0: least 5.77103382, chosen ratio 0.8; r1: least 8.04982777"
    )


numbers = st.floats(min_value=0, max_value=1.7e308) | st.sampled_from([0.0, 5e-324, 1.5e300, 1.7e308])


@example([("", 1e305, 2.3e-309), ("", 2.3e-309, 5e-324)])
@example([("x", 1e306, 0.0)])
@example([])
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), numbers, numbers), max_size=60))
def test_any_figures_give_a_plot_whose_coordinates_are_on_it(points):
    curve = tuple((name, ((one, two), (two, one)), one) for name, one, two in points)
    for plot in (
        Spread("t", "", tuple(points)),
        Trials("t", "", tuple((name, (one, two)) for name, one, two in points)),
        Curve("t", curve),
    ):
        text = draw(plot, "p")
        if not points:
            assert text == ""
            continue
        figure = etree.fromstring(text)
        for name in ("x", "x1", "x2", "cx"):
            assert all(0 <= float(one.get(name)) <= 640 for one in figure.iter() if one.get(name))
        for name in ("y", "y1", "y2", "cy"):
            assert all(0 <= float(one.get(name)) <= 260 for one in figure.iter() if one.get(name))
        assert not re.search("nan|inf", re.sub("<(title|desc|text).*?>.*?</", "", text))


def test_many_arms_are_described_as_far_as_it_helps():
    figure = parsed(Spread("t", "", tuple((str(at), 1.0 + at, 0.1) for at in range(100))))
    assert figure.find(".//desc").text.endswith("; and 60 more, in the table")
    assert len(list(figure.iter("circle"))) == 100
