"""Named schemes to evaluate, each with its source of fitted layers (calibration trace, OSCAR dump, or file).

A scheme is fitted to a calibration trace, to a dump of OSCAR's server, or read from a file of fitted transforms; one
that depends on no calibration needs none of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from producer.errors import FileFormatError, SpecError
from producer.quantize import get_dialect
from producer.quantize.storage import store_quantized
from producer.scheme.calibration import LayerCalibration
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import read_fitted
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.own_scheme import OwnScheme, content_of
from producer.scheme.registry import SCHEMES
from producer.trace.oscar_dump import DumpTrace, dump_sha256
from producer.trace.texts import PASSAGE_FIELDS
from producer.transform.covariance import covariance
from producer.transform.dense import closed_form
from producer.transform.hadamard_matrix import has_hadamard_matrix
from producer.transform.oscar_file import read_oscar_rotations
from producer.transform.probe import transpose_word
from producer.transform.transform_file import SIDES, LayerTransforms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from producer.numerics.arrays import Float64Array
    from producer.scheme.registry import Scheme
    from producer.trace.files import ModelInfo, Trace
    from producer.trace.layer import LayerTrace
    from producer.trace.texts import SequenceInfo
    from producer.transform.base import Side
    from producer.transform.dense import DenseRotation

__all__ = [
    "Calibration",
    "Candidate",
    "DumpCalibration",
    "TraceCalibration",
    "fit_candidates",
    "from_calibration",
    "from_file",
    "from_rotations",
    "misfit",
    "without_passages",
]

#: Rotations that depend on no calibration.
_FREE = {"identity", "hadamard", "quarot"}


class Calibration(Protocol):
    """Layers that schemes are fitted to."""

    @property
    def sequences(self) -> tuple[SequenceInfo, ...]:
        """Its sequences; none where texts are not known."""
        ...

    def layers(self, layer_idx: int) -> list[LayerTrace]:
        """Return one layer of all sequences."""
        ...

    def described(self) -> dict[str, Any]:
        """Return what the figures of an evaluation say of it."""
        ...


@dataclass(frozen=True, slots=True)
class TraceCalibration:
    """A calibration trace."""

    trace: Trace

    @property
    def sequences(self) -> tuple[SequenceInfo, ...]:
        """The trace's sequences."""
        return self.trace.sequences

    def layers(self, layer_idx: int) -> list[LayerTrace]:
        """Return one layer of all sequences."""
        return [self.trace.layer(layer_idx, index) for index in range(len(self.trace.sequences))]

    def described(self) -> dict[str, Any]:
        """Return the sequences by digest."""
        return {"calibration": [without_passages(sequence) for sequence in self.sequences]}


@dataclass(frozen=True, slots=True)
class DumpCalibration:
    """A dump of OSCAR's server: no output weights, and no texts, so nothing can be said of overlap."""

    folder: Path
    model: ModelInfo

    @property
    def sequences(self) -> tuple[SequenceInfo, ...]:
        """None: a dump names no texts."""
        return ()

    def layers(self, layer_idx: int) -> list[LayerTrace]:
        """Return one layer, all its sequences one after the other; see `producer.trace.oscar_dump.DumpTrace.layer`."""
        return [DumpTrace(self.folder, self.model).layer(layer_idx)]

    def described(self) -> dict[str, Any]:
        """Return the dump by the digest of its files."""
        return {"oscar_dump": self.folder.name, "oscar_dump_sha256": dump_sha256(self.folder)}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scheme of a comparison.

    Attributes
    ----------
    scheme : Scheme
        Under the name that it has in the comparison.
    fit : callable
        Gives the fitted layer of an index, from the layer of `calibration` where there is one.
    sequences : tuple of SequenceInfo
        What it was fitted to; empty where it was fitted to nothing, or to a dump.
    source : dict
        What the figures say of where it comes from, as JSON values.
    calibration : Calibration, optional
        What it is fitted to here.
    """

    scheme: Scheme
    fit: Callable[[int, LayerCalibration | None], FittedLayer]
    sequences: tuple[SequenceInfo, ...]
    source: dict[str, Any]
    calibration: Calibration | None = None


def fit_candidates(candidates: Sequence[Candidate], layer_idx: int) -> list[FittedLayer]:
    """Return one layer of every candidate; each calibration is read once, and its statistics are shared."""
    read: dict[int, LayerCalibration] = {}
    fitted = []
    for candidate in candidates:
        calibration = candidate.calibration
        if calibration is not None and id(calibration) not in read:
            read[id(calibration)] = LayerCalibration(calibration.layers(layer_idx))
        fitted.append(candidate.fit(layer_idx, read.get(id(calibration))))
    return fitted


def without_passages(sequence: SequenceInfo) -> dict[str, Any]:
    """Return a sequence as JSON without its passages: their digests are for the check of overlap alone."""
    return {name: value for name, value in asdict(sequence).items() if name not in PASSAGE_FIELDS}


def _is_free(scheme: Scheme) -> bool:
    """Return whether a scheme depends on no calibration."""
    rotations = {scheme.key_rotation, scheme.value_rotation}
    is_plain = scheme.clips == "fixed" and scheme.rounding == "nearest"
    return rotations <= _FREE and not scheme.center_keys and is_plain


def misfit(scheme: Scheme, calibration: Calibration | None, model: ModelInfo) -> str | None:
    """Return why a scheme cannot be evaluated on a model with a calibration, or None where it can.

    Whether a quantizer takes a head of so many channels is asked of the quantizer, with one group.
    """
    if calibration is None and not _is_free(scheme):
        return "it is fitted to a calibration, and there is none: --calibration gives one"
    if isinstance(calibration, DumpCalibration) and (
        scheme.clips == "tuned"
        or scheme.rounding == "feedback"
        or "balanced" in {scheme.key_rotation, scheme.value_rotation}
    ):
        return f"it needs output weights, which the dump {calibration.folder} does not hold: a trace does"
    for side in SIDES:
        try:
            _try_rotation(getattr(scheme, f"{side}_rotation"), model.head_dim)
            _try_dialect(scheme, side, model)
        except SpecError as error:
            return f"{side}s: {error}"
    return None


def _try_rotation(rotation: str, head_dim: int) -> None:
    """Raise `SpecError` unless a rotation exists for a head dimension."""
    if rotation == "quarot" and head_dim & (head_dim - 1):
        raise SpecError(
            f"QuaRot's rotation of {head_dim} channels is not allowed: a power of two, as its code asserts; a "
            f"scheme of "
            'your own with transform = "hadamard" has more orders'
        )
    if rotation in {"oscar", "oscar-layer"} and head_dim & (head_dim - 1):
        raise SpecError(
            f"OSCAR's rotation of {head_dim} channels is not allowed: a power of two, for its order by bit reversal; "
            'a balanced scheme, or one of your own with transform = "hadamard", has more orders'
        )
    if rotation in {"hadamard", "balanced"} and not has_hadamard_matrix(head_dim):
        raise SpecError(
            f"a head of {head_dim} channels has no Hadamard matrix here: schemes without a rotation, such as "
            f"centred or "
            "kivi, need none"
        )


def _try_dialect(scheme: Scheme, side: str, model: ModelInfo) -> None:
    """Raise `SpecError` unless a dialect takes one group of a model's heads."""
    dialect = get_dialect(getattr(scheme, f"{side}_dialect"))
    axis = dialect.numerics.group_axis
    size = scheme.group_of(side) or model.head_dim
    if axis == "heads":
        size = model.num_kv_heads * model.head_dim
    if axis == "tokens" and scheme.sink % size:
        raise SpecError(
            f"{dialect.name}: sink {scheme.sink} is not allowed: a multiple of {size}, since groups of tokens begin "
            "after it and are the same in a cache and in a run of the model"
        )
    shape = (model.num_kv_heads, size if axis == "tokens" else 1, model.head_dim)
    x = np.linspace(-1, 1, shape[0] * shape[1] * shape[2], dtype=np.float32).reshape(shape)
    store_quantized(dialect, dialect.quantize(x, getattr(scheme, f"{side}_clip"), size))


def from_calibration(
    scheme: Scheme | OwnScheme, calibration: Calibration | None, model: ModelInfo
) -> Candidate:
    """Return a scheme that is fitted to a calibration, or to none where it depends on none.

    Parameters
    ----------
    scheme : Scheme or OwnScheme
        Of the registry, or a user's, whose layers may differ.
    calibration : Calibration or None
    model : ModelInfo

    Raises
    ------
    SpecError
        If the scheme cannot be evaluated (`misfit`), or names a layer that the model does not have.
    """
    own = scheme if isinstance(scheme, OwnScheme) else OwnScheme(scheme)
    by_layer = own.of_layers(model.num_layers)
    for each in dict.fromkeys([own.scheme, *by_layer]):
        fault = misfit(each, calibration, model)
        if fault is not None:
            raise SpecError(f"scheme {own.scheme.name!r} is not allowed: {fault}")
    free = {each for each in by_layer if _is_free(each)}

    def build(layer_idx: int, layer: LayerCalibration | None) -> FittedLayer:
        each = by_layer[layer_idx]
        if each in free:
            key, value = (
                closed_form(name, model.head_dim) for name in (each.key_rotation, each.value_rotation)
            )
            return FittedLayer(each, LayerTransforms(key, value))  # type: ignore[arg-type]
        return fit_layer(each, layer or [])

    source = {"layers": content_of(own)} if own.layers else {}
    if calibration is None or len(free) == len(set(by_layer)):
        return Candidate(own.scheme, build, (), source)
    described = calibration.described() | source
    return Candidate(own.scheme, build, calibration.sequences, described, calibration)


def from_file(name: str | None, path: Path, model: ModelInfo) -> Candidate:
    """Return a scheme from a file of fitted transforms.

    Parameters
    ----------
    name : str, optional
        In the comparison; the scheme's own by default.
    path : Path
    model : ModelInfo

    Raises
    ------
    FileFormatError
        As `producer.scheme.fitted_file.read_fitted`.
    """
    scheme, layers, sequences = read_fitted(path, model)
    try:
        for side in SIDES:
            _try_dialect(scheme, side, model)
    except SpecError as error:
        raise FileFormatError(f"{path}: {error}") from error
    source = {
        "file": path.name,
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "file_scheme": scheme.name,
        "calibration": [without_passages(sequence) for sequence in sequences],
        # What a reader can build again is; of the rest only the digest tells what it is.
        "construction": {
            side: transform.kind if closed_form(transform.kind, model.head_dim) is not None else "file"
            for side, transform in (("key", layers[0].rotations.key), ("value", layers[0].rotations.value))
        },
        "transforms_sha256": {
            side: [getattr(layers[index].rotations, side).sha256 for index in sorted(layers)]
            for side in ("key", "value")
        },
    }
    if name is not None:
        scheme = replace(scheme, name=name)
    named = {index: FittedLayer(scheme, layer.rotations) for index, layer in layers.items()}
    return Candidate(scheme, lambda layer_idx, _: named[layer_idx], sequences, source)


def _covariance(rotation: DenseRotation, side: Side, layer: LayerTrace) -> Float64Array:
    """Return the covariances that a published rotation of a side diagonalizes, one a matrix."""
    sigma = covariance("qqt" if side == "key" else "sst", layer.q, layer.k, layer.v)
    return sigma if rotation.is_per_head else sigma.mean(axis=0, keepdims=True)


def from_rotations(
    paths: Mapping[Side, Path], model: ModelInfo, probe: Trace, name: str = "oscar-file"
) -> Candidate:
    """Return OSCAR's scheme with the rotations of published files, `producer.transform.oscar_file`.

    Parameters
    ----------
    paths : mapping of {"key", "value"} to Path
        A side that is not there is not rotated.
    model : ModelInfo
    probe : Trace
        Of the model: tells matrices from their transposes (`producer.transform.probe.transpose_word`).
    name : str
        Of the scheme.

    Raises
    ------
    FileFormatError
        As `producer.transform.oscar_file.read_oscar_rotations`, and if a matrix is a transposed one.
    OSError
        If a file cannot be read.
    """
    layers = range(model.num_layers)
    read = {
        side: read_oscar_rotations(path, side, model.head_dim, model.num_kv_heads, layers)
        for side, path in paths.items()
    }
    told: dict[str, list[int]] = {side: [] for side in read}
    for layer_idx in layers:
        traced = probe.layer(layer_idx, 0)
        for side, rotations in read.items():
            word = transpose_word(rotations[layer_idx], _covariance(rotations[layer_idx], side, traced))
            if word == "transposed":
                raise FileFormatError(
                    f"{paths[side]}: layer {layer_idx}: the {side} rotation looks transposed: its transpose, "
                    f"and not the "
                    f"matrix, makes the covariance of the model's {side}s diagonal"
                )
            if word == "unknown":
                told[side].append(layer_idx)
    plain = closed_form("identity", model.head_dim)
    scheme = replace(
        SCHEMES["oscar"],
        name=name,
        key_rotation="file" if "key" in read else "identity",
        value_rotation="file" if "value" in read else "identity",
    )

    def build(layer_idx: int, _layer: LayerCalibration | None) -> FittedLayer:
        key, value = (read[side][layer_idx] if side in read else plain for side in ("key", "value"))
        return FittedLayer(scheme, LayerTransforms(key, value))  # type: ignore[arg-type]

    source = {
        "files": {side: path.name for side, path in paths.items()},
        "files_sha256": {side: hashlib.sha256(path.read_bytes()).hexdigest() for side, path in paths.items()},
        "construction": {side: "file" if side in read else "identity" for side in ("key", "value")},
        # Layers whose covariances do not tell the matrix from its transpose.
        "transpose_not_told": told,
    }
    return Candidate(scheme, build, (), source)
