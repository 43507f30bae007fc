"""Errors of one layer for one cache."""

from typing import TYPE_CHECKING

from producer.experiment.trace.output_error import HeadErrors, OutputErrors
from producer.trace.layer import LAST_QUERIES

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.trace.layer import LayerTrace


def head_errors(
    layer: "LayerTrace", keys: "Float32Array", values: "Float32Array", num_queries: int = LAST_QUERIES
) -> HeadErrors:
    """Return the errors of one layer and sequence for one cache; see `OutputErrors`."""
    return OutputErrors(layer, num_queries).measure(keys, values)
