"""The sentences under "What it says" of docs/methods/balanced.md: every figure in them is read from a comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.tools.regen.balanced_tables import Runs

TEMPLATE = Path(__file__).with_suffix(".md")

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


def sentences(sets: "dict[str, Runs]", fresh: "Runs", sizes: "dict[str, Runs]", seeds: "Runs") -> list[str]:
    """The lines of the list."""
    docs = sets["docs"]
    values = _target(sets, fresh) | _parts(sets, fresh) | _others(sets) | _layers(docs)
    for place, figure in (("seed", _MODEL), ("attention", "divergence_nats")):
        learned = [seeds.figure(name, figure) for name in seeds.schemes if name.startswith("optr-")]
        values |= {f"least_{place}": f"{min(learned):.4f}", f"most_{place}": f"{max(learned):.4f}"}
    values["oscar_tuned_attention"] = f"{docs.figure('oscar-centred-tuned', 'divergence_nats'):.4f}"
    for name, tokens in zip(("small", "middle", "large"), ("1,024", "4,096", "8,192"), strict=True):
        values[f"size_{name}"] = tokens
        for whose, scheme in (("own", _OURS), ("rival", "oscar-centred-tuned")):
            values[f"size_{name}_{whose}"] = f"{sizes[tokens].figure(scheme, 'relative_error'):.4f}"
    values |= {
        name: f"{docs.figure(scheme, _MODEL):.4f}"
        for name, scheme in {
            "own_kl": _OURS,
            "same_kl": best(docs, SAME_ROUNDING),
            "rival_kl": best(docs),
            "oscar_kl": "oscar-centred",
            "oscar_tuned_kl": "oscar-centred-tuned",
            "paper_kl": "optr-paper",
            "optr_kl": "optr-oscar-tuned",
            "quarot_kl": "quarot-centred",
            "paper_quarot_kl": "optr-paper-quarot",
            "quarot_plain_kl": "quarot",
            "quarot_tuned_kl": "quarot-tuned",
            "quarot_centred_tuned_kl": "quarot-centred-tuned",
            "centred_tuned_kl": "centred-tuned",
            "uncentred_kl": "balanced-uncentred",
        }.items()
    }
    return TEMPLATE.read_text(encoding="utf-8").format(**values).splitlines()


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
