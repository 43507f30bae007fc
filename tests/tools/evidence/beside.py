"""A campaign beside the published one: the means of every scheme, and whether those in closed form came out again."""

import math
from collections.abc import Collection, Iterator
from typing import Any

from producer.record.rederive_remade import REMADE_TOLERANCE

_FIGURES = {"relative_error": "error", "divergence_nats": "KL, attention", "model": "KL, model"}


def beside(
    fresh: dict[str, Any], published: dict[str, Any], trained: Collection[str]
) -> tuple[list[str], bool]:
    """Lines of a table, and whether all means of schemes in closed form are within `REMADE_TOLERANCE`.

    Parameters
    ----------
    fresh, published : dict
        JSON of two comparisons.
    trained : collection of str
        Schemes, without the set, whose figures depend on the path of training: they are shown, not judged.
    """
    theirs = {scheme["name"]: scheme for scheme in published["schemes"]}
    lines, agrees = [], theirs.keys() == {scheme["name"] for scheme in fresh["schemes"]}
    for scheme in fresh["schemes"]:
        name = scheme["name"]
        if name not in theirs:
            lines.append(f"{name}: not published")
            continue
        cells, worst = [], 0.0
        for title, ours, said in _means(scheme, theirs[name]):
            difference = ours / said - 1 if said else math.inf * (ours - said)
            worst = max(worst, abs(difference))
            cells.append(f"{title} {said:.4f}, here {ours:.4f} ({100 * difference:+.2f} %)")
        is_trained = name.partition("@")[0] in trained
        verdict = "trained" if is_trained else "as published" if worst <= REMADE_TOLERANCE else "DIFFERS"
        agrees &= verdict != "DIFFERS"
        lines.append(f"{name}: {'; '.join(cells)}: {verdict}")
    return lines, agrees


def _means(scheme: dict[str, Any], published: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    for figure, title in _FIGURES.items():
        ours, said = (one["summary"][figure] for one in (scheme, published))
        if figure == "model":
            if ours is None or said is None:
                continue
            ours, said = ours["divergence_nats"], said["divergence_nats"]
        yield title, ours, said
