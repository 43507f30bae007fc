"""Sentences of docs/results/balanced.md: every figure in them is read from a file of testdata/runs."""

import json
import math
import statistics
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.tools.regen.balanced_tables import Lengths, Runs

ROOT = Path(__file__).resolve().parents[3]
SAYS = Path(__file__).with_name("balanced_says.md")
WHERE = Path(__file__).with_name("balanced_where.md")
INDEPENDENT = ROOT / "testdata/runs/independent-trial.json"
#: Two-sided 95 % points of Student's t by degrees of freedom.
_T95 = {7: 2.364624, 9: 2.262157}

TUNED = ("quarot-centred-tuned", "oscar-centred-tuned", "optr-quarot-tuned", "optr-oscar-tuned")
SAME_ROUNDING = ("quarot-feedback", "oscar-feedback")
_OURS = "balanced-feedback"
_MODEL = "model_divergence_nats"
_TITLES = {
    "quarot-centred-tuned": "the tuned Hadamard rotation",
    "oscar-centred-tuned": "the tuned OSCAR rotation",
    "optr-quarot-tuned": "OptR from the tuned Hadamard rotation",
    "optr-oscar-tuned": "OptR from the tuned OSCAR rotation",
}


def interval(ratio: dict[str, Any]) -> str:
    """A ratio with its interval."""
    return f"{ratio['mean']:.2f} ({ratio['low']:.2f} … {ratio['high']:.2f})"


def best(runs: "Runs", rivals: tuple[str, ...] = TUNED, figure: str = _MODEL) -> str:
    """The rival with the least figure."""
    return min(rivals, key=lambda name: runs.figure(name, figure))


def t_interval(scheme: list[float], rival: list[float]) -> tuple[float, float]:
    """The interval of a ratio of means by Student's t: delta method, pairs by text."""
    count = len(scheme)
    below = statistics.fmean(rival)
    ratio = statistics.fmean(scheme) / below
    residuals = [(own - ratio * other) / below for own, other in zip(scheme, rival, strict=True)]
    half = _T95[count - 1] * statistics.stdev(residuals) / math.sqrt(count)
    return ratio - half, ratio + half


def sentences(sets: "dict[str, Runs]", fresh: "Runs", lengths: "dict[int, dict[str, Lengths]]") -> list[str]:
    """The paragraph under the figure."""
    docs, values = sets["docs"], _target(sets, fresh)
    same = values["same"]
    for tokens, rows in lengths.items():
        ratio = rows[_OURS].divergence / rows[same].divergence
        values[f"ratio_{tokens}"] = f"{ratio:.2f}"
    long = lengths[8192]
    others = {name: row for name, row in long.items() if name != "int2"}
    least = min(others, key=lambda name: others[name].divergence)
    values |= {
        "bits_2048": f"{lengths[2048][_OURS].bits:.2f}",
        "own_8192": f"{long[_OURS].divergence:.3f}",
        "same_8192": f"{long[same].divergence:.3f}",
        "model_own": f"{long[_OURS].model:.3f}",
        "model_same": f"{long[same].model:.3f}",
        "best_name": least,
        "best_8192": f"{long[least].divergence:.3f}",
        "over_balanced": f"{docs.figure(_OURS, _MODEL) / docs.figure('balanced', _MODEL):.2f}",
    }
    return _wrapped(SAYS, values)


def where(sets: "dict[str, Runs]", fresh: "Runs", sizes: "dict[str, Runs]") -> list[str]:
    """The list of what else was seen."""
    docs = sets["docs"]
    values = _target(sets, fresh) | _parts(sets, fresh) | _others(sets) | _layers(docs)
    for name, tokens in zip(("small", "middle"), ("1,024", "4,096"), strict=True):
        values[f"size_{name}"] = tokens
        for whose, scheme in (("own", _OURS), ("rival", "oscar-centred-tuned")):
            values[f"size_{name}_{whose}"] = f"{sizes[tokens].figure(scheme, 'relative_error'):.4f}"
    for name, scheme in {
        "quarot_kl": "quarot-centred",
        "quarot_plain_kl": "quarot",
        "quarot_tuned_kl": "quarot-tuned",
        "quarot_centred_tuned_kl": "quarot-centred-tuned",
    }.items():
        values[name] = f"{docs.figure(scheme, _MODEL):.4f}"
    return _wrapped(WHERE, values)


def independent() -> dict[str, list[str]]:
    """Sentences of what an independent trial reported, by the block that holds them."""
    found = json.loads(INDEPENDENT.read_text(encoding="utf-8"))
    length, qwen = found["length"]["divergence_nats"], found["qwen"]
    first, last = found["length"]["tokens_scored"]
    attention = ", ".join(f"`{name}` {value}" for name, value in qwen["attention_divergence_nats"].items())
    texts = {
        "trial-length": f"An independent implementation, with a cache that is really decoded, reported the same "
        f"reversal in the model's own predictions over tokens {first:,} … {last:,} of another text: KL "
        f"{length[_OURS]} for `{_OURS}` beside {length['quarot-centred-tuned']} for `quarot-centred-tuned` and "
        f"{length['quarot-feedback']:.3f} for `quarot-feedback`. On {qwen['model']}, at {qwen['tokens']:,} tokens, the "
        f"fit fails alike; per-channel keys, which fit nothing, had the least KL of attention there: {attention}. "
        "These figures are as reported (`testdata/runs/independent-trial.json`); no run of them is kept.",
        "trial-clips": f"How clips are chosen moves a result by as much as some schemes differ: on one fit another "
        f"sensible rule, the weighted quadratic loss, moved the KL of a text by {found['clip_rule_ratio']} in the "
        f"independent trial. Every figure here has the clips of [one rule](../methods/schemes.md), the same for all "
        f"tuned schemes. In that trial t = 0.3 was worth about {found['balance_gain_percent']} % over 0.5.",
        "trial-tokens": f"A mean over tokens is carried by few of them: in the independent trial "
        f"{found['positions_percent']} % of the positions had {found['positions_share_percent']} % of the KL. The "
        "files here have means by text, not by token.",
    }
    return {name: textwrap.wrap(text, 116, break_on_hyphens=False) for name, text in texts.items()}


def _wrapped(template: Path, values: dict[str, str]) -> list[str]:
    """A template's lines, each a paragraph or an item, with its values and at most 116 columns wide."""
    text = template.read_text(encoding="utf-8").format(**values)
    return [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(
            line, 116, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False
        )
    ]


def _target(sets: "dict[str, Runs]", fresh: "Runs") -> dict[str, str]:
    docs = sets["docs"]
    same = best(docs, SAME_ROUNDING)

    def over(runs: "Runs", rival: str, scheme: str = _OURS, metric: str = _MODEL) -> str:
        return interval(runs.ratio(scheme, rival, metric))

    return {
        "ten_rival": _TITLES[best(docs)],
        "ten_ratio": over(docs, best(docs)),
        "ten_plain": over(docs, best(docs), "balanced"),
        "published_ratio": over(docs, "oscar-centred"),
        "paper_ratio": over(docs, "optr-paper"),
        "fresh_rival": _TITLES[best(fresh)],
        "fresh_ratio": over(fresh, best(fresh)),
        **{f"{name}_rival": _TITLES[best(sets[name])] for name in ("code", "prose")},
        **{f"{name}_ratio": over(sets[name], best(sets[name])) for name in ("code", "prose")},
        **{f"{name}_plain": over(sets[name], best(sets[name]), "balanced") for name in ("code", "prose")},
        "same": same,
        "ten_same": over(docs, same),
        "fresh_same": over(fresh, same),
        "same_attention": over(docs, same, metric="divergence_nats"),
    }


def _parts(sets: "dict[str, Runs]", fresh: "Runs") -> dict[str, str]:
    own = sets["docs"]
    rival = best(own, TUNED, "relative_error")
    larger = [int((own.sums(_OURS, "value_part") > own.sums(one, "value_part")).sum()) for one in TUNED]
    return {
        "error_rival": rival,
        "key_part": f"{own.figure(_OURS, 'key_part') / own.figure(rival, 'key_part'):.2f}",
        "value_part": f"{own.figure(_OURS, 'value_part') / own.figure(rival, 'value_part'):.2f}",
        "fewest": str(min(larger)),
        "most": str(max(larger)),
        "losing": _losing(sets),
        "texts": _lost_texts({**sets, "fresh": fresh}),
    }


def _lost_texts(comparisons: "dict[str, Runs]") -> str:
    """Texts on which any other scheme of a comparison has less KL of the model."""
    found = []
    for name, runs in comparisons.items():
        for index, sequence in enumerate(runs.content["evaluation"]):
            divergences = {
                scheme: one["runs"][index]["divergence_nats"] for scheme, one in runs.schemes.items()
            }
            first = min(divergences, key=divergences.__getitem__)
            if first != _OURS:
                found.append(f"{sequence['name']} with `{name}` (`{first}`)")
    return ", ".join(found) or "none"


def _losing(sets: "dict[str, Runs]") -> str:
    """Heads whose whole error is larger than that of a rival that rounds to the nearest."""
    found = []
    for name, runs in sets.items():
        for rival in TUNED:
            ratio = runs.sums(_OURS, "error") / runs.sums(rival, "error")
            found += [
                f"layer {layer} head {head} to `{rival}` with `{name}` ({ratio[layer, head]:.2f} times)"
                for layer, head in np.argwhere(ratio > 1)
            ]
    return ", ".join(found) or "none"


def _layers(docs: "Runs") -> dict[str, str]:
    """Where the error lies, and where a scheme without the transform has less of it."""
    own = docs.sums(_OURS, "error").sum(axis=1)
    shares = own / own.sum()
    most = sorted(np.argsort(-shares)[:4].tolist())
    rival = best(docs, TUNED, "relative_error")
    same = best(docs, SAME_ROUNDING, "relative_error")

    def larger(other: str, figure: str) -> str:
        ours, theirs = (docs.sums(name, figure).sum(axis=1) for name in (_OURS, other))
        found = np.flatnonzero(ours > theirs)
        return f"layers {', '.join(map(str, found))}" if len(found) else "no layer"

    heads = np.argwhere(docs.sums(_OURS, "error") > docs.sums(same, "error"))
    return {
        "most_layers": ", ".join(map(str, most)),
        "most_share": f"{100 * shares[most].sum():.0f}",
        "layer_rival": rival,
        "value_layers": larger(rival, "value_part"),
        "layer_same": same,
        "same_layers": larger(same, "error"),
        "same_heads": ", ".join(f"{layer}/{head}" for layer, head in heads) or "none",
    }


def _others(sets: "dict[str, Runs]") -> dict[str, str]:
    ratios = []
    for name, runs in sets.items():
        pairs = [
            f"{runs.figure('balanced-refined', metric) / runs.figure('balanced', metric):.2f}"
            for metric in ("relative_error", "divergence_nats", _MODEL)
        ]
        ratios.append(f"{' / '.join(pairs)} with `{name}`")
    errors = [runs.figure(_OURS, "relative_error") for runs in sets.values()]
    return {
        "refined": ", ".join(ratios),
        "least_error": f"{min(errors):.4f}",
        "most_error": f"{max(errors):.4f}",
    }
