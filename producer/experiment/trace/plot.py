"""Pictures of a comparison, from its JSON: error by layer and head, residual stream, the model's loss, the frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.experiment.trace.compare_schemes import BASELINE, RESAMPLES, SEED
from producer.numerics.bootstrap import paired_bootstrap
from producer.system.files import temporary_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from producer.numerics.arrays import Float64Array

__all__ = ["PICTURES", "draw_picture", "frontier_of", "plot_comparison"]

_LOW, _HIGH = 1.0, 100.0
#: Heat maps side by side.
_COLUMNS = 10
#: Least distance of two names in a picture, as part of its height and width.
_APART = 0.022


def _figures(scheme: dict[str, Any], metric: str) -> Float64Array:
    """Return the figures of a metric, float64, shape (sequences, layers, num_kv_heads)."""
    return np.asarray(scheme["figures"][metric], dtype=np.float64)


def _baseline(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(scheme for scheme in content["schemes"] if scheme["name"] == BASELINE)
    return found


def plot_comparison(content: dict[str, Any], path: Path) -> None:
    """Draw error by layer and head to a file: `draw_picture` of the picture `error`."""
    draw_picture(content, "error", path)


def draw_picture(content: dict[str, Any], picture: str, path: Path) -> None:
    """Draw one picture of a comparison to a file, written to a temporary name and renamed.

    Parameters
    ----------
    content : dict
        JSON of a comparison (`producer.experiment.trace.compare_schemes.SchemeComparison.to_json`).
    picture : str
        One of `PICTURES`.
    path : Path
        Ends with .svg or .png.

    Raises
    ------
    SpecError
        If there is no such picture, or the comparison holds no runs of the model and the picture is of them.

    Notes
    -----
    error: mean ‖Δy‖² by layer, one line a scheme, and for every scheme but the baseline 100·err/err_INT2 by layer and
    KV head, a ratio of mean squares, from 1 to 100 %; a head whose values are zero is left white. residual:
    Σ‖h̃ - h‖²/Σ‖h‖² after each layer, mean over texts. model: the rise of the mean loss, log of the perplexity over that
    in 16 bits, and the divergence of predictions, with bootstrap intervals of 95 % over texts where there are several.
    frontier: bits per element against the error of the output, and against the divergence of predictions where there
    are runs; the line joins the schemes that no other beats in both. All errors are on logarithmic axes.
    """
    if picture not in PICTURES:
        raise SpecError(f"picture {picture!r} is not allowed: one of {', '.join(PICTURES)}")
    draw, needs_runs = PICTURES[picture]
    if needs_runs and not any(scheme["runs"] for scheme in content["schemes"]):
        raise SpecError(
            f"picture {picture!r} is not allowed: the comparison holds no runs of a model (--model)"
        )
    # No pyplot: it would keep the figure and look for a display.
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    with mpl.rc_context({"svg.hashsalt": "kvint2eval", "font.size": 8}):
        figure = draw(content)
        # Without a date, so that the same comparison gives the same bytes.
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        with temporary_beside(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), metadata=metadata, dpi=120)


def _new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), layout="constrained")


def _colours(count: int) -> list[Any]:
    import matplotlib as mpl  # noqa: PLC0415

    found: list[Any] = mpl.colormaps["tab20"](np.arange(count) % 20).tolist()
    return found


def _error(content: dict[str, Any]) -> Any:
    others = [scheme for scheme in content["schemes"] if scheme["name"] != BASELINE]
    columns, rows = min(max(len(others), 1), _COLUMNS), -(-len(others) // _COLUMNS)
    width = 7 + 1.1 * columns
    figure = _new_figure(width, 1.6 + 3.2 * max(rows, 1))
    lines, maps = np.asarray(figure.subfigures(1, 2, width_ratios=(5, width - 5))).tolist()
    axes = lines.subplots()

    def by_layer(scheme: dict[str, Any]) -> Float64Array:
        mean: Float64Array = _figures(scheme, "error").mean(axis=(0, 2)) / content["queries_per_sum"]
        return mean

    _draw_lines(axes, content["schemes"], by_layer)
    axes.set(ylabel="mean ‖Δy‖² after W_O")
    lines.legend(loc="outside lower center", fontsize=6, ncols=3)
    if others:
        _draw_maps(maps, _figures(_baseline(content), "error").sum(axis=0), others)
    return figure


def _draw_lines(
    axes: Any, schemes: Sequence[dict[str, Any]], by_layer: Callable[[dict[str, Any]], Float64Array]
) -> None:
    """Draw a value of every scheme by layer; what is 0 has no place on a logarithmic axis and is left out."""
    axes.set_prop_cycle(color=_colours(len(schemes)))
    is_drawn = False
    for scheme in schemes:
        values = by_layer(scheme)
        is_drawn = is_drawn or bool((values > 0).any())
        style = "--" if scheme["name"] == BASELINE else "-"
        axes.plot(
            np.where(values > 0, values, np.nan),
            style,
            label=scheme["name"],
            linewidth=1,
            marker=".",
            markersize=3,
        )
    axes.set(xlabel="layer", yscale="log" if is_drawn else "linear")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_maps(figure: Any, baseline: Float64Array, others: list[dict[str, Any]]) -> None:
    """Draw the heat maps, one a scheme, with one colour bar."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415

    columns = min(len(others), _COLUMNS)
    grid = np.atleast_2d(
        figure.subplots(-(-len(others) // columns), columns, sharex=True, sharey=True, squeeze=False)
    )
    panels = grid.ravel()
    for axes in panels[len(others) :]:
        axes.set_axis_off()
    image = None
    for axes, scheme in zip(panels, others, strict=False):
        error = _figures(scheme, "error").sum(axis=0)
        percent = np.full(error.shape, np.nan)
        np.divide(100 * error, baseline, out=percent, where=baseline > 0)
        image = axes.imshow(
            np.clip(percent, _LOW, _HIGH),
            norm=LogNorm(_LOW, _HIGH),
            cmap="viridis",
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_title(scheme["name"], rotation=30, ha="left", fontsize=6)
    for axes in grid[-1]:
        axes.set(xlabel="KV head")
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    for axes in grid[:, 0]:
        axes.set(ylabel="layer")
    panels[0].yaxis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=grid.ravel().tolist(), label=f"% of {BASELINE}, mean squares")


def _residual(content: dict[str, Any]) -> Any:
    figure = _new_figure(7, 4.6)
    axes = figure.subplots()
    schemes = [scheme for scheme in content["schemes"] if scheme["runs"]]

    def by_layer(scheme: dict[str, Any]) -> Float64Array:
        mean: Float64Array = np.mean([run["residual_by_layer"] for run in scheme["runs"]], axis=0)
        return mean

    _draw_lines(axes, schemes, by_layer)
    axes.set(ylabel="residual stream, Σ‖h̃ - h‖² / Σ‖h‖²")
    figure.legend(loc="outside lower center", fontsize=6, ncols=4)
    return figure


def _interval(values: list[float]) -> tuple[float, float, float]:
    """Return mean, low and high of values by text; the mean three times where there is one text."""
    if len(values) < 2:
        return (values[0],) * 3
    found = paired_bootstrap(values, [0.0] * len(values), resamples=RESAMPLES, seed=SEED)
    return found.mean, found.low, found.high


def _model(content: dict[str, Any]) -> Any:
    schemes = [scheme for scheme in content["schemes"] if scheme["runs"]]
    rise = [
        _interval([np.log(run["perplexity"] / run["reference_perplexity"]).item() for run in scheme["runs"]])
        for scheme in schemes
    ]
    divergence = [_interval([run["divergence_nats"] for run in scheme["runs"]]) for scheme in schemes]
    order = sorted(range(len(schemes)), key=lambda place: -divergence[place][0])
    figure = _new_figure(9, 1.6 + 0.2 * len(schemes))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, found in zip(panels, (rise, divergence), strict=True):
        middle, low, high = (np.array([found[place][one] for place in order]) for one in range(3))
        rows = np.arange(len(order))
        axes.errorbar(
            middle, rows, xerr=(middle - low, high - middle), fmt="o", markersize=3, capsize=2, linewidth=1
        )
        axes.grid(axis="x", linewidth=0.3)
    panels[0].set_yticks(range(len(order)), [schemes[place]["name"] for place in order])
    if all(each[1] > 0 for each in rise):
        panels[0].set_xscale("log")
    else:
        # A scheme may come out below 16 bits by chance, which a logarithm cannot show.
        panels[0].set_xscale("symlog", linthresh=1e-2)
        panels[0].axvline(0, color="black", linewidth=0.5)
    if all(each[1] > 0 for each in divergence):
        panels[1].set_xscale("log")
    panels[0].set(xlabel="rise of the loss in nats: log(perplexity / that in 16 bits)")
    panels[1].set(xlabel="divergence of predictions in nats")
    plain = schemes[0]["summary"]["model"]["reference_perplexity"]
    texts = len(content["evaluation"])
    spread = "bars: 95 % over texts" if texts > 1 else "one text: no interval"
    figure.suptitle(
        f"perplexity in 16 bits {plain:.3f}, {texts} text{'s' if texts > 1 else ''}; {spread}", fontsize=8
    )
    return figure


def frontier_of(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of the points that no other beats: as few bits and less error, or fewer and as little.

    Parameters
    ----------
    points : sequence of (float, float)
        Bits and error.

    Returns
    -------
    list of int
        By rising bits.
    """
    best, found = float("inf"), []
    for place in sorted(range(len(points)), key=lambda one: points[one]):
        if points[place][1] < best:
            best = points[place][1]
            found.append(place)
    return found


def _frontier(content: dict[str, Any]) -> Any:
    schemes = content["schemes"]
    has_runs = any(scheme["runs"] for scheme in schemes)
    figure = _new_figure(6.4 * (1 + has_runs), 5)
    panels = np.atleast_1d(figure.subplots(1, 1 + has_runs))
    bits = [scheme["summary"]["bits_per_element"] for scheme in schemes]
    errors = [scheme["summary"]["relative_error"] for scheme in schemes]
    _draw_frontier(panels[0], [scheme["name"] for scheme in schemes], bits, errors)
    panels[0].set(ylabel="error of the output, Σ‖Δy‖² / Σ‖y‖²")
    if has_runs:
        run = [place for place, scheme in enumerate(schemes) if scheme["runs"]]
        divergence = [schemes[place]["summary"]["model"]["divergence_nats"] for place in run]
        _draw_frontier(
            panels[1], [schemes[place]["name"] for place in run], [bits[place] for place in run], divergence
        )
        panels[1].set(ylabel="divergence of predictions in nats")
    return figure


def _draw_frontier(axes: Any, names: list[str], bits: list[float], errors: list[float]) -> None:
    """Draw bits against error: the frontier as a line with its names, the others as points."""
    shown = [place for place, error in enumerate(errors) if error > 0]
    on_line = [shown[place] for place in frontier_of([(bits[place], errors[place]) for place in shown])]
    axes.plot(
        [bits[place] for place in shown], [errors[place] for place in shown], "o", color="0.7", markersize=3
    )
    axes.plot(
        [bits[place] for place in on_line],
        [errors[place] for place in on_line],
        "o-",
        markersize=4,
        linewidth=1,
    )
    axes.set(xlabel="bits per element, as stored", yscale="log" if shown else "linear")
    axes.margins(x=0.18)
    axes.grid(linewidth=0.3)
    taken: list[float] = []
    for place in sorted(shown, key=lambda one: one not in on_line):
        is_best = place in on_line
        # A name that would lie on another is left out; those of the frontier come first.
        height = float(
            axes.transAxes.inverted().transform(axes.transData.transform((bits[place], errors[place])))[1]
        )
        if not is_best and any(abs(height - other) < _APART for other in taken):
            continue
        taken.append(height)
        axes.annotate(
            names[place],
            (bits[place], errors[place]),
            xytext=(4, 2),
            textcoords="offset points",
            fontsize=6 if is_best else 5,
            color="black" if is_best else "0.4",
        )


#: Pictures by name, with what draws them and whether they need runs of the model.
PICTURES: dict[str, tuple[Callable[[dict[str, Any]], Any], bool]] = {
    "error": (_error, False),
    "residual": (_residual, True),
    "model": (_model, True),
    "frontier": (_frontier, False),
}
