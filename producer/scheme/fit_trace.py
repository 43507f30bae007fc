"""Fit of a scheme to all layers of a calibration trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from producer.scheme.clip_tuning import lowest_clips, tune_clips
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import Fitted
from producer.scheme.fitted_layer import FittedLayer
from producer.system.processes import fork_map
from producer.transform.transform_file import SIDES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.scheme.registry import Scheme
    from producer.system.progress import Progress
    from producer.trace.files import Trace
    from producer.trace.layer import LayerTrace
    from producer.trace.oscar_dump import DumpTrace

__all__ = ["fit_trace", "notes", "tune_again"]


def fit_trace(scheme: Scheme, calibration: Trace | DumpTrace, processes: int, progress: Progress) -> Fitted:
    """Return a scheme fitted to every layer of a trace.

    Parameters
    ----------
    scheme : Scheme
    calibration : Trace or DumpTrace
        All its sequences are used.
    processes : int
        Layers are dealt out to so many processes; it changes no bit.
    progress : Progress

    Raises
    ------
    SpecError
        As `producer.scheme.fit.fit_layer`.
    FileFormatError
        If the trace cannot be read.
    """

    def work(layer_idx: int) -> FittedLayer:
        return fit_layer(scheme, _sequences(layer_idx, [calibration]))

    layers = _by_layer(work, calibration.model.num_layers, processes, progress)
    return Fitted(scheme, calibration.model, layers, calibration.sequences)


def tune_again(fitted: Fitted, traces: Sequence[Trace], processes: int, progress: Progress) -> Fitted:
    """Return a fitted scheme with its clips chosen again for the transforms that it has now.

    Parameters
    ----------
    fitted : Fitted
        Of a scheme with tuned clips.
    traces : sequence of Trace
        Calibration; all their sequences that are longer than the windows are used.
    processes : int
    progress : Progress

    Raises
    ------
    SpecError
        As `producer.scheme.clip_tuning.tune_clips`.
    FileFormatError
        If a trace cannot be read.
    """
    windows = fitted.scheme.sink + fitted.scheme.recent

    def work(layer_idx: int) -> FittedLayer:
        rotations = fitted.layers[layer_idx].rotations
        long = [layer for layer in _sequences(layer_idx, traces) if layer.seq_len > windows]
        keys, values = tune_clips(fitted.scheme, rotations, long)
        return FittedLayer(fitted.scheme, replace(rotations, key_clips=keys, value_clips=values))

    layers = _by_layer(work, fitted.model.num_layers, processes, progress)
    return replace(fitted, layers=layers)


def _sequences(layer_idx: int, traces: Sequence[Trace | DumpTrace]) -> list[LayerTrace]:
    """Return a layer of every sequence."""
    return [trace.layer(layer_idx, index) for trace in traces for index in range(len(trace.sequences))]


def _by_layer(
    work: Callable[[int], FittedLayer], num_layers: int, processes: int, progress: Progress
) -> dict[int, FittedLayer]:
    return dict(enumerate(fork_map(work, range(num_layers), processes, progress=progress, unit="layer")))


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
