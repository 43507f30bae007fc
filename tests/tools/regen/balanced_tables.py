"""The tables of the results pages of balanced transforms and OptR, from the comparisons in testdata."""

import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.tools.regen.balanced_says import (
    SAME_ROUNDING,
    TUNED,
    independent,
    interval,
    sentences,
    t_interval,
    where,
)

ROOT = Path(__file__).resolve().parents[3]
_END = "<!-- end -->\n"
_OURS = ("balanced-feedback", "balanced")
_SETS = ("docs", "code", "prose")
#: Rows of the first table; the others are in that of the calibration sets.
_SHOWN = (
    *("int2", "centred", "quarot", "quarot-centred", "quarot-centred-tuned"),
    *("oscar", "oscar-centred", "oscar-centred-tuned"),
    *("optr-paper-quarot", "optr-quarot-tuned", "optr-paper", "optr-oscar-tuned"),
    *("balanced-clip", "balanced", "quarot-feedback", "oscar-feedback", "balanced-feedback"),
)
_SIZES = {"1,024": "size-1k", "2,048": "size-2k", "4,096": "docs", "8,192": "size-8k"}


class Runs:
    """A comparison, its schemes by name without the calibration set."""

    def __init__(self, name: str) -> None:
        path = ROOT / f"testdata/runs/balanced-{name}.json"
        self.content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.schemes = {one["name"].partition("@")[0]: one for one in self.content["schemes"]}
        self.rivals = [name.partition("@")[0] for name in self.content["rivals"]]

    def summary(self, scheme: str) -> dict[str, Any]:
        """What is said of a scheme."""
        found: dict[str, Any] = self.schemes[scheme]["summary"]
        return found

    def figure(self, scheme: str, name: str) -> float:
        """A figure of the summary; those of the model by `model_…`."""
        own = self.summary(scheme)
        return float(own["model"][name.removeprefix("model_")] if name.startswith("model_") else own[name])

    def ratio(self, scheme: str, rival: str, metric: str) -> dict[str, Any]:
        """The ratio of a scheme to a rival, with its interval."""
        for name, versus in self.summary(scheme)["versus"].items():
            if name.partition("@")[0] == rival:
                found: dict[str, Any] = versus[metric]["scheme_over_rival"]
                return found
        raise KeyError(rival)

    def sums(self, scheme: str, figure: str) -> "np.ndarray":
        """A figure by layer and head, summed over texts."""
        return np.array(self.schemes[scheme]["figures"][figure]).sum(axis=0)


class Lengths(NamedTuple):
    """What a scheme did to the text of the lengths, to one of them."""

    error: float
    divergence: float
    bits: float
    model: float | None
    """KL of the model's predictions, where it was run."""


LENGTH_TEXT = "_pydecimal.py"


def by_length() -> dict[int, dict[str, Lengths]]:
    """Schemes on the beginning of one text, by its number of tokens; the schemes of every length are the same."""
    long = {tokens: _read(f"length-{tokens // 1024}k.json") for tokens in (4096, 8192)}
    names = [one["name"] for one in long[8192]["schemes"]]
    found = {2048: _one_text(Runs("docs").content, names)}
    return found | {tokens: _one_text(content, names) for tokens, content in long.items()}


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "testdata/runs" / name).read_text(encoding="utf-8"))
    return content


def _one_text(content: dict[str, Any], names: list[str]) -> dict[str, Lengths]:
    (place,) = (at for at, one in enumerate(content["evaluation"]) if one["name"] == LENGTH_TEXT)
    schemes = {one["name"].partition("@")[0]: one for one in content["schemes"]}
    found = {}
    for name in names:
        sums = {key: np.array(values[place]).sum() for key, values in schemes[name]["figures"].items()}
        terms = content["queries_per_sum"] * np.array(schemes[name]["figures"]["error"][place]).size
        bits = schemes[name]["summary"]["bits_per_element"]
        error, divergence = sums["error"] / sums["reference"], sums["divergence"] / terms
        runs = schemes[name]["runs"]
        model = runs[place]["divergence_nats"] if runs else None
        found[name] = Lengths(float(error), float(divergence), bits, model)
    return found


def balanced_page() -> bytes:
    """docs/results/balanced.md."""
    sets = {name: Runs(name) for name in _SETS}
    fresh = Runs("fresh")
    sizes = {tokens: Runs(name) for tokens, name in _SIZES.items()}
    lengths = by_length()
    return _page(
        "docs/results/balanced.md",
        {
            "schemes": _schemes(sets["docs"], _SHOWN),
            "ratios": _ratios(sets["docs"]),
            "fresh": _schemes(fresh, tuple(fresh.schemes)),
            "fresh-ratios": _ratios(fresh),
            "texts": _texts(sets["docs"], fresh),
            "twins": _twins(sets["docs"]),
            "sets": _by_set(sets),
            "set-ratios": _set_ratios(sets),
            "heads": _heads(sets),
            "sizes": _by_size(sizes),
            "length": _lengths(lengths),
            "length-model": _length_model(),
            "medians": _medians(sets["docs"], fresh),
            "says": sentences(sets, fresh, lengths),
            "where": where(sets, fresh, sizes),
            **independent(),
            "remade": _quoted("remade-earlier.txt"),
        },
    )


def optr_page() -> bytes:
    """docs/results/optr.md."""
    blocks = {"objectives": _objectives(Runs("objectives")), "seeds": _seeds(Runs("seeds"))}
    return _page("docs/results/optr.md", blocks)


def _page(path: str, blocks: "dict[str, list[list[str]] | list[str]]") -> bytes:
    """A page with the blocks between its marks rebuilt: tables by rows of cells, or lines."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for name, rows in blocks.items():
        begin = f"<!-- begin {name}: by `make regen`; do not edit. -->\n"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(_END)
        if not found_begin or not found_end:
            raise SystemExit(f"{path}: the marks {begin!r} and {_END!r} are missing")
        text = before + begin + "".join(f"{line}\n" for line in _lines(rows)) + _END + after
    return text.encode()


def _lines(rows: "list[list[str]] | list[str]") -> list[str]:
    if isinstance(rows[0], str):
        return [str(line) for line in rows]
    head, *body = rows
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _parts(runs: Runs, scheme: str) -> list[str]:
    names = ("relative_error", "key_part", "value_part", "divergence_nats")
    return [f"{runs.figure(scheme, name):.4f}" for name in names]


def _error_and_divergence(runs: Runs, scheme: str) -> str:
    error, divergence = (runs.figure(scheme, name) for name in ("relative_error", "divergence_nats"))
    return f"{error:.4f} / {divergence:.4f}"


def _schemes(runs: Runs, names: tuple[str, ...]) -> list[list[str]]:
    head = ["error", "key part", "value part", "KL, attention", "perplexity", "KL, model", "same token"]
    rows = [["scheme", *head]]
    for name in names:
        perplexity = f"{runs.figure(name, 'model_perplexity'):.3f}"
        divergence = f"{runs.figure(name, 'model_divergence_nats'):.4f}"
        same = f"{100 * runs.figure(name, 'model_top1_agreement'):.1f} %"
        rows.append([f"`{name}`", *_parts(runs, name), perplexity, divergence, same])
    return rows


_METRICS = {
    "relative_error": "error",
    "divergence_nats": "KL, attention",
    "model_divergence_nats": "KL, model",
    "excess_nats": "log perplexity lost",
}


def _ratios(runs: Runs) -> list[list[str]]:
    rows = [["scheme", "over", *_METRICS.values()]]
    for name in _OURS:
        for rival in runs.rivals:
            if rival != "int2":
                cells = [interval(runs.ratio(name, rival, metric)) for metric in _METRICS]
                rows.append([f"`{name}`", f"`{rival}`", *cells])
    return rows


def _texts(*comparisons: Runs) -> list[list[str]]:
    shown = [*TUNED, *SAME_ROUNDING, *reversed(_OURS)]
    rows = [["text", "16 bit", *(f"`{name}`" for name in shown)]]
    for runs in comparisons:
        for index, sequence in enumerate(runs.content["evaluation"]):
            by_name = {name: runs.schemes[name]["runs"][index] for name in shown}
            exact = by_name[shown[0]]["reference_perplexity"]
            cells = [f"{one['divergence_nats']:.4f}" for one in by_name.values()]
            rows.append([sequence["name"], f"{exact:.2f}", *cells])
    return rows


#: By rotation: uncentred with the published clip and with its own, then centred with both.
_TWINS = {
    "none": ("int2-clip", "int2-tuned", "centred", "centred-tuned"),
    "Hadamard": ("quarot", "quarot-tuned", "quarot-centred", "quarot-centred-tuned"),
    "OSCAR": ("oscar", "oscar-tuned", "oscar-centred", "oscar-centred-tuned"),
    "OptR from Hadamard": (
        "optr-quarot-uncentred",
        "optr-quarot-uncentred-tuned",
        "optr-paper-quarot",
        "optr-quarot-tuned",
    ),
    "OptR from OSCAR": (
        "optr-oscar-uncentred",
        "optr-oscar-uncentred-tuned",
        "optr-paper",
        "optr-oscar-tuned",
    ),
    "balanced": ("balanced-uncentred-clip", "balanced-uncentred", "balanced-clip", "balanced"),
}


def _twins(runs: Runs) -> list[list[str]]:
    kinds = ("published clip", "own clip", "centred, published clip", "centred, own clip")
    rows = [["rotation", *kinds]]
    for rotation, names in _TWINS.items():
        cells = [
            f"{_error_and_divergence(runs, name)} / {runs.figure(name, 'model_divergence_nats'):.4f} / "
            f"{runs.figure(name, 'model_perplexity'):.2f}"
            for name in names
        ]
        rows.append([rotation, *cells])
    return rows


def _by_set(sets: dict[str, Runs]) -> list[list[str]]:
    figures = ("relative_error", "divergence_nats", "model_divergence_nats")
    rows = [["scheme", *(f"{name}: {_METRICS[figure]}" for name in sets for figure in figures)]]
    for scheme in sets["docs"].schemes:
        cells = [
            f"{runs.figure(scheme, figure):.4f}" if scheme in runs.schemes else ""
            for runs in sets.values()
            for figure in figures
        ]
        rows.append([f"`{scheme}`", *cells])
    return rows


def _set_ratios(sets: dict[str, Runs]) -> list[list[str]]:
    rows = [["scheme", "over", *sets]]
    for name in _OURS:
        for rival in sets["docs"].rivals[1:]:
            cells = [interval(runs.ratio(name, rival, "model_divergence_nats")) for runs in sets.values()]
            rows.append([f"`{name}`", f"`{rival}`", *cells])
    return rows


def _heads(sets: dict[str, Runs]) -> list[list[str]]:
    figures = {"error": "error", "value_part": "value part", "divergence": "KL"}
    rows = [
        ["set", "scheme", "over", *(f"better heads, {name}" for name in figures.values()), "mean ratio, KL"]
    ]
    for set_name, runs in sets.items():
        for name in _OURS:
            for rival in (*TUNED, *SAME_ROUNDING):
                cells = []
                for figure in figures:
                    own, other = runs.sums(name, figure), runs.sums(rival, figure)
                    cells.append(f"{int((own < other).sum())} of {own.size}")
                mean = math.exp(np.log(own / other).mean())
                rows.append([set_name, f"`{name}`", f"`{rival}`", *cells, f"{mean:.2f}"])
    return rows


def _quoted(name: str) -> list[str]:
    """A file of testdata/runs as a block of text."""
    return ["```text", *(ROOT / "testdata/runs" / name).read_text(encoding="utf-8").splitlines(), "```"]


def _lengths(lengths: dict[int, dict[str, Lengths]]) -> list[list[str]]:
    names = list(lengths[8192])
    rows = [["tokens", "bits an element", *(f"`{name}`: error / KL" for name in names)]]
    for tokens, row in lengths.items():
        cells = [f"{row[name].error:.4f} / {row[name].divergence:.4f}" for name in names]
        rows.append([f"{tokens:,}", f"{row[names[0]].bits:.2f}", *cells])
    return rows


def _length_model() -> list[list[str]]:
    rows = [["scheme", "perplexity", "16 bit", "KL, model", "same token"]]
    for one in _read("length-8k.json")["schemes"]:
        (run,) = one["runs"]
        cells = [f"{run[key]:.3f}" for key in ("perplexity", "reference_perplexity")]
        cells += [f"{run['divergence_nats']:.4f}", f"{100 * run['top1_agreement']:.1f} %"]
        rows.append([f"`{one['name']}`", *cells])
    return rows


def _medians(docs: Runs, fresh: Runs) -> list[list[str]]:
    rows = [
        ["texts", "over", "ratio of means, percentile interval", "interval by t", "median ratio of a text"]
    ]
    for title, runs in (("ten", docs), ("fresh eight", fresh)):
        own = [one["divergence_nats"] for one in runs.schemes["balanced-feedback"]["runs"]]
        for rival in (*TUNED, *SAME_ROUNDING):
            other = [one["divergence_nats"] for one in runs.schemes[rival]["runs"]]
            low, high = t_interval(own, other)
            middle = statistics.median(a / b for a, b in zip(own, other, strict=True))
            ratio = interval(runs.ratio("balanced-feedback", rival, "model_divergence_nats"))
            rows.append([title, f"`{rival}`", ratio, f"{low:.2f} … {high:.2f}", f"{middle:.2f}"])
    return rows


def _by_size(sizes: dict[str, Runs]) -> list[list[str]]:
    names = [name for name in sizes["1,024"].schemes if name != "int2"]
    rows = [["calibration tokens", *(f"`{name}`: error / KL" for name in names)]]
    for tokens, runs in sizes.items():
        rows.append([tokens, *(_error_and_divergence(runs, name) for name in names)])
    return rows


def _objectives(runs: Runs) -> list[list[str]]:
    start, papers = "oscar-centred-tuned", "optr-oscar-tuned"
    names = {
        start: "none: the start",
        "optr-cache": "cache: ‖K̃ - K‖² and ‖Ṽ - V‖²",
        "optr-readout": "before W_O",
        papers: "after W_O, the paper's",
    }
    metrics = {"relative_error": "error", "divergence_nats": "KL"}
    rows = [
        [
            *("objective", "error", "key part", "value part", "KL, attention"),
            *(f"{title} over the start" for title in metrics.values()),
            *(f"{title} over the paper's" for title in metrics.values()),
        ]
    ]
    for name, title in names.items():
        ratios = [
            "" if name in (start, rival) else interval(runs.ratio(name, rival, metric))
            for rival in (start, papers)
            for metric in metrics
        ]
        rows.append([title, *_parts(runs, name), *ratios])
    return rows


def _seeds(runs: Runs) -> list[list[str]]:
    rows = [["seed", "error", "KL, attention", "KL, model", "perplexity", "KL, model, over the start"]]
    for name in runs.schemes:
        if name == "int2":
            continue
        is_start = name == "oscar-centred-tuned"
        seed = (
            "none: the start" if is_start else name.removeprefix("optr-oscar-tuned").removeprefix("-") or "0"
        )
        figures = ("relative_error", "divergence_nats", "model_divergence_nats")
        cells = [f"{runs.figure(name, figure):.4f}" for figure in figures]
        ratio = "" if is_start else interval(runs.ratio(name, "oscar-centred-tuned", "model_divergence_nats"))
        rows.append([seed, *cells, f"{runs.figure(name, 'model_perplexity'):.3f}", ratio])
    return rows
