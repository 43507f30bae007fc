"""Comparison of schemes on a trace: fitted to calibration sequences, evaluated on others, by layer and KV head.

The figures of every sequence stay in the JSON; `check_comparison` computes each summary from them again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import DegenerateGroupError, NonFiniteError, SpecError
from producer.experiment.trace.candidates import fit_candidates, without_passages
from producer.experiment.trace.output_error import OutputErrors
from producer.numerics.bootstrap import paired_bootstrap, ratio_bootstrap
from producer.quantize import get_dialect
from producer.quantize.fingerprint import fingerprint
from producer.system.processes import fork_map
from producer.trace.layer import LAST_QUERIES
from producer.trace.texts import require_disjoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producer.experiment.trace.candidates import Candidate
    from producer.experiment.trace.perplexity import ModelErrors
    from producer.numerics.arrays import Float64Array
    from producer.scheme.fitted_layer import FittedLayer
    from producer.scheme.registry import Scheme
    from producer.system.progress import Progress
    from producer.trace.files import Trace

__all__ = ["BASELINE", "FORMAT", "METRICS", "RESAMPLES", "SEED", "SchemeComparison", "compare_schemes"]

FORMAT = "kvint2eval-comparison-v2"
METRICS = ("error", "key_part", "value_part", "cross_part", "reference", "divergence")
#: The scheme that errors are relative to.
BASELINE = "int2"
#: Of every interval.
RESAMPLES, SEED = 2000, 6260


@dataclass(frozen=True, slots=True)
class SchemeComparison:
    """What was found.

    Attributes
    ----------
    candidates : list of Candidate
        `int2`, the baseline, among them.
    evaluation : Trace
    figures : float64, shape (schemes, metrics, sequences, layers, num_kv_heads)
        Sums over the last queries and the query heads of a KV head, in the order of `METRICS`.
    queries : int
        Terms of each sum.
    stored_bytes : list of int
        Of keys and values of all layers and sequences, by scheme.
    fitted : list of sequences of FittedLayer
        By scheme, what its figures come from.
    rivals : tuple of str
        Schemes that every one is compared with, text by text; the baseline first.
    runs : mapping of str to list of ModelErrors
        By scheme, what a run of the model with the quantized cache gave on each sequence; empty without a model.
    """

    candidates: list[Candidate]
    evaluation: Trace
    figures: Float64Array
    queries: int
    stored_bytes: list[int]
    fitted: list[Sequence[FittedLayer]]
    rivals: tuple[str, ...] = (BASELINE,)
    runs: Mapping[str, list[ModelErrors]] = field(default_factory=dict)

    @property
    def schemes(self) -> list[Scheme]:
        """The schemes, each under its name in the comparison."""
        return [candidate.scheme for candidate in self.candidates]

    def relative(self, scheme: int) -> Float64Array:
        """Return Σ‖Δy‖²/Σ‖y‖² of every sequence, over all layers and heads."""
        sums = self.figures[scheme].sum(axis=(2, 3))
        relative: Float64Array = sums[METRICS.index("error")] / sums[METRICS.index("reference")]
        return relative

    def percent_of_baseline(self, scheme: int) -> Float64Array:
        """Return 100·err/err_INT2 by layer and KV head, mean squares over sequences, shape (layers, num_kv_heads).

        NaN where the baseline makes no error.
        """
        error = METRICS.index("error")
        own, baseline = (self.figures[place, error].sum(axis=0) for place in (scheme, self.baseline))
        percent: Float64Array = np.full(own.shape, np.nan)
        np.divide(100 * own, baseline, out=percent, where=baseline > 0)
        return percent

    def layer_error(self, scheme: int) -> Float64Array:
        """Return mean ‖Δy‖² over queries, heads and sequences, by layer, shape (layers,)."""
        mean: Float64Array = self.figures[scheme, METRICS.index("error")].mean(axis=(0, 2)) / self.queries
        return mean

    @property
    def baseline(self) -> int:
        """Place of the baseline."""
        return self._place(BASELINE)

    def _place(self, name: str) -> int:
        return [scheme.name for scheme in self.schemes].index(name)

    def per_text(self, scheme: int) -> dict[str, Float64Array]:
        """Return what schemes are compared by, one value a sequence, less is better.

        `relative_error`, Σ‖Δy‖²/Σ‖y‖²; `divergence_nats`, the mean KL of the attention weights; with a run of the
        model `excess_nats`, log of its perplexity over that without the scheme; `model_divergence_nats`;
        `top1_disagreement`; and `residual`, the mean over layers of Σ‖h̃ - h‖²/Σ‖h‖².
        """
        terms = self.queries * self.figures[0, 0, 0].size
        divergence = self.figures[scheme, METRICS.index("divergence")].sum(axis=(1, 2)) / terms
        found = {"relative_error": self.relative(scheme), "divergence_nats": divergence}
        runs = self.runs.get(self.schemes[scheme].name)
        if runs:
            found["excess_nats"] = np.array(
                [np.log(run.perplexity) - np.log(run.reference_perplexity) for run in runs]
            )
            found["model_divergence_nats"] = np.array([run.divergence for run in runs])
            found["top1_disagreement"] = np.array([1 - run.top1_agreement for run in runs])
            found["residual"] = np.array([run.residual.mean() for run in runs])
        return found

    def summary(self, scheme: int) -> dict[str, Any]:
        """Return what is said of one scheme in a line, and its differences from its rivals."""
        sums = self.figures[scheme].sum(axis=(1, 2, 3))
        by_name = dict(zip(METRICS, sums.tolist(), strict=True))
        model = self.evaluation.model
        tokens = sum(sequence.tokens for sequence in self.evaluation.sequences)
        elements = 2 * tokens * model.num_layers * model.num_kv_heads * model.head_dim
        relative, baseline = self.relative(scheme), self.relative(self.baseline)
        return {
            "relative_error": by_name["error"] / by_name["reference"],
            "key_part": by_name["key_part"] / by_name["reference"],
            "value_part": by_name["value_part"] / by_name["reference"],
            "cross_part": by_name["cross_part"] / by_name["reference"],
            "percent_of_int2": 100 * float(relative.sum() / baseline.sum()),
            "divergence_nats": by_name["divergence"] / (self.queries * self.figures[0, 0].size),
            "bits_per_element": 8 * self.stored_bytes[scheme] / elements,
            "stored_bytes": self.stored_bytes[scheme],
            "model": _model_summary(self.runs.get(self.schemes[scheme].name, [])),
            "versus": self._versus(scheme),
        }

    def _versus(self, scheme: int) -> dict[str, Any]:
        """Return intervals over texts against every rival; none with a single text."""
        own = self.per_text(scheme)
        if len(own["relative_error"]) < 2:
            return {}
        found: dict[str, Any] = {}
        for name in self.rivals:
            rival = self.per_text(self._place(name))
            found[name] = {}
            for metric, values in own.items():
                pair = rival[metric].tolist(), values.tolist()
                ratio = ratio_bootstrap(*pair, resamples=RESAMPLES, seed=SEED)
                found[name][metric] = {
                    "rival_minus_scheme": asdict(paired_bootstrap(*pair, resamples=RESAMPLES, seed=SEED)),
                    "scheme_over_rival": None if ratio is None else asdict(ratio),
                }
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; figures stand by scheme and metric as sequence, layer, KV head."""
        return {
            "format": FORMAT,
            "last_queries": LAST_QUERIES,
            "queries_per_sum": self.queries,
            "model": asdict(self.evaluation.model),
            "verification": self.evaluation.verification,
            "evaluation": [without_passages(sequence) for sequence in self.evaluation.sequences],
            "rivals": list(self.rivals),
            "schemes": [self._scheme_json(index) for index in range(len(self.candidates))],
        }

    def _scheme_json(self, index: int) -> dict[str, Any]:
        candidate = self.candidates[index]
        scheme = candidate.scheme
        dialects = (scheme.key_dialect, scheme.value_dialect)
        return {
            **asdict(scheme),
            "fingerprints": {name: fingerprint(get_dialect(name)) for name in dialects},
            "source": candidate.source,
            "summary": self.summary(index),
            "figures": {name: self.figures[index, place].tolist() for place, name in enumerate(METRICS)},
            "runs": [_run_json(run) for run in self.runs.get(scheme.name, [])],
        }


def _run_json(run: ModelErrors) -> dict[str, Any]:
    return {
        "perplexity": run.perplexity,
        "reference_perplexity": run.reference_perplexity,
        "divergence_nats": run.divergence,
        "top1_agreement": run.top1_agreement,
        "residual_by_layer": run.residual.tolist(),
        "first_token": run.first,
        "tokens": run.tokens,
    }


def _model_summary(runs: list[ModelErrors]) -> dict[str, float] | None:
    """Return means over all scored tokens of all texts; of residuals, over texts and layers."""
    if not runs:
        return None
    weights = np.array([run.tokens - run.first for run in runs], dtype=np.float64)

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    return {
        "perplexity": float(np.exp(mean([float(np.log(run.perplexity)) for run in runs]))),
        "reference_perplexity": float(
            np.exp(mean([float(np.log(run.reference_perplexity)) for run in runs]))
        ),
        "divergence_nats": mean([run.divergence for run in runs]),
        "top1_agreement": mean([run.top1_agreement for run in runs]),
        "residual_mean": float(np.mean([run.residual.mean() for run in runs])),
        "residual_last": float(np.mean([run.residual[-1] for run in runs])),
    }


def compare_schemes(
    candidates: Sequence[Candidate],
    evaluation: Trace,
    processes: int,
    progress: Progress,
    rivals: Sequence[str] = (),
    overlap: float = 0.0,
) -> SchemeComparison:
    """Return the errors of schemes on a trace.

    Parameters
    ----------
    candidates : sequence of Candidate
        The baseline `int2` must be among them.
    evaluation : Trace
        Of texts that no candidate was fitted to.
    processes : int
        Layers are dealt out to so many processes; it changes no figure.
    progress : Progress
    rivals : sequence of str
        Candidates that every one is compared with, besides the baseline.
    overlap : float
        Largest share of an evaluation sequence that a candidate may have seen (`require_disjoint`).

    Raises
    ------
    SpecError
        If the baseline or a rival is missing, two candidates have one name, a candidate has seen an evaluation text,
        or a sequence has no quantized token.
    """
    names = [candidate.scheme.name for candidate in candidates]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SpecError(f"schemes {', '.join(twice)} more than once are not allowed: one name each")
    if BASELINE not in names:
        raise SpecError(f"schemes without {BASELINE} are not allowed: errors are relative to it")
    for name in rivals:
        if name not in names:
            raise SpecError(f"rival {name!r} is not allowed: one of {', '.join(names)}")
    for candidate in candidates:
        require_disjoint(candidate.sequences, evaluation.sequences, overlap)
        shortest = candidate.scheme.sink + candidate.scheme.recent + LAST_QUERIES
        for sequence in evaluation.sequences:
            if sequence.tokens < shortest:
                raise SpecError(
                    f"sequence of {sequence.tokens} tokens of {sequence.name!r} is not allowed: {shortest} at least, "
                    "or no quantized token is read"
                )

    def work(layer_idx: int) -> _LayerFigures:
        return _compare_layer(candidates, evaluation, layer_idx)

    layers = range(evaluation.model.num_layers)
    results = fork_map(work, layers, processes, progress=progress, unit="layer")
    figures = np.stack([result.figures for result in results], axis=3)
    _require_sums(figures, names.index(BASELINE), evaluation)
    return SchemeComparison(
        list(candidates),
        evaluation,
        figures,
        results[0].queries,
        [sum(result.stored[index] for result in results) for index in range(len(names))],
        [[result.fitted[index] for result in results] for index in range(len(names))],
        (BASELINE, *(name for name in dict.fromkeys(rivals) if name != BASELINE)),
    )


def _require_sums(figures: Float64Array, baseline: int, evaluation: Trace) -> None:
    """Raise `SpecError` where there is nothing that errors could be relative to."""
    sums = figures.sum(axis=(3, 4))
    for place, sequence in enumerate(evaluation.sequences):
        if not sums[0, METRICS.index("reference"), place] > 0:
            raise SpecError(
                f"{evaluation.folder}: the attention output of {sequence.name!r} is 0 in every layer: nothing "
                f"to compare with"
            )
    if not sums[baseline, METRICS.index("error")].sum() > 0:
        raise SpecError(
            f"{evaluation.folder}: {BASELINE} makes no error in any layer: keys and values have one value each, "
            f"and nothing "
            "can be told from them"
        )


@dataclass(frozen=True, slots=True)
class _LayerFigures:
    """One layer: figures (schemes, metrics, sequences, num_kv_heads), bytes by scheme, terms of a sum, the schemes."""

    figures: Float64Array
    stored: list[int]
    queries: int
    fitted: list[FittedLayer]


def _compare_layer(candidates: Sequence[Candidate], evaluation: Trace, layer_idx: int) -> _LayerFigures:
    """Return the figures of one layer."""
    fitted = fit_candidates(candidates, layer_idx)
    count = len(evaluation.sequences)
    figures = np.empty((len(fitted), len(METRICS), count, evaluation.model.num_kv_heads))
    stored, queries = [0] * len(fitted), 0
    for sequence in range(count):
        layer = evaluation.layer(layer_idx, sequence)
        output = OutputErrors(layer)
        for index, scheme in enumerate(fitted):
            try:
                cache = scheme.store(layer.k, layer.v)
            except (DegenerateGroupError, NonFiniteError) as error:
                name, text = candidates[index].scheme.name, evaluation.sequences[sequence].name
                raise type(error)(
                    f"scheme {name!r}, layer {layer_idx}, {text!r} (heads first): {error}"
                ) from error
            errors = output.measure(*cache.restored())
            figures[index, :, sequence] = [getattr(errors, name) for name in METRICS]
            stored[index] += cache.stored_bytes
            queries = errors.queries
    return _LayerFigures(figures, stored, queries, fitted)
