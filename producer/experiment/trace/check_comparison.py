"""Checks of a comparison's JSON: summaries and intervals recomputed from its figures, and two outputs compared.

Nothing is run: a model, a trace and the schemes are not needed. Sums are taken in plain Python, a second time and in
another way than `producer.experiment.trace.compare_schemes` takes them.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from producer.errors import FileFormatError, SpecError
from producer.experiment.trace.compare_schemes import BASELINE, FORMAT, METRICS, RESAMPLES, SEED
from producer.numerics.bootstrap import paired_bootstrap, ratio_bootstrap
from producer.quantize import present_name
from producer.scheme.registry import ADDED_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "TOLERANCE",
    "ComparisonFinding",
    "check_comparison",
    "compare_comparisons",
    "read_comparison",
    "renamed_dialects",
]

#: Between two runs: rounding of another machine moves values to the next code, and a cache's error by as much.
TOLERANCE = 2e-3
# Of a sum that is taken again: rounding of float64 alone.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ComparisonFinding:
    """A value that is not what it has to be.

    Attributes
    ----------
    pointer : str
        JSON pointer of the value; schemes and sequences by their place.
    found, expected : object
        JSON values.
    difference : float or None
        Relative to the scale of the figure; None where a value has to be equal.
    """

    pointer: str
    found: Any
    expected: Any
    difference: float | None = None

    def __str__(self) -> str:
        size = "" if self.difference is None else f", a difference of {self.difference:.2g}"
        return f"{self.pointer}: found {_shown(self.found)}, expected {_shown(self.expected)}{size}"


def _shown(value: Any) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def read_comparison(path: Path) -> dict[str, Any]:
    """Return the JSON of a comparison.

    Raises
    ------
    FileFormatError
        If the file is no JSON object of this format.
    OSError
        If it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(f"{path}: format {found!r} is not allowed: {FORMAT}")
    try:
        check_comparison(content)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error
    return content


def renamed_dialects(content: dict[str, Any]) -> list[str]:
    """Return a line for every dialect that a comparison names by what it is not called any more, or not here."""
    return [
        f"scheme {scheme['name']!r}: its dialect {name!r} is {present_name(name, str(digest))!r}, by its fingerprint"
        for scheme in content["schemes"]
        for name, digest in dict(scheme.get("fingerprints") or {}).items()
        if present_name(name, str(digest)) != name
    ]


def check_comparison(content: Any) -> list[ComparisonFinding]:
    """Return what is wrong with the summaries and intervals of a comparison: nothing, if all follow from its figures.

    Parameters
    ----------
    content : dict
        JSON of `producer.experiment.trace.compare_schemes.Comparison.to_json`.

    Raises
    ------
    FileFormatError
        If it is no comparison of this format, or members are missing or of another shape.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(f"format {found!r} is not allowed: {FORMAT}")
    try:
        return list(_findings(content))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        if isinstance(error, SpecError):
            raise FileFormatError(f"not a comparison of {FORMAT}: {error}") from error
        raise FileFormatError(f"not a comparison of {FORMAT}: {error!r}") from error


def _findings(content: dict[str, Any]) -> Iterator[ComparisonFinding]:
    schemes = content["schemes"]
    names = [scheme["name"] for scheme in schemes]
    if len(set(names)) != len(names) or not {BASELINE, *content["rivals"]} <= set(names):
        raise ValueError(f"schemes {names} with rivals {content['rivals']}")
    values = {scheme["name"]: _per_text(content, scheme) for scheme in schemes}
    for index, scheme in enumerate(schemes):
        where = f"/schemes/{index}"
        yield from _shapes(where, content, scheme)
        yield from _parts_add_up(where, scheme)
        expected = _summary(content, scheme, values)
        yield from _differences(f"{where}/summary", scheme["summary"], expected, lambda *_: _ROUNDING)


def _heads(scheme: dict[str, Any], metric: str) -> list[list[float]]:
    """Return the figures of all layers and heads of every sequence, one list a sequence."""
    return [[float(value) for layer in sequence for value in layer] for sequence in scheme["figures"][metric]]


def _sums(scheme: dict[str, Any], metric: str) -> list[float]:
    return [math.fsum(values) for values in _heads(scheme, metric)]


def _shapes(where: str, content: dict[str, Any], scheme: dict[str, Any]) -> Iterator[ComparisonFinding]:
    """Find figures of another shape, and runs of other sequences."""
    model = content["model"]
    tokens = [sequence["tokens"] for sequence in content["evaluation"]]
    expected = [[model["num_kv_heads"]] * model["num_layers"]] * len(tokens)
    for metric in METRICS:
        found = [[len(layer) for layer in sequence] for sequence in scheme["figures"][metric]]
        if found != expected:
            yield ComparisonFinding(f"{where}/figures/{metric}", found, expected)
    if scheme["runs"] and [run["tokens"] for run in scheme["runs"]] != tokens:
        yield ComparisonFinding(f"{where}/runs", [run["tokens"] for run in scheme["runs"]], tokens)


def _parts_add_up(where: str, scheme: dict[str, Any]) -> Iterator[ComparisonFinding]:
    """Find errors that are not the sum of their key, value and cross parts (C1)."""
    parts = [_heads(scheme, f"{name}_part") for name in ("key", "value", "cross")]
    for place, errors in enumerate(_heads(scheme, "error")):
        for head, error in enumerate(errors):
            together = math.fsum(part[place][head] for part in parts)
            scale = math.fsum(abs(part[place][head]) for part in parts)
            if not abs(error - together) <= _ROUNDING * scale:
                pointer = f"{where}/figures/error/{place} (head {head} of all)"
                yield ComparisonFinding(pointer, error, together, abs(error - together) / (scale or 1))


def _per_text(content: dict[str, Any], scheme: dict[str, Any]) -> dict[str, list[float]]:
    """Return what schemes are compared by, one value a sequence (`SchemeComparison.per_text`)."""
    errors, references = (_sums(scheme, name) for name in ("error", "reference"))
    model = content["model"]
    terms = content["queries_per_sum"] * model["num_layers"] * model["num_kv_heads"]
    found = {
        "relative_error": [error / reference for error, reference in zip(errors, references, strict=True)],
        "divergence_nats": [total / terms for total in _sums(scheme, "divergence")],
    }
    runs = scheme["runs"]
    if runs:
        found["excess_nats"] = [
            math.log(run["perplexity"]) - math.log(run["reference_perplexity"]) for run in runs
        ]
        found["model_divergence_nats"] = [run["divergence_nats"] for run in runs]
        found["top1_disagreement"] = [1 - run["top1_agreement"] for run in runs]
        found["residual"] = [_mean(run["residual_by_layer"]) for run in runs]
    return found


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _summary(
    content: dict[str, Any], scheme: dict[str, Any], values: dict[str, dict[str, list[float]]]
) -> dict[str, Any]:
    """Return the summary of a scheme from its figures."""
    sums = {metric: _sums(scheme, metric) for metric in METRICS}
    totals = {metric: math.fsum(by_sequence) for metric, by_sequence in sums.items()}
    own, model = values[scheme["name"]], content["model"]
    tokens = sum(sequence["tokens"] for sequence in content["evaluation"])
    elements = 2 * tokens * model["num_layers"] * model["num_kv_heads"] * model["head_dim"]
    stored = scheme["summary"]["stored_bytes"]
    return {
        "relative_error": totals["error"] / totals["reference"],
        **{
            f"{name}_part": totals[f"{name}_part"] / totals["reference"] for name in ("key", "value", "cross")
        },
        "percent_of_int2": 100
        * math.fsum(own["relative_error"])
        / math.fsum(values[BASELINE]["relative_error"]),
        "divergence_nats": _mean(own["divergence_nats"]),
        "bits_per_element": 8 * stored / elements,
        "stored_bytes": stored,
        "model": _model_summary(scheme["runs"]),
        "versus": _versus(own, {name: values[name] for name in content["rivals"]}),
    }


def _model_summary(runs: list[dict[str, Any]]) -> dict[str, float] | None:
    if not runs:
        return None
    weights = [run["tokens"] - run["first_token"] for run in runs]

    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        total = math.fsum(value(run) * weight for run, weight in zip(runs, weights, strict=True))
        return total / float(sum(weights))

    return {
        "perplexity": math.exp(mean(lambda run: math.log(run["perplexity"]))),
        "reference_perplexity": math.exp(mean(lambda run: math.log(run["reference_perplexity"]))),
        "divergence_nats": mean(lambda run: run["divergence_nats"]),
        "top1_agreement": mean(lambda run: run["top1_agreement"]),
        "residual_mean": _mean([_mean(run["residual_by_layer"]) for run in runs]),
        "residual_last": _mean([run["residual_by_layer"][-1] for run in runs]),
    }


def _versus(own: dict[str, list[float]], rivals: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return the intervals over texts against every rival."""
    found: dict[str, Any] = {}
    if len(own["relative_error"]) < 2:
        return found
    for name, rival in rivals.items():
        found[name] = {}
        for metric, values in own.items():
            ratio = ratio_bootstrap(rival[metric], values, resamples=RESAMPLES, seed=SEED)
            difference = paired_bootstrap(rival[metric], values, resamples=RESAMPLES, seed=SEED)
            found[name][metric] = {
                "rival_minus_scheme": asdict(difference),
                "scheme_over_rival": None if ratio is None else asdict(ratio),
            }
    return found


def _differences(
    where: str, found: Any, expected: Any, tolerance: Callable[[str], float]
) -> Iterator[ComparisonFinding]:
    """Find differing leaves of two JSON values; numbers relative to the larger one, or to 1e-6 where both are less."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted(expected.keys() | found.keys()):
            if name not in found or name not in expected:
                yield ComparisonFinding(f"{where}/{name}", found.get(name), expected.get(name))
            else:
                yield from _differences(f"{where}/{name}", found[name], expected[name], tolerance)
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for place, pair in enumerate(zip(found, expected, strict=True)):
            yield from _differences(f"{where}/{place}", *pair, tolerance)
    elif type(expected) is float and type(found) in (int, float):
        scale = max(abs(found), abs(expected), 1e-6)
        difference = abs(found - expected) / scale
        if not difference <= tolerance(where):
            yield ComparisonFinding(where, found, expected, difference)
    elif type(found) is not type(expected) or found != expected:
        yield ComparisonFinding(where, found, expected)


#: Members of a model and of a sequence that comparisons of earlier versions lack.
_ADDED = frozenset(
    {
        "config_sha256",
        "dtype",
        "layer_scaling",
        "special_tokens",
        "tokenizer_sha256",
        "versions",
        "vocab_size",
    }
)

#: Members of a scheme that are figures or follow from them; all others say what was run.
_FIGURES = ("figures", "runs", "summary")


def compare_comparisons(
    fresh: dict[str, Any], published: dict[str, Any], tolerance: float = TOLERANCE
) -> list[ComparisonFinding]:
    """Return where a published comparison says something else than a fresh one.

    Parameters
    ----------
    fresh, published : dict
        JSON of two comparisons. Summaries and intervals are not compared: `check_comparison` says whether each one's
        follow from its own figures.
    tolerance : float
        Of a figure, relative to its own size: of a layer and head to the sum over all of its sequence, since one head
        in a hundred may lie on an edge between codes; of a perplexity, divergence, share or residual to itself.

    Returns
    -------
    list of ComparisonFinding
        By the pointers of the published one; `found` is the published value. Models, texts, schemes, transforms and
        bytes must be equal. Schemes that only one of the two holds are findings.

    Raises
    ------
    FileFormatError
        If members of the published one are missing or of another shape.
    """
    try:
        return list(_against(fresh, published, tolerance))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileFormatError(f"not a comparison of {FORMAT}: {error!r}") from error


def _against(
    fresh: dict[str, Any], published: dict[str, Any], tolerance: float
) -> Iterator[ComparisonFinding]:
    def exactly(_: str) -> float:
        return 0.0

    fresh = _as_of(json.loads(json.dumps(fresh)), published)
    same = ("format", "last_queries", "queries_per_sum", "model", "evaluation", "rivals")
    for name in same:
        yield from _differences(f"/{name}", published[name], fresh[name], exactly)
    ours = {scheme["name"]: scheme for scheme in fresh["schemes"]}
    theirs = {scheme["name"]: index for index, scheme in enumerate(published["schemes"])}
    for name in sorted(ours.keys() ^ theirs.keys()):
        is_published = name in theirs
        yield ComparisonFinding("/schemes", name if is_published else None, None if is_published else name)
    for name, index in theirs.items():
        if name in ours:
            yield from _scheme_against(
                f"/schemes/{index}", ours[name], published["schemes"][index], tolerance
            )


def _said(scheme: dict[str, Any]) -> dict[str, Any]:
    """Return what a comparison says of a scheme beside its figures, with the fields that came later."""
    return {**ADDED_FIELDS, **{key: value for key, value in scheme.items() if key not in _FIGURES}}


def _as_of(fresh: Any, published: Any) -> Any:
    """Return JSON values without the members of models and sequences that an earlier version did not write."""
    if isinstance(fresh, dict) and isinstance(published, dict):
        return {
            name: _as_of(value, published.get(name))
            for name, value in fresh.items()
            if name in published or name not in _ADDED
        }
    if isinstance(fresh, list) and isinstance(published, list) and len(fresh) == len(published):
        return [_as_of(*pair) for pair in zip(fresh, published, strict=True)]
    return fresh


def _scheme_against(
    where: str, fresh: dict[str, Any], published: dict[str, Any], tolerance: float
) -> Iterator[ComparisonFinding]:
    fresh = _as_of(fresh, published)
    said, ours = _said(published), _said(fresh)
    if "construction" not in said["source"]:
        # It came after comparisons had been published, and says nothing against those that lack it.
        ours["source"] = {key: value for key, value in ours["source"].items() if key != "construction"}
    yield from _differences(where, said, ours, lambda _: 0.0)
    stored = published["summary"]["stored_bytes"], fresh["summary"]["stored_bytes"]
    yield from _differences(f"{where}/summary/stored_bytes", *stored, lambda _: 0.0)
    for metric in METRICS:
        yield from _figures_against(f"{where}/figures/{metric}", metric, fresh, published, tolerance)
    yield from _differences(f"{where}/runs", published["runs"], fresh["runs"], lambda _: tolerance)


def _figures_against(
    where: str, metric: str, fresh: dict[str, Any], published: dict[str, Any], tolerance: float
) -> Iterator[ComparisonFinding]:
    # Parts of an error may cancel: they are as exact as the largest of them.
    of = (metric,) if metric in ("reference", "divergence") else ("error", "key_part", "value_part")
    scales = [
        max(math.fsum(map(abs, values)) for values in by_metric)
        for by_metric in zip(*(_heads(fresh, name) for name in of), strict=True)
    ]
    pairs = zip(_heads(published, metric), _heads(fresh, metric), scales, strict=True)
    for place, (found, expected, scale) in enumerate(pairs):
        figures = [*zip(found, expected, strict=True), (math.fsum(found), math.fsum(expected))]
        worst = max(figures, key=lambda figure: abs(figure[0] - figure[1]))
        difference = abs(worst[0] - worst[1]) / (scale or 1.0)
        if not difference <= tolerance:
            yield ComparisonFinding(f"{where}/{place}", *worst, difference)
