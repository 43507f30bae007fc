"""What an evaluation compares: schemes under a name each, and where the layers that are fitted to them come from.

A scheme is fitted to a calibration trace, to a dump of OSCAR's server, or read from a file of fitted transforms; one
that depends on no calibration needs none of them.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from producer.errors import SpecError
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import read_fitted
from producer.scheme.fitted_layer import FittedLayer
from producer.trace.files import Trace
from producer.trace.oscar_dump import read_oscar_layer
from producer.trace.texts import PASSAGE_FIELDS
from producer.transform.dense import build_hadamard, build_identity, build_quarot
from producer.transform.transform_file import LayerTransforms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from producer.scheme.registry import Scheme
    from producer.trace.files import ModelInfo
    from producer.trace.layer import LayerTrace
    from producer.trace.texts import SequenceInfo

__all__ = [
    "Calibration",
    "Candidate",
    "DumpCalibration",
    "TraceCalibration",
    "from_calibration",
    "from_file",
    "without_passages",
]

_FREE = {"identity": build_identity, "hadamard": build_hadamard, "quarot": build_quarot}


class Calibration(Protocol):
    """Layers that schemes are fitted to."""

    @property
    def sequences(self) -> "tuple[SequenceInfo, ...]":
        """Its sequences; none where texts are not known."""
        ...

    def layers(self, layer_idx: int) -> "list[LayerTrace]":
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
    def sequences(self) -> "tuple[SequenceInfo, ...]":
        """The trace's sequences."""
        return self.trace.sequences

    def layers(self, layer_idx: int) -> "list[LayerTrace]":
        """Return one layer of all sequences."""
        return [self.trace.layer(layer_idx, index) for index in range(len(self.trace.sequences))]

    def described(self) -> dict[str, Any]:
        """Return the sequences by digest."""
        return {"calibration": [without_passages(sequence) for sequence in self.sequences]}


@dataclass(frozen=True, slots=True)
class DumpCalibration:
    """A dump of OSCAR's server: no output weights, and no texts, so nothing can be said of overlap."""

    folder: "Path"
    model: "ModelInfo"

    @property
    def sequences(self) -> "tuple[SequenceInfo, ...]":
        """None: a dump names no texts."""
        return ()

    def layers(self, layer_idx: int) -> "list[LayerTrace]":
        """Return one layer, all its sequences one after the other.

        Raises
        ------
        SpecError
            If the heads are not those of the model that is evaluated.
        """
        layer = read_oscar_layer(self.folder, layer_idx).layer
        found = (layer.q.shape[0], layer.num_kv_heads, layer.q.shape[2])
        model = self.model
        if found != (model.num_heads, model.num_kv_heads, model.head_dim):
            raise SpecError(
                f"dump {self.folder} with query heads, KV heads and head_dim {found} is not allowed: the evaluation's "
                f"model has {(model.num_heads, model.num_kv_heads, model.head_dim)}"
            )
        return [layer]

    def described(self) -> dict[str, Any]:
        """Return the dump by the digest of its files."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.glob("layer_*/*/*.pt")):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(self.folder).as_posix()} {content}\n".encode())
        return {"oscar_dump": self.folder.name, "oscar_dump_sha256": digest.hexdigest()}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scheme of a comparison.

    Attributes
    ----------
    scheme : Scheme
        Under the name that it has in the comparison.
    layer : callable
        Gives the fitted layer of an index.
    sequences : tuple of SequenceInfo
        What it was fitted to; empty where it was fitted to nothing, or to a dump.
    source : dict
        What the figures say of where it comes from, as JSON values.
    """

    scheme: "Scheme"
    layer: "Callable[[int], FittedLayer]"
    sequences: "tuple[SequenceInfo, ...]"
    source: dict[str, Any]


def without_passages(sequence: "SequenceInfo") -> dict[str, Any]:
    """Return a sequence as JSON without its passages: their digests are for the check of overlap alone."""
    return {name: value for name, value in asdict(sequence).items() if name not in PASSAGE_FIELDS}


def _is_free(scheme: "Scheme") -> bool:
    """Return whether a scheme depends on no calibration."""
    rotations = {scheme.key_rotation, scheme.value_rotation}
    is_plain = scheme.clips == "fixed" and scheme.rounding == "nearest"
    return rotations <= _FREE.keys() and not scheme.center_keys and is_plain


def from_calibration(scheme: "Scheme", calibration: Calibration | None, model: "ModelInfo") -> Candidate:
    """Return a scheme that is fitted to a calibration, or to none where it depends on none.

    Raises
    ------
    SpecError
        If the scheme needs a calibration and there is none, or needs output weights and a dump has none.
    """
    if _is_free(scheme):

        def build(_: int) -> FittedLayer:
            key, value = (
                _FREE[rotation](model.head_dim) for rotation in (scheme.key_rotation, scheme.value_rotation)
            )
            return FittedLayer(scheme, LayerTransforms(key, value))

        return Candidate(scheme, build, (), {})
    if calibration is None:
        raise SpecError(f"scheme {scheme.name!r} without a calibration is not allowed: it is fitted to one")
    if isinstance(calibration, DumpCalibration) and (
        scheme.clips == "tuned"
        or scheme.rounding == "feedback"
        or "balanced" in {scheme.key_rotation, scheme.value_rotation}
    ):
        raise SpecError(
            f"scheme {scheme.name!r} is not allowed with the dump {calibration.folder}: it needs output weights, "
            "which a dump does not hold"
        )
    layers = calibration.layers
    return Candidate(
        scheme,
        lambda layer_idx: fit_layer(scheme, layers(layer_idx)),
        calibration.sequences,
        calibration.described(),
    )


def from_file(name: str | None, path: "Path", model: "ModelInfo") -> Candidate:
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
    source = {
        "file": path.name,
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "file_scheme": scheme.name,
        "calibration": [without_passages(sequence) for sequence in sequences],
        "transforms_sha256": {
            side: [getattr(layers[index].rotations, side).sha256 for index in sorted(layers)]
            for side in ("key", "value")
        },
    }
    if name is not None:
        scheme = replace(scheme, name=name)
    named = {index: FittedLayer(scheme, layer.rotations) for index, layer in layers.items()}
    return Candidate(scheme, named.__getitem__, sequences, source)
