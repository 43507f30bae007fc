"""Compares schemes on a trace: fitted on calibration sequences, judged on others, by layer and KV head."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.evaluation import LAST_QUERIES, OutputErrors
from producer.fingerprint import fingerprint
from producer.parallel import fork_map
from producer.quantize import get_dialect
from producer.schemes import fit_layer
from producer.stats import paired_bootstrap
from producer.trace.texts import require_disjoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.arrays import Float64Array
    from producer.protocol import Progress
    from producer.schemes import Scheme
    from producer.trace.files import Trace

__all__ = ["FORMAT", "METRICS", "Comparison", "compare_schemes"]

FORMAT = "kvint2eval-comparison-v1"
METRICS = ("error", "key_part", "value_part", "cross_part", "reference", "divergence")
_BASELINE = "int2"
_RESAMPLES, _SEED = 2000, 6260


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found.

    Attributes
    ----------
    schemes : list of Scheme
        `int2`, the baseline, among them.
    calibration, evaluation : Trace
    figures : float64, shape (schemes, metrics, sequences, layers, num_kv_heads)
        Sums over the last queries and the query heads of a KV head, in the order of `METRICS`.
    queries : int
        Terms of each sum.
    stored_bytes : list of int
        Of keys and values of all layers and sequences, by scheme.
    bits_per_element : list of float
        Mean of keys and values, by scheme.
    perplexity : dict
        By scheme, what a run of the model with the quantized cache gave; empty without a model.
    """

    schemes: "list[Scheme]"
    calibration: "Trace"
    evaluation: "Trace"
    figures: "Float64Array"
    queries: int
    stored_bytes: list[int]
    bits_per_element: list[float]
    perplexity: dict[str, dict[str, Any]] = field(default_factory=dict)

    def relative(self, scheme: int) -> "Float64Array":
        """Return Σ‖Δy‖²/Σ‖y‖² of every sequence, over all layers and heads."""
        sums = self.figures[scheme].sum(axis=(2, 3))
        relative: Float64Array = sums[METRICS.index("error")] / sums[METRICS.index("reference")]
        return relative

    def percent_of_baseline(self, scheme: int) -> "Float64Array":
        """Return 100·err/err_INT2 by layer and KV head, mean squares over sequences, shape (layers, num_kv_heads)."""
        error = METRICS.index("error")
        percent: Float64Array = (
            100 * self.figures[scheme, error].sum(axis=0) / self.figures[self.baseline, error].sum(axis=0)
        )
        return percent

    def layer_error(self, scheme: int) -> "Float64Array":
        """Return mean ‖Δy‖² over queries, heads and sequences, by layer, shape (layers,)."""
        mean: Float64Array = self.figures[scheme, METRICS.index("error")].mean(axis=(0, 2)) / self.queries
        return mean

    @property
    def baseline(self) -> int:
        """Place of the baseline."""
        return [scheme.name for scheme in self.schemes].index(_BASELINE)

    def summary(self, scheme: int) -> dict[str, Any]:
        """Return what is said of one scheme in a line."""
        sums = self.figures[scheme].sum(axis=(1, 2, 3))
        by_name = dict(zip(METRICS, sums, strict=True))
        relative, baseline = self.relative(scheme), self.relative(self.baseline)
        found: dict[str, Any] = {
            "relative_error": by_name["error"] / by_name["reference"],
            "key_part": by_name["key_part"] / by_name["reference"],
            "value_part": by_name["value_part"] / by_name["reference"],
            "cross_part": by_name["cross_part"] / by_name["reference"],
            "percent_of_int2": 100 * float(relative.sum() / baseline.sum()),
            "divergence_nats": by_name["divergence"] / (self.queries * self.figures[0, 0].size),
            "bits_per_element": self.bits_per_element[scheme],
            "stored_bytes": self.stored_bytes[scheme],
        }
        if len(relative) > 1:
            interval = paired_bootstrap(
                baseline.tolist(), relative.tolist(), resamples=_RESAMPLES, seed=_SEED, level=0.95
            )
            found["int2_minus_scheme"] = asdict(interval)
        return {
            name: float(value) if isinstance(value, np.floating) else value for name, value in found.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; figures stand by scheme and metric as sequence, layer, KV head."""
        return {
            "format": FORMAT,
            "last_queries": LAST_QUERIES,
            "queries_per_sum": self.queries,
            "model": asdict(self.evaluation.model),
            "verification": self.evaluation.verification,
            "calibration": [_sequence_json(sequence) for sequence in self.calibration.sequences],
            "evaluation": [_sequence_json(sequence) for sequence in self.evaluation.sequences],
            "schemes": [
                {
                    **asdict(scheme),
                    "fingerprints": {
                        name: fingerprint(get_dialect(name))
                        for name in (scheme.key_dialect, scheme.value_dialect)
                    },
                    "summary": self.summary(index),
                    "perplexity": self.perplexity.get(scheme.name),
                    "figures": {
                        name: self.figures[index, place].tolist() for place, name in enumerate(METRICS)
                    },
                }
                for index, scheme in enumerate(self.schemes)
            ],
        }


def _sequence_json(sequence: Any) -> dict[str, Any]:
    """Return a sequence without its passages: their digests are for the check of overlap alone."""
    return {name: value for name, value in asdict(sequence).items() if name != "passages"}


def compare_schemes(
    schemes: "Sequence[Scheme]",
    calibration: "Trace",
    evaluation: "Trace",
    processes: int,
    progress: "Progress",
) -> Comparison:
    """Return the errors of schemes on a trace.

    Parameters
    ----------
    schemes : sequence of Scheme
        The baseline `int2` must be among them.
    calibration, evaluation : Trace
        Of one model, of different texts.
    processes : int
        Layers are dealt out to so many processes; it changes no figure.
    progress : Progress

    Raises
    ------
    SpecError
        If the baseline is missing, models differ, the two share a text, or a sequence has no quantized token.
    """
    if _BASELINE not in {scheme.name for scheme in schemes}:
        raise SpecError(f"schemes without {_BASELINE} are not allowed: errors are relative to it")
    if calibration.model != evaluation.model:
        raise SpecError(
            f"calibration of {calibration.model.name!r} ({calibration.model.weights_sha256[:12]}) and evaluation of "
            f"{evaluation.model.name!r} ({evaluation.model.weights_sha256[:12]}) are not allowed: one model"
        )
    require_disjoint(calibration.sequences, evaluation.sequences)
    for sequence in evaluation.sequences:
        shortest = max(scheme.sink + scheme.recent for scheme in schemes) + LAST_QUERIES
        if sequence.tokens < shortest:
            raise SpecError(
                f"sequence of {sequence.tokens} tokens of {sequence.name!r} is not allowed: {shortest} at least, or "
                "no quantized token is read"
            )

    def work(layer_idx: int) -> "tuple[Float64Array, list[int], list[float], int]":
        return _compare_layer(schemes, calibration, evaluation, layer_idx)

    layers = range(evaluation.model.num_layers)
    results: list[tuple[Float64Array, list[int], list[float], int]] = []
    for first in range(0, len(layers), processes):
        progress(first, len(layers), f"layer {first}")
        results += fork_map(work, layers[first : first + processes], processes)
    progress(len(layers), len(layers), "layers")
    figures = np.stack([result[0] for result in results], axis=3)
    stored = [sum(result[1][index] for result in results) for index in range(len(schemes))]
    return Comparison(
        list(schemes), calibration, evaluation, figures, results[0][3], stored, bits_per_element=results[0][2]
    )


def _compare_layer(
    schemes: "Sequence[Scheme]", calibration: "Trace", evaluation: "Trace", layer_idx: int
) -> "tuple[Float64Array, list[int], list[float], int]":
    """Return figures (schemes, metrics, sequences, num_kv_heads), bytes and bits by scheme, and terms of a sum."""
    fitted_on = [calibration.layer(layer_idx, index) for index in range(len(calibration.sequences))]
    fitted = [fit_layer(scheme, fitted_on) for scheme in schemes]
    del fitted_on
    count = len(evaluation.sequences)
    figures = np.empty((len(schemes), len(METRICS), count, evaluation.model.num_kv_heads))
    stored, bits, queries = [0] * len(schemes), [0.0] * len(schemes), 0
    for sequence in range(count):
        layer = evaluation.layer(layer_idx, sequence)
        output = OutputErrors(layer)
        for index, scheme in enumerate(fitted):
            keys, values = scheme.keys(layer.k), scheme.values(layer.v)
            errors = output.of(keys.values, values.values)
            figures[index, :, sequence] = [getattr(errors, name) for name in METRICS]
            stored[index] += keys.stored_bytes + values.stored_bytes
            bits[index] += float(keys.bits_per_element + values.bits_per_element) / (2 * count)
            queries = errors.queries
    return figures, stored, bits, queries
