"""Plot of a comparison: error by layer, and heat maps by layer and KV head (OptR, figure 5)."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from producer.experiment.trace.compare_schemes import SchemeComparison

__all__ = ["plot_comparison"]

_LOW, _HIGH = 1.0, 100.0


def plot_comparison(comparison: "SchemeComparison", path: "Path") -> None:
    """Draw a comparison to a file, written to a temporary name and renamed.

    Parameters
    ----------
    comparison : SchemeComparison
    path : Path
        Ends with .svg or .png.

    Notes
    -----
    Left: mean ‖Δy‖² by layer, one line a scheme, logarithmic. Right: for every scheme but the baseline
    100·err/err_INT2 by layer and KV head, a ratio of mean squares, on a logarithmic scale from 1 to 100 %.
    """
    # No pyplot: it would keep the figure and look for a display.
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency
    from matplotlib.figure import Figure  # noqa: PLC0415

    from producer.system.files import temporary_beside  # noqa: PLC0415

    others = [index for index in range(len(comparison.schemes)) if index != comparison.baseline]
    with mpl.rc_context({"svg.hashsalt": "kvint2eval", "font.size": 8}):
        width = 7 + 1.1 * max(len(others), 1)
        figure = Figure(figsize=(width, 4.6), layout="constrained")
        lines, maps = np.asarray(figure.subfigures(1, 2, width_ratios=(5, width - 5))).tolist()
        _draw_layers(lines.subplots(), comparison)
        if others:
            _draw_maps(maps, comparison, others)
        with temporary_beside(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), metadata=_metadata(path))


def _metadata(path: "Path") -> dict[str, None]:
    """Return metadata without a date, so that the same comparison gives the same bytes."""
    return {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}


def _draw_layers(axes: Any, comparison: "SchemeComparison") -> None:
    """Draw the error of every scheme by layer."""
    import matplotlib as mpl  # noqa: PLC0415

    colours = mpl.colormaps["tab20"](np.arange(len(comparison.schemes)) % 20)
    axes.set_prop_cycle(color=colours.tolist())
    for index, scheme in enumerate(comparison.schemes):
        style = "--" if index == comparison.baseline else "-"
        axes.plot(comparison.layer_error(index), style, label=scheme.name, linewidth=1)
    axes.set(xlabel="layer", ylabel="mean ‖Δy‖² after W_O", yscale="log")
    axes.legend(fontsize=6, ncols=2)


def _draw_maps(figure: Any, comparison: "SchemeComparison", others: list[int]) -> None:
    """Draw the heat maps, one a scheme, with one colour bar."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415

    panels = np.atleast_1d(figure.subplots(1, len(others), sharey=True))
    image = None
    for axes, index in zip(panels, others, strict=True):
        image = axes.imshow(
            comparison.percent_of_baseline(index),
            norm=LogNorm(_LOW, _HIGH),
            cmap="viridis",
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_title(comparison.schemes[index].name, rotation=60, ha="left", fontsize=6)
        axes.set(xlabel="KV head")
    panels[0].set_ylabel("layer")
    figure.colorbar(image, ax=panels.tolist(), label="% of int2, mean squares")
