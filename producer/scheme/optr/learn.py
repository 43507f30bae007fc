"""OptR, algorithm 1: a correction of the key rotation, then of the value rotation, of every KV head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import NonFiniteError, SpecError
from producer.scheme.optr.inputs import (
    SIDES,
    by_head,
    describe,
    first_corrections,
    plan_chunks,
    prepare_sides,
    read_inputs,
    side_quantizer,
)
from producer.scheme.optr.objective import KeyObjective, ValueObjective
from producer.scheme.optr.problem import prepare_metric
from producer.scheme.optr.stage import Objectives, StageState, run_stage
from producer.scheme.optr.state import prepare_folder, read_state, write_state
from producer.scheme.optr.torch_loader import require_device
from producer.transform.dense import DenseRotation, InvertibleTransform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from producer.numerics.arrays import Float64Array
    from producer.scheme.optr.inputs import Inputs
    from producer.scheme.optr.options import OptrOptions
    from producer.scheme.optr.torch_loader import Tensor
    from producer.scheme.registry import Scheme
    from producer.system.progress import Progress
    from producer.trace.files import Trace
    from producer.transform.dense import DenseTransform
    from producer.transform.transform_file import LayerTransforms

    _Losses = tuple[Float64Array, Float64Array, NDArray[np.int64]]

__all__ = ["OptrResult", "StageLosses", "learn_optr"]


@dataclass(frozen=True, slots=True)
class StageLosses:
    """Losses of one stage, by layer and KV head, in the units of the loss.

    Attributes
    ----------
    checkpoints : tuple of int
        Steps of the held-out losses.
    training : float64, shape (layers, num_kv_heads, steps + 1)
        Before every step, and after the last.
    held_out : float64, shape (layers, num_kv_heads, checkpoints)
        NaN without a held-out trace.
    chosen : int64, shape (layers, num_kv_heads)
        Step whose transform was taken; 0 is the start.
    """

    checkpoints: tuple[int, ...]
    training: Float64Array
    held_out: Float64Array
    chosen: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """Return the losses as JSON values; a loss that is no number is null."""
        return {
            "checkpoints": list(self.checkpoints),
            "training": _jsonable(self.training),
            "held_out": _jsonable(self.held_out),
            "chosen_step": self.chosen.tolist(),
        }


@dataclass(frozen=True, slots=True)
class OptrResult:
    """What was learned.

    Attributes
    ----------
    layers : dict of int to LayerTransforms
        With the start's key means and clips.
    key, value : StageLosses
        Rows in the order of `layers`.
    notes : tuple of str
        Sequences that were left out.
    """

    layers: dict[int, LayerTransforms]
    key: StageLosses
    value: StageLosses
    notes: tuple[str, ...]


def _jsonable(values: Float64Array) -> list[Any]:
    """Return numbers as nested lists, None in the place of NaN and infinity."""
    objects = values.astype(object)
    objects[~np.isfinite(values)] = None
    found: list[Any] = objects.tolist()
    return found


def learn_optr(
    start: Mapping[int, LayerTransforms],
    scheme: Scheme,
    training: Trace,
    held_out: Trace | None,
    options: OptrOptions,
    progress: Progress,
    state: Path | None = None,
) -> OptrResult:
    """Return corrected transforms of all layers of `start`.

    Parameters
    ----------
    start : mapping of int to LayerTransforms
        By layer: R₀ or M₀ of keys and values, the key mean where keys are centred, clips by head where there are any.
    scheme : Scheme
        Dialects, clips, group size and windows.
    training, held_out : Trace
        Of the same model, with different tokens; `held_out` may be None where nothing is chosen by it.
    options : OptrOptions
    progress : Progress
        Called with the stage, the step and the means of both losses.
    state : Path, optional
        Folder for the state, one file a chunk of layers, written at every checkpoint. A run that was interrupted is
        continued from it, with the result that it would have had: bit for bit on the same machine.

    Raises
    ------
    SpecError
        If the start, the scheme, the traces and the options do not fit, no sequence is long enough, or the state
        is of another run.
    NonFiniteError
        If a loss of the start, or a chosen transform, is not finite.
    FileFormatError
        If a file of a trace or of the state is not what it has to be.
    ExtraMissingError, BackendUnavailableError
        If torch is not installed, or cannot use the device.

    Notes
    -----
    Equations 11 to 18; see docs/methods/optr.md. The values stage reads the quantized keys of the chosen key transform.
    Not checked: that training and held-out sequences are like those that the transforms will serve.
    """
    require_device(options.device)
    inputs, notes = read_inputs(start, scheme, (training, held_out), options)
    if state is not None:
        prepare_folder(state)
    chunks = plan_chunks(start, inputs, options)
    found: dict[int, LayerTransforms] = {}
    losses: list[dict[str, _Losses]] = []
    for index, layers in enumerate(chunks):
        chunk = _Chunk(
            index, len(chunks), {layer_idx: start[layer_idx] for layer_idx in layers}, options, progress
        )
        path = None if state is None else state / f"chunk-{index:03d}.safetensors"
        states = _learn_chunk(chunk, inputs, path)
        found |= _transforms(chunk, states)
        # Of a chunk that is done no tensor is kept: the layers of a large model stream through one device.
        losses.append({side: _losses_of(states[side]) for side in SIDES})
        del states
    key, value = (
        _losses([both[side] for both in losses], training.model.num_kv_heads, options) for side in SIDES
    )
    return OptrResult(found, key, value, notes)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Layers that are learned together, with the callback for progress."""

    index: int
    chunks: int
    start: dict[int, LayerTransforms]
    options: OptrOptions
    progress: Progress

    def head(self, place: int, heads: int) -> str:
        """Return the name of a head by its place among all of the chunk."""
        return f"layer {list(self.start)[place // heads]}, KV head {place % heads}"

    def report(self, side: str, step: int, losses: tuple[Tensor, Tensor]) -> None:
        """Tell how far a stage is."""
        layers, steps = list(self.start), self.options.steps + 1
        done = (2 * self.index + SIDES.index(side)) * steps + step + 1
        means = [float(loss.mean()) for loss in losses]
        where = f"layers {layers[0]} to {layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
        what = f"optr, {side}s of {where}, step {step}: loss {means[0]:.6f}, held out {means[1]:.6f}"
        self.progress(done, 2 * self.chunks * steps, what)


def _learn_chunk(chunk: _Chunk, inputs: Inputs, path: Path | None) -> dict[str, StageState]:
    """Return the states of both stages of some layers, at their ends."""
    start, options = chunk.start, chunk.options
    both = prepare_sides(start, inputs, options)
    description = describe(start, inputs, options, [*both[0], *both[1]])
    stored = None if path is None else read_state(path, description)
    states = {}
    for side in SIDES:
        sides = [getattr(rotations, side) for rotations in start.values()]
        matrices, inverses = by_head(sides, inputs.training.model.num_kv_heads)
        first = first_corrections(matrices.shape, list(start), side, options.seed)
        states[side] = StageState.at_start(matrices, inverses, first, options)
        if stored is not None:
            states[side].restore(side, stored)

    def save() -> None:
        if path is not None:
            arrays = {name: array for side in SIDES for name, array in states[side].arrays(side).items()}
            write_state(path, arrays, description)

    metric = prepare_metric(
        (inputs.training.layer(layer_idx, inputs.training_places[0]) for layer_idx in start),
        options.objective,
        options.device,
    )
    is_cache = options.objective == "cache"
    quantizer = side_quantizer("key", start, inputs)
    keys = [KeyObjective(sequences, quantizer, metric, options.key_weight, is_cache) for sequences in both]
    _run_side("key", chunk, states["key"], keys, save)
    chosen = (states["key"].matrix, states["key"].inverse)
    quantizer = side_quantizer("value", start, inputs)
    values = [
        ValueObjective(key.sequences, key.attention(*chosen), quantizer, metric, is_cache) for key in keys
    ]
    _run_side("value", chunk, states["value"], values, save)
    return states


def _run_side(
    side: str,
    chunk: _Chunk,
    state: StageState,
    objectives: Sequence[KeyObjective] | Sequence[ValueObjective],
    save: Callable[[], None],
) -> None:
    """Run a stage, with a check of its first losses."""
    heads = len(state.matrix) // len(chunk.start)

    def report(step: int, loss: Tensor, held_out: Tensor) -> None:
        if step == 0 and not bool(loss.isfinite().all()):
            place = int((~loss.isfinite()).nonzero()[0])
            raise NonFiniteError(
                f"{chunk.head(place, heads)}: the {side} loss of the start is {float(loss[place])}: it must be finite"
            )
        chunk.report(side, step, (loss, held_out))

    training, held_out = objectives
    chooses = held_out if held_out.sequences else None
    run_stage(state, Objectives(training, chooses), chunk.options, save, report)


def _transforms(chunk: _Chunk, states: Mapping[str, StageState]) -> dict[int, LayerTransforms]:
    """Return the chosen matrices as transforms by layer."""
    found = {}
    heads = len(states["key"].matrix) // len(chunk.start)
    for place, (layer_idx, rotations) in enumerate(chunk.start.items()):
        own = slice(place * heads, (place + 1) * heads)
        sides = []
        for side in SIDES:
            matrices, inverses = (
                getattr(states[side], name)[own].cpu().numpy().copy() for name in ("matrix", "inverse")
            )
            try:
                sides.append(_transform(getattr(rotations, side), matrices, inverses, chunk.options))
            except (SpecError, NonFiniteError) as error:
                raise NonFiniteError(
                    f"layer {layer_idx}: the learned {side} transform cannot be used, a smaller learning rate may "
                    f"help: {error}"
                ) from error
        found[layer_idx] = replace(rotations, key=sides[0], value=sides[1])
    return found


def _transform(
    base: DenseTransform, matrices: NDArray[Any], inverses: NDArray[Any], options: OptrOptions
) -> DenseTransform:
    if options.transform == "orthogonal":
        return DenseRotation(kind="optr", matrices=matrices, composition=f"{base.kind} exp(A - A^T)")
    return InvertibleTransform(
        kind="optr-general", matrices=matrices, inverses=inverses, composition=f"{base.kind} exp(B)"
    )


def _losses_of(state: StageState) -> _Losses:
    """Return the losses of a stage of one chunk, and the chosen steps."""
    return state.training.cpu().numpy(), state.held_out.cpu().numpy(), state.chosen.cpu().numpy()


def _losses(chunks: list[_Losses], heads: int, options: OptrOptions) -> StageLosses:
    """Return the losses of a stage of all chunks."""
    training, held_out, chosen = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return StageLosses(
        options.checkpoints,
        training.reshape(-1, heads, options.steps + 1),
        held_out.reshape(-1, heads, len(options.checkpoints)),
        chosen.reshape(-1, heads),
    )
