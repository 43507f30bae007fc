"""Condition of fitted transforms, and logits of bfloat16 queries.

Run as `python -m tests.tools.evidence.query_path TRACE FILE …`.

A row a file: κ(M) of keys and of values over all layers and heads, and what rounding q M⁻ᵀ to bfloat16 does to logits,
√(Σ δ²/Σ (q kᵀ)²) by layer and head (E36), over all pairs of the first sequence of the trace.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from producer.scheme.fitted_file import read_fitted
from producer.trace.files import read_trace
from producer.transform.centring import center_keys
from producer.transform.query_path import query_path_error

if TYPE_CHECKING:
    from producer.trace.files import Trace
    from producer.transform.dense import DenseTransform


def condition(transform: "DenseTransform") -> np.ndarray:
    """κ of every matrix in the 2-norm."""
    values = np.linalg.svd(transform.matrices.astype(np.float64), compute_uv=False)
    found: np.ndarray = values[:, 0] / values[:, -1]
    return found


def row(path: Path, trace: "Trace") -> list[str]:
    """The cells of one file."""
    _, layers, _ = read_fitted(path, trace.model)
    conditions: dict[str, list[float]] = {"key": [], "value": []}
    errors: list[float] = []
    for index, fitted in layers.items():
        for side in conditions:
            conditions[side] += condition(getattr(fitted.rotations, side)).tolist()
        layer, mean = trace.layer(index, 0), fitted.rotations.key_mean
        keys = layer.k if mean is None else center_keys(layer.k, mean)
        errors += query_path_error(fitted.rotations.key, layer.q, keys, "bfloat16").relative.tolist()
    cells = [f"{np.median(found):.1f} / {max(found):.1f}" for found in conditions.values()]
    return [path.stem, *cells, f"{1e3 * np.mean(errors):.2f} / {1e3 * max(errors):.2f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.evidence.query_path", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    print("| fitted file | κ of keys, median / most | κ of values | bfloat16, 10⁻³, mean / worst head |")
    print("|---|---|---|---|")
    for path in arguments.files:
        print(f"| {' | '.join(row(path, trace))} |")


if __name__ == "__main__":
    main()
