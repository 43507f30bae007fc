"""Figures of the results pages, drawn from the files of testdata.

An SVG holds its data as JSON in its description. A figure is drawn anew when these data differ from the files', so that
another version of matplotlib, which writes other bytes, changes nothing.
"""

import io
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from tests.tools.regen.balanced_tables import Runs, by_length
from tests.tools.regen.performance import tables

ROOT = Path(__file__).resolve().parents[3]
Data = dict[str, Any]
_DESCRIPTION = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)


def described(svg: str) -> Data:
    """Data of a figure; empty where it holds none."""
    found = _DESCRIPTION.search(svg)
    content: Data = json.loads(unescape(found[1])) if found else {}
    return content


def render(name: str) -> bytes:
    """Bytes of docs/results/NAME.svg: as they are while its data are the files', else drawn anew."""
    data_of, draw = FIGURES[name]
    data: Data = json.loads(json.dumps(data_of()))
    path = ROOT / f"docs/results/{name}.svg"
    if path.is_file() and described(path.read_text(encoding="utf-8")) == data:
        return path.read_bytes()
    import matplotlib as mpl  # noqa: PLC0415 - only where a figure changed
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "kvint2eval", "font.size": 9, "axes.spines.top": False}):
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        draw(figure, data)
        made = io.BytesIO()
        metadata = {"Date": None, "Description": json.dumps(data)}
        figure.savefig(made, format="svg", metadata=metadata, facecolor="white")
    return re.sub(rb"[ \t]+\n", b"\n", made.getvalue())


_BY_TEXT = ("oscar-centred-tuned", "optr-oscar-tuned", "quarot-feedback", "balanced", "balanced-feedback")


def _balanced() -> Data:
    texts = {}
    for name in _BY_TEXT:
        runs = [one for which in ("docs", "fresh") for one in Runs(which).schemes[name]["runs"]]
        texts[name] = [round(one["divergence_nats"], 6) for one in runs]
    lengths = by_length()
    curves = {
        name: [round(row[name].divergence, 6) for row in lengths.values()]
        for name in lengths[8192]
        if name != "int2"
    }
    return {"texts": texts, "tokens": list(lengths), "curves": curves}


def _draw_balanced(figure: Any, data: Data) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    _dots(left, data["texts"], "KL of the model to 16 bit, nats; a dot is a text, the bar the mean")
    left.set_title("2,048 tokens, eighteen texts", loc="left")
    for name, values in data["curves"].items():
        width = 2.4 if name == "balanced-feedback" else 1.2
        right.plot(data["tokens"], values, marker="o", linewidth=width, label=name)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(data["tokens"], [f"{one:,}" for one in data["tokens"]])
    right.set_xlabel("tokens of one text")
    right.set_ylabel("KL of attention, nats")
    right.set_title("one text, fitted to 2,048 tokens", loc="left")
    right.legend(frameon=False, fontsize=8)


def _dots(axes: Any, rows: dict[str, list[float]], label: str) -> None:
    """Draw rows of dots with their means, on a logarithmic axis."""
    for place, (name, values) in enumerate(rows.items()):
        axes.plot(values, [place] * len(values), "o", markersize=4, alpha=0.5, label=name)
        axes.plot([sum(values) / len(values)], [place], "|", markersize=18, color="black")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(label)


def _schemes() -> Data:
    content = json.loads((ROOT / "testdata/runs/smollm2-schemes.json").read_text(encoding="utf-8"))
    return {
        one["name"]: [round(one["summary"][key], 6) for key in ("relative_error", "divergence_nats")]
        for one in content["schemes"]
    }


def _draw_schemes(figure: Any, data: Data) -> None:
    axes = figure.subplots()
    order = sorted(data, key=lambda name: -data[name][1])
    for column, label in enumerate(("error of the attention output", "KL of attention, nats")):
        axes.plot([data[name][column] for name in order], range(len(order)), "os"[column], label=label)
    axes.set_yticks(range(len(order)), order)
    axes.set_xscale("log")
    axes.set_xlabel("SmolLM2-135M, three texts of 2,048 tokens; less is better")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)


def _optr() -> Data:
    runs = Runs("seeds")
    names = [name for name in runs.schemes if name != "int2"]
    return {
        name.replace("optr-oscar-tuned", "seed 0").replace("seed 0-", "seed "): {
            "attention": round(runs.figure(name, "divergence_nats"), 6),
            "model": [round(one["divergence_nats"], 6) for one in runs.schemes[name]["runs"]],
        }
        for name in names
    }


def _draw_optr(figure: Any, data: Data) -> None:
    left, right = figure.subplots(1, 2)
    left.barh(list(data), [one["attention"] for one in data.values()], color="tab:blue", height=0.6)
    left.invert_yaxis()
    left.set_xlabel("KL of attention, nats, mean over ten texts")
    _dots(right, {name: one["model"] for name, one in data.items()}, "KL of the model, nats, by text")
    right.set_xscale("linear")


def _published() -> Data:
    record = json.loads((ROOT / "testdata/records/v1/supported/l4-published.json").read_text("utf-8"))
    paired = json.loads((ROOT / "testdata/runs/paired.json").read_text(encoding="utf-8"))
    rows = record["metrics"]["candidates"]
    return {
        "published": [[one["output_nmse_mean"], one["output_nmse_stddev"]] for one in rows],
        "paired": {arm["rotation"]: arm["trials"]["nmse"] for arm in paired["measurements"]["arms"]},
    }


def _draw_published(figure: Any, data: Data) -> None:
    left, right = figure.subplots(1, 2)
    means, deviations = zip(*data["published"], strict=True)
    left.errorbar(range(len(means)), means, deviations, fmt="o", capsize=2)
    left.set_yscale("log")
    left.set_xlabel("rotation of the published record; 0 is none")
    left.set_ylabel("NMSE, mean ± deviation of 10 queries")
    for place, values in enumerate(data["paired"].values()):
        right.plot([place] * len(values), values, "o", markersize=4, alpha=0.5)
    right.set_yscale("log")
    right.set_xticks(range(len(data["paired"])), list(data["paired"]))
    right.set_xlabel("arm of this project's paired run of 1,024 tokens")
    right.set_ylabel("NMSE of a query")
    for axes in (left, right):
        axes.axhline(1, color="black", linestyle="--", linewidth=0.8)
        axes.annotate(
            "an output of zeros", (0.98, 1), xycoords=("axes fraction", "data"), ha="right", va="bottom"
        )


def _performance() -> Data:
    found = tables()
    return {
        "v2": {row[0]: row[3] for row in found["v2"].rows},
        "published": {row[0]: row[4] for row in found["published"].rows},
    }


def _draw_performance(figure: Any, data: Data) -> None:
    left, right = figure.subplots(1, 2)
    titles = ("v2 record: time over that of json.loads", "published protocol: time over that of C++ loops")
    for axes, rows, title in zip((left, right), data.values(), titles, strict=True):
        axes.barh(list(rows), list(rows.values()), height=0.6)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linestyle="--", linewidth=0.8)
        axes.set_xlabel(title)


FIGURES: dict[str, tuple[Callable[[], Data], Callable[[Any, Data], None]]] = {
    "balanced": (_balanced, _draw_balanced),
    "schemes": (_schemes, _draw_schemes),
    "optr": (_optr, _draw_optr),
    "published-run": (_published, _draw_published),
    "performance": (_performance, _draw_performance),
}
