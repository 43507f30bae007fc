"""`python -m tests.bench.fits TRACE [--layers N]`: what fits cost, and codes with error feedback beside nearest ones.

A table of seconds: medians of repeated runs, those that are compared one after the other in every round. A fit of all
layers is timed once for each scheme, by layers, on one core.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from producer.quantize import get_dialect
from producer.quantize.heads import quantize_heads
from producer.scheme.calibration import LayerCalibration
from producer.scheme.fit import fit_layer
from producer.scheme.registry import get_scheme
from producer.trace.files import read_trace
from producer.transform.balanced import balanced_from_covariances, unweighted_covariances
from producer.transform.centring import center_keys, key_mean
from tests.bench.tables import add_output, finish, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.scheme.registry import Scheme
    from producer.trace.files import Trace
    from producer.trace.layer import LayerTrace

ROUNDS = 5
SCHEMES = ("quarot-centred", "quarot-centred-tuned", "oscar-centred-tuned", "balanced", "balanced-feedback")


def seconds(work: "Callable[[], object]") -> float:
    """The time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(works: "dict[str, Callable[[], object]]") -> dict[str, float]:
    """The median of each, all of them in every round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(found) for name, found in times.items()}


def weighted(scheme: "Scheme", parts: "list[LayerTrace]") -> None:
    """The covariances that a scheme balances, of both sides of a layer, from the plain ones of all its sequences."""
    calibration = LayerCalibration(parts)
    for side, ridge in (("key", scheme.key_ridge), ("value", scheme.value_ridge)):
        calibration.weighted(
            side,  # type: ignore[arg-type]
            centred=True,
            windows=(scheme.sink, scheme.recent),
            ridge=ridge,
            shrinkage=scheme.shrinkage,
        )


def measure(trace: "Trace", layers: int) -> dict[str, float]:
    """Seconds by what was done."""
    covariances = []
    for index in range(layers):
        layer = trace.layer(index, 0)
        stored = center_keys(layer.k, key_mean(layer.k))
        covariances += [
            unweighted_covariances(side, layer.q, stored, layer.v, layer.w_o) for side in ("key", "value")
        ]
    found = {
        f"balancing of {layers} layers, both sides, covariances given": statistics.median(
            seconds(lambda: [balanced_from_covariances(*pair) for pair in covariances]) for _ in range(ROUNDS)
        )
    }
    calibration = [
        [trace.layer(index, part) for part in range(len(trace.sequences))] for index in range(layers)
    ]
    scheme = get_scheme("balanced")
    found[f"weighted covariances of {layers} layers, both sides, which `balanced` searches for (E37)"] = (
        seconds(lambda: [weighted(scheme, parts) for parts in calibration])
    )
    for name in SCHEMES:
        scheme = get_scheme(name)
        found[f"fit of {layers} layers, {name}"] = seconds(
            lambda scheme=scheme: [fit_layer(scheme, parts) for parts in calibration]  # type: ignore[misc]
        )
    fitted = fit_layer(get_scheme("balanced-feedback"), calibration[0]).rotations
    keys = fitted.key.rotate(np.ascontiguousarray(calibration[0][0].k))
    dialect, size, clips = get_dialect("affine-midpoint"), keys.shape[-1], fitted.key_clips
    assert clips is not None
    codes = medians(
        {
            "nearest": lambda: quantize_heads(dialect, keys, clips, size),
            "with error feedback": lambda: quantize_heads(dialect, keys, clips, size, fitted.key_feedback),
        }
    )
    return found | {
        f"codes of {keys.shape[0]}·{keys.shape[1]} rows of {size}, {how}": time for how, time in codes.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fits", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--layers", type=int, help="layers from the first on (default: all)")
    add_output(parser)
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    layers = arguments.layers or trace.model.num_layers
    found = table("fits", "what, one core", ("seconds", ".3g"))
    for name, time_of in measure(trace, layers).items():
        found.add(name, time_of)
    finish([found], arguments.output, "fits")


if __name__ == "__main__":
    main()
