"""The tables of docs/balanced.md, from the comparisons in testdata; the rest of the page stays."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
_END = "<!-- end -->\n"
_BALANCED = "balanced"


def page() -> bytes:
    """docs/balanced.md."""
    text = (ROOT / "docs/balanced.md").read_text(encoding="utf-8")
    found = {name: _comparison(name) for name in ("docs", "code", "prose")}
    tables = {
        "schemes": _schemes(found["docs"]),
        "ratios": _ratios(found["docs"]),
        "texts": _texts(found["docs"]),
        "sets": _sets(found),
        "heads": _heads(found),
    }
    for name, rows in tables.items():
        begin = f"<!-- begin {name}: by `make regen`; do not edit. -->\n"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(_END)
        if not found_begin or not found_end:
            raise SystemExit(f"docs/balanced.md: the marks {begin!r} and {_END!r} are missing")
        text = before + begin + "".join(f"| {' | '.join(row)} |\n" for row in rows) + _END + after
    return text.encode()


def _comparison(name: str) -> dict[str, Any]:
    path = ROOT / f"testdata/runs/balanced-{name}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for scheme in content["schemes"]:
        scheme["name"] = scheme["name"].partition("@")[0]
    return content


def _rule(columns: int) -> list[str]:
    return ["---"] * columns


def _schemes(content: dict[str, Any]) -> list[list[str]]:
    head = [
        "scheme",
        "error",
        "key part",
        "value part",
        "KL, attention",
        "perplexity",
        "KL, model",
        "same token",
    ]
    rows = [head, _rule(len(head))]
    for scheme in content["schemes"]:
        own, model = scheme["summary"], scheme["summary"]["model"]
        parts = [
            f"{own[name]:.4f}" for name in ("relative_error", "key_part", "value_part", "divergence_nats")
        ]
        rows.append(
            [
                f"`{scheme['name']}`",
                *parts,
                f"{model['perplexity']:.3f}",
                f"{model['divergence_nats']:.4f}",
                f"{100 * model['top1_agreement']:.1f} %",
            ]
        )
    return rows


def _ratios(content: dict[str, Any]) -> list[list[str]]:
    metrics = {
        "relative_error": "error",
        "divergence_nats": "KL, attention",
        "model_divergence_nats": "KL, model",
        "excess_nats": "log perplexity lost",
    }
    rows = [["scheme", "over", *metrics.values()], _rule(2 + len(metrics))]
    for scheme in content["schemes"]:
        if not scheme["name"].startswith(_BALANCED):
            continue
        for rival, versus in scheme["summary"]["versus"].items():
            if rival == "int2":
                continue
            cells = [_interval(versus[name]["scheme_over_rival"]) for name in metrics]
            rows.append([f"`{scheme['name']}`", f"`{rival.partition('@')[0]}`", *cells])
    return rows


def _interval(ratio: dict[str, Any] | None) -> str:
    return "" if ratio is None else f"{ratio['mean']:.2f} ({ratio['low']:.2f} … {ratio['high']:.2f})"


def _texts(content: dict[str, Any]) -> list[list[str]]:
    names = [scheme["name"] for scheme in content["schemes"]]
    shown = [name for name in names if name.endswith("-tuned") or name.startswith(_BALANCED)]
    by_name = dict(zip(names, content["schemes"], strict=True))
    rows = [["text", "16 bit", *(f"`{name}`" for name in shown)], _rule(2 + len(shown))]
    for index, sequence in enumerate(content["evaluation"]):
        exact = by_name[shown[0]]["runs"][index]["reference_perplexity"]
        cells = [f"{by_name[name]['runs'][index]['divergence_nats']:.4f}" for name in shown]
        rows.append([sequence["name"], f"{exact:.2f}", *cells])
    return rows


def _sets(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    head = ["scheme", *(f"{name}: {figure}" for name in found for figure in ("error", "KL"))]
    rows = [head, _rule(len(head))]
    by_name = [{scheme["name"]: scheme["summary"] for scheme in one["schemes"]} for one in found.values()]
    for name in by_name[0]:
        if not all(name in one for one in by_name):
            continue
        cells = []
        for one in by_name:
            cells += [f"{one[name]['relative_error']:.4f}", f"{one[name]['divergence_nats']:.4f}"]
        rows.append([f"`{name}`", *cells])
    return rows


def _heads(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    head = [
        "set",
        "over",
        "better heads, error",
        "better heads, KL",
        "geometric mean of ratios, error",
        "the same, KL",
    ]
    rows = [head, _rule(len(head))]
    for name, content in found.items():
        schemes = {scheme["name"]: scheme["figures"] for scheme in content["schemes"]}
        for rival in (one for one in schemes if one.endswith("-tuned")):
            better, means = [], []
            for figure in ("error", "divergence"):
                own, other = (np.array(schemes[one][figure]).sum(axis=0) for one in (_BALANCED, rival))
                better.append(f"{int((own < other).sum())} of {own.size}")
                means.append(f"{math.exp(np.log(own / other).mean()):.2f}")
            rows.append([name, f"`{rival}`", *better, *means])
    return rows
