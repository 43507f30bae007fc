"""The sentences under "What it says" of docs/balanced.md: every figure in them is read from a comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.regen.balanced_tables import Runs

TEMPLATE = Path(__file__).with_suffix(".md")

_TUNED = ("quarot-centred-tuned", "oscar-centred-tuned", "optr-quarot-tuned", "optr-oscar-tuned")
_SAME_ROUNDING = ("quarot-feedback", "oscar-feedback")
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


def best(runs: "Runs", rivals: tuple[str, ...] = _TUNED, figure: str = _MODEL) -> str:
    """The rival with the least figure."""
    return min(rivals, key=lambda name: runs.figure(name, figure))


def sentences(
    sets: "dict[str, Runs]", models: "dict[str, Runs]", fresh: "Runs", sizes: "dict[str, Runs]"
) -> list[str]:
    """The lines of the list."""
    docs = models["docs"]
    values = _target(models, fresh) | _parts(sets, docs, fresh) | _others(sets)
    for name, tokens in zip(("small", "middle", "large"), ("1,024", "4,096", "8,192"), strict=True):
        values[f"size_{name}"] = tokens
        for whose, scheme in (("own", _OURS), ("rival", "oscar-centred-tuned")):
            values[f"size_{name}_{whose}"] = f"{sizes[tokens].figure(scheme, 'relative_error'):.4f}"
    values |= {
        name: f"{docs.figure(scheme, _MODEL):.4f}"
        for name, scheme in {
            "own_kl": _OURS,
            "same_kl": best(docs, _SAME_ROUNDING),
            "rival_kl": best(docs),
            "oscar_kl": "oscar-centred",
            "oscar_tuned_kl": "oscar-centred-tuned",
            "paper_kl": "optr-paper",
            "optr_kl": "optr-oscar-tuned",
            "quarot_kl": "quarot-centred",
            "paper_quarot_kl": "optr-paper-quarot",
        }.items()
    }
    return TEMPLATE.read_text(encoding="utf-8").format(**values).splitlines()


def _target(models: "dict[str, Runs]", fresh: "Runs") -> dict[str, str]:
    docs = models["docs"]
    same = best(docs, _SAME_ROUNDING)

    def over(runs: "Runs", rival: str, scheme: str = _OURS, metric: str = _MODEL) -> str:
        return interval(runs.ratio(scheme, rival, metric))

    return {
        "ten_rival": _TITLES[best(docs)],
        "ten_ratio": over(docs, best(docs)),
        "ten_plain": over(docs, best(docs), "balanced"),
        "fresh_rival": _TITLES[best(fresh)],
        "fresh_ratio": over(fresh, best(fresh)),
        "code_ratio": over(models["code"], "optr-oscar-tuned"),
        "prose_ratio": over(models["prose"], "optr-oscar-tuned"),
        "same": same,
        "ten_same": over(docs, same),
        "fresh_same": over(fresh, same),
        "same_attention": over(docs, same, metric="divergence_nats"),
    }


def _parts(sets: "dict[str, Runs]", docs: "Runs", fresh: "Runs") -> dict[str, str]:
    own = sets["docs"]
    rival = best(own, _TUNED, "relative_error")
    larger = [int((own.sums(_OURS, "value_part") > own.sums(one, "value_part")).sum()) for one in _TUNED]
    texts = []
    for runs in (docs, fresh):
        for index, sequence in enumerate(runs.content["evaluation"]):
            found = {
                name: runs.schemes[name]["runs"][index]["divergence_nats"]
                for name in (*_TUNED, *_SAME_ROUNDING, "balanced", _OURS)
            }
            first = min(found, key=lambda name: found[name])
            if first != _OURS:
                texts.append(f"{sequence['name']} (`{first}`)")
    return {
        "error_rival": rival,
        "key_part": f"{own.figure(_OURS, 'key_part') / own.figure(rival, 'key_part'):.2f}",
        "value_part": f"{own.figure(_OURS, 'value_part') / own.figure(rival, 'value_part'):.2f}",
        "fewest": str(min(larger)),
        "most": str(max(larger)),
        "losing": _losing(sets),
        "texts": ", ".join(texts) or "none",
    }


def _losing(sets: "dict[str, Runs]") -> str:
    """Heads whose whole error is larger than that of a rival that rounds to the nearest."""
    found = []
    for name, runs in sets.items():
        for rival in _TUNED:
            ratio = runs.sums(_OURS, "error") / runs.sums(rival, "error")
            found += [
                f"layer {layer} head {head} to `{rival}` with `{name}` ({ratio[layer, head]:.2f} times)"
                for layer, head in np.argwhere(ratio > 1)
            ]
    return ", ".join(found) or "none"


def _others(sets: "dict[str, Runs]") -> dict[str, str]:
    docs = sets["docs"]
    errors = [runs.figure(_OURS, "relative_error") for runs in sets.values()]
    divergences = {
        "quarot": "quarot",
        "quarot_centred": "quarot-centred",
        "quarot_tuned": "quarot-tuned",
        "quarot_centred_tuned": "quarot-centred-tuned",
        "centred_tuned": "centred-tuned",
    }
    return {
        "refined": f"{docs.figure('balanced-refined', 'relative_error'):.4f}",
        "plain": f"{docs.figure('balanced', 'relative_error'):.4f}",
        "least_error": f"{min(errors):.4f}",
        "most_error": f"{max(errors):.4f}",
        **{name: f"{docs.figure(scheme, 'divergence_nats'):.4f}" for name, scheme in divergences.items()},
    }
