"""Inputs of an OptR run: checked, cut into chunks of layers, and described for its state."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.scheme.optr.problem import prepare_sequence
from producer.scheme.optr.quantizer import TorchQuantizer
from producer.scheme.optr.torch_loader import load_torch
from producer.trace.model_info import require_same_model
from producer.transform.dense import DenseRotation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from producer.numerics.arrays import Float64Array
    from producer.scheme.optr.options import OptrOptions
    from producer.scheme.optr.problem import SequenceData
    from producer.scheme.registry import Scheme
    from producer.trace.files import ModelInfo, Trace
    from producer.trace.texts import SequenceInfo
    from producer.transform.dense import DenseTransform
    from producer.transform.transform_file import LayerTransforms

__all__ = [
    "SIDES",
    "Inputs",
    "by_head",
    "describe",
    "first_corrections",
    "plan_chunks",
    "prepare_sides",
    "read_inputs",
    "side_quantizer",
]

SIDES = ("key", "value")

# Standard deviation of corrections that a seed draws: a rotation by about a hundredth of a radian at head dimension 64.
_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class Inputs:
    """The scheme, the traces, and the places of the sequences that are long enough.

    Attributes
    ----------
    scheme : Scheme
    training : Trace
    training_places : tuple of int
    held_out : Trace or None
    held_out_places : tuple of int
    """

    scheme: Scheme
    training: Trace
    training_places: tuple[int, ...]
    held_out: Trace | None
    held_out_places: tuple[int, ...]

    @property
    def sides(self) -> list[tuple[Trace, tuple[int, ...]]]:
        """The training trace and the held-out one, where there is one, with the places of their sequences."""
        held_out = [] if self.held_out is None else [(self.held_out, self.held_out_places)]
        return [(self.training, self.training_places), *held_out]


def read_inputs(
    start: Mapping[int, LayerTransforms],
    scheme: Scheme,
    traces: tuple[Trace, Trace | None],
    options: OptrOptions,
) -> tuple[Inputs, tuple[str, ...]]:
    """Return the inputs of a run, and a note for every sequence that is left out.

    Raises
    ------
    SpecError
        If start, scheme, traces and options do not fit, or no sequence is long enough.
    """
    training, held_out = traces
    if held_out is None and options.selection == "held-out":
        raise SpecError("no held-out trace: it may be left out only with the selection 'last'")
    if scheme.rounding == "feedback":
        raise SpecError(
            f"scheme {scheme.name!r} with error feedback is not allowed: OptR learns through the nearest codes"
        )
    model = training.model
    if not start or not all(0 <= layer_idx < model.num_layers for layer_idx in start):
        raise SpecError(
            f"start for layers {sorted(start)} is not allowed: at least one of 0 … {model.num_layers - 1}"
        )
    for layer_idx, rotations in start.items():
        for side in SIDES:
            where = f"start of the {side}s of layer {layer_idx}"
            _require_transform(getattr(rotations, side), where, model, options)
    if held_out is not None:
        _require_other_tokens(training, held_out)
    notes: list[str] = []
    inputs = Inputs(
        scheme,
        training,
        _long_enough(training, scheme, options, notes),
        held_out,
        () if held_out is None else _long_enough(held_out, scheme, options, notes),
    )
    for side in SIDES:
        side_quantizer(side, start, inputs)
    return inputs, tuple(notes)


def _require_transform(transform: DenseTransform, where: str, model: ModelInfo, options: OptrOptions) -> None:
    if transform.head_dim != model.head_dim:
        raise SpecError(f"{where}: head_dim {transform.head_dim} is not allowed: {model.head_dim}")
    if transform.is_per_head and len(transform.matrices) != model.num_kv_heads:
        raise SpecError(
            f"{where}: {len(transform.matrices)} matrices are not allowed: 1 or {model.num_kv_heads}"
        )
    if options.transform == "orthogonal" and not isinstance(transform, DenseRotation):
        raise SpecError(
            f"{where}: {transform.kind!r} is no rotation: it takes the option transform 'general'"
        )


def _require_other_tokens(training: Trace, held_out: Trace) -> None:
    """Raise unless two traces are of one model, and of different tokens."""
    require_same_model(training.model, held_out.model, f"held-out trace {held_out.folder}")
    for one in training.sequences:
        for other in held_out.sequences:
            if _share_tokens(one, other):
                raise SpecError(
                    f"training text {one.name!r} and held-out text {other.name!r} share tokens: take different ones"
                )


def _share_tokens(one: SequenceInfo, other: SequenceInfo) -> bool:
    """Return whether two sequences are cut from the same place of a text, or are the same."""
    return one.token_ids_sha256 == other.token_ids_sha256 or (
        one.text_sha256 == other.text_sha256
        and one.first_token < other.end_token
        and other.first_token < one.end_token
    )


def _long_enough(trace: Trace, scheme: Scheme, options: OptrOptions, notes: list[str]) -> tuple[int, ...]:
    """Return the places of the sequences with enough tokens; a note for every other."""
    least = max(scheme.sink + scheme.recent + options.least_quantized, options.queries)
    places = []
    for place, sequence in enumerate(trace.sequences):
        if sequence.tokens >= least:
            places.append(place)
        else:
            notes.append(
                f"{trace.folder.name}: sequence {place} is left out: {sequence.tokens} tokens, {least} are needed"
            )
    if not places:
        raise SpecError(f"{trace.folder}: no sequence has {least} tokens: {'; '.join(notes)}")
    return tuple(places)


def plan_chunks(
    start: Mapping[int, LayerTransforms], inputs: Inputs, options: OptrOptions
) -> list[list[int]]:
    """Return the layers in groups that fit in the size of a chunk; a group has at least one."""
    model = inputs.training.model
    rows = model.num_heads // model.num_kv_heads * options.queries
    tokens = sum(trace.sequences[place].tokens for trace, places in inputs.sides for place in places)
    # Exact weights, and keys and values, in float32.
    layer_bytes = 4 * model.num_kv_heads * tokens * (rows + 2 * model.head_dim)
    size = max(1, options.chunk_bytes // layer_bytes)
    layers = sorted(start)
    return [layers[first : first + size] for first in range(0, len(layers), size)]


def by_head(transforms: Sequence[DenseTransform], heads: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return matrices and inverses of layers with one entry a head, float32, shape (layers·heads, d, d)."""
    shape = (heads, transforms[0].head_dim, transforms[0].head_dim)
    matrices, inverses = (
        np.concatenate([np.broadcast_to(getattr(transform, name), shape) for transform in transforms])
        for name in ("matrices", "inverses")
    )
    return matrices, inverses


def side_quantizer(side: str, start: Mapping[int, LayerTransforms], inputs: Inputs) -> TorchQuantizer:
    """Return the dialect of keys or values, with the clips of all heads of some layers.

    Raises
    ------
    SpecError
        If there is not one clip a KV head, a clip is not allowed, or the dialect has no form in torch.
    """
    scheme, model = inputs.scheme, inputs.training.model
    clips: list[float] = []
    for layer_idx, rotations in start.items():
        own = getattr(rotations, f"{side}_clips") or (getattr(scheme, f"{side}_clip"),) * model.num_kv_heads
        if len(own) != model.num_kv_heads:
            raise SpecError(
                f"layer {layer_idx}: {len(own)} {side} clips are not allowed: {model.num_kv_heads}, one a KV head"
            )
        clips += own
    size = scheme.group_of(side) or model.head_dim
    if model.head_dim % size:
        raise SpecError(f"group_size {size} is not allowed: a divisor of the {model.head_dim} channels")
    return TorchQuantizer(getattr(scheme, f"{side}_dialect"), size, tuple(clips))


def prepare_sides(
    start: Mapping[int, LayerTransforms], inputs: Inputs, options: OptrOptions
) -> tuple[list[SequenceData], list[SequenceData]]:
    """Return the training and the held-out sequences of some layers."""
    means = [rotations.key_mean for rotations in start.values()]
    found = [
        [
            prepare_sequence(
                (trace.layer(layer_idx, place) for layer_idx in start),
                means,
                inputs.scheme,
                options.queries,
                options.device,
            )
            for place in places
        ]
        for trace, places in inputs.sides
    ]
    return found[0], found[1] if len(found) > 1 else []


def first_corrections(shape: tuple[int, ...], layers: Sequence[int], side: str, seed: int) -> Float64Array:
    """Return where corrections begin, (heads, d, d): 0, or with a seed normal draws, each layer its own."""
    if seed == 0:
        return np.zeros(shape)
    each = (shape[0] // len(layers), *shape[1:])
    streams = (np.random.default_rng([seed, SIDES.index(side), layer_idx]) for layer_idx in layers)
    return np.concatenate([_SPREAD * stream.standard_normal(each) for stream in streams])


def describe(
    start: Mapping[int, LayerTransforms],
    inputs: Inputs,
    options: OptrOptions,
    sequences: Sequence[SequenceData],
) -> dict[str, Any]:
    """Return what makes a chunk the same chunk of the same run, as JSON values."""
    digest = hashlib.sha256()
    for rotations in start.values():
        for side in SIDES:
            transform = getattr(rotations, side)
            for array in (transform.matrices, transform.inverses):
                digest.update(np.ascontiguousarray(array).data)
    return {
        "options": asdict(options),
        "scheme": asdict(inputs.scheme),
        "model": asdict(inputs.training.model),
        "layers": list(start),
        "clips": [[rotations.key_clips, rotations.value_clips] for rotations in start.values()],
        "start": digest.hexdigest(),
        "calibration": [sequence.sha256 for sequence in sequences],
        "torch": str(load_torch().__version__),
    }
