"""Plot of a run: the trials' NMSE by candidate, and the clip curves."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from producer.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from producer.experiment.slice.protocol import RunResult

__all__ = ["FORMATS", "plot_run", "require_plot"]

FORMATS = (".svg", ".png")
_BASELINE, _SELECTED, _OTHER, _ZERO = "#b2182b", "#2166ac", "#8c8c8c", "#000000"


def require_plot(path: Path) -> None:
    """Raise when a plot to this path cannot be drawn; called before any work.

    Raises
    ------
    SpecError
        If the ending is unknown, its folder is not there, or matplotlib is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise SpecError(f"plot {path} is not allowed: its ending must be one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise SpecError(f"plot {path} is not allowed: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise SpecError("a plot needs matplotlib, which is not installed: pip install 'kvint2eval[report]'")


def plot_run(result: RunResult, path: Path, file_format: str) -> None:
    """Draw a run to a file.

    Parameters
    ----------
    result : RunResult
    path : Path
        Where the picture goes.
    file_format : {"svg", "png"}

    Notes
    -----
    Left: every trial's NMSE as a point, the median as a line, by candidate. Right: the calibration objective
    over the clip ratio, the chosen ratio as a point. Baseline and selected candidate are coloured; the dashed
    line is an output of zeros. Both axes of NMSE are logarithmic.
    """
    # No pyplot: it would keep the figure and look for a display.
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency
    from matplotlib.figure import Figure  # noqa: PLC0415

    # Fixed, so that the same run gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "kvint2eval", "font.size": 9}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        trials, curves = figure.subplots(1, 2)
        _draw_trials(trials, result)
        _draw_curves(curves, result)
        spec = result.spec
        figure.suptitle(
            f"{result.protocol.name}: {spec.seq_len} tokens, {spec.num_kv_heads} KV heads, "
            f"head dimension {spec.head_dim}, seed {spec.seed}"
        )
        metadata = {"Date": None} if file_format == "svg" else None
        figure.savefig(path, format=file_format, dpi=150, metadata=metadata)


def _color(result: RunResult, index: int) -> str:
    return _BASELINE if index == 0 else _SELECTED if index == result.selected else _OTHER


def _draw_trials(axes: Any, result: RunResult) -> None:
    for arm in result.arms:
        count = len(arm.nmse)
        # Spread evenly over the width of a candidate, in the order of the queries.
        places = [arm.index + 0.5 * ((trial + 0.5) / count - 0.5) for trial in range(count)]
        color = _color(result, arm.index)
        axes.plot(places, arm.nmse, ".", color=color, alpha=0.6, markersize=4)
        ordered = sorted(arm.nmse)
        median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        axes.hlines(median, arm.index - 0.35, arm.index + 0.35, color=color, linewidth=2)
    axes.axhline(1, color=_ZERO, linestyle="--", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks([arm.index for arm in result.arms])
    axes.set_xlabel("rotation (0: none)")
    axes.set_ylabel("output NMSE of a trial; line: median")


def _draw_curves(axes: Any, result: RunResult) -> None:
    # The two that matter last, so that they lie on top.
    order = sorted(result.arms, key=lambda arm: arm.index in {0, result.selected})
    for arm in order:
        label = (
            "baseline"
            if arm.index == 0
            else f"selected: {arm.index}"
            if arm.index == result.selected
            else None
        )
        color = _color(result, arm.index)
        axes.plot(arm.curve.ratios, arm.curve.objectives, "-", color=color, linewidth=1.2, label=label)
        axes.plot([arm.clip_ratio], [arm.curve.best_objective], "o", color=color, markersize=4)
    axes.axhline(1, color=_ZERO, linestyle="--", linewidth=0.8, label="output of zeros")
    axes.set_yscale("log")
    axes.set_xlabel("clip ratio; point: chosen")
    axes.set_ylabel("calibration objective (mean NMSE)")
    axes.legend(fontsize=8)
