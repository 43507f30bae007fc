"""Fits a scheme to all layers of a calibration trace."""

from typing import TYPE_CHECKING

from producer.clips import lowest_clips
from producer.fitted import Fitted
from producer.parallel import fork_map
from producer.rotation.files import SIDES
from producer.schemes import fit_layer

if TYPE_CHECKING:
    from producer.protocol import Progress
    from producer.schemes import FittedLayer, Scheme
    from producer.trace.files import Trace

__all__ = ["fit_trace", "notes"]


def fit_trace(scheme: "Scheme", calibration: "Trace", processes: int, progress: "Progress") -> Fitted:
    """Return a scheme fitted to every layer of a trace.

    Parameters
    ----------
    scheme : Scheme
    calibration : Trace
        All its sequences are used.
    processes : int
        Layers are dealt out to so many processes; it changes no bit.
    progress : Progress

    Raises
    ------
    SpecError
        As `producer.schemes.fit_layer`.
    FileFormatError
        If the trace cannot be read.
    """

    def work(layer_idx: int) -> "FittedLayer":
        sequences = range(len(calibration.sequences))
        return fit_layer(scheme, [calibration.layer(layer_idx, index) for index in sequences])

    layers = range(calibration.model.num_layers)
    results: list[FittedLayer] = []
    for first in range(0, len(layers), processes):
        progress(first, len(layers), f"layer {first}")
        results += fork_map(work, layers[first : first + processes], processes)
    progress(len(layers), len(layers), "layers")
    return Fitted(scheme, calibration.model, dict(enumerate(results)), calibration.sequences)


def notes(fitted: Fitted) -> list[str]:
    """Return what a user should know of tuned clips: heads whose best ratio is the lowest that was tried."""
    if fitted.scheme.clips != "tuned":
        return []
    return [
        f"layer {index}, KV head {head}: the {side} clip is the lowest that was tried"
        for index, layer in fitted.layers.items()
        for side in SIDES
        for head in lowest_clips(
            getattr(fitted.scheme, f"{side}_dialect"), getattr(layer.rotations, f"{side}_clips")
        )
    ]
