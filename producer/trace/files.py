"""The project's traces: a folder with ``trace.json`` and one safetensors file a layer and sequence.

``trace.json`` names the model, its shape, the sequences by digest and what the capture verified.
``layer-LLL.safetensors`` holds w_o, ``layer-LLL.sequence-SSS.safetensors`` q, k and v, float32 or bfloat16 in the
shapes of `producer.trace.layer.LayerTrace`. A layer is read when it is asked for, so memory stays that of one layer.
``sequence-SSS.tokens.safetensors`` holds token_ids, int32, so that the model can be run on the sequence again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import FileFormatError, NonFiniteError, SpecError
from producer.system.files import temporary_beside, write_text
from producer.system.safetensors_loader import load_safetensors
from producer.trace.layer import LayerTrace
from producer.trace.model_info import ModelInfo, parse_model
from producer.trace.texts import SequenceInfo, parse_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array

__all__ = [
    "FORMAT",
    "ModelInfo",
    "Trace",
    "file_bytes",
    "has_sequence",
    "read_trace",
    "write_arrays",
    "write_manifest",
    "write_token_ids",
]

FORMAT = "kvint2eval-trace-v2"
# Its models are named by their weights alone, its texts by whole lines.
_EARLIER = "kvint2eval-trace-v1"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace on disk.

    Attributes
    ----------
    folder : Path
    model : ModelInfo
    sequences : tuple of SequenceInfo
    verification : dict
        What the capture compared, by name.
    """

    folder: Path
    model: ModelInfo
    sequences: tuple[SequenceInfo, ...]
    verification: dict[str, float]

    @property
    def manifest_sha256(self) -> str:
        """SHA-256 of ``trace.json``, by which a record names the trace.

        Raises
        ------
        FileFormatError
            If it cannot be read any more.
        """
        path = self.folder / "trace.json"
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror}") from error

    def layer(self, layer_idx: int, sequence: int) -> LayerTrace:
        """Return one layer of one sequence.

        Raises
        ------
        FileFormatError
            If a file is missing, or an array is not of the shape that the manifest says.
        """
        model = self.model
        arrays = _read_arrays(self.folder / _sequence_file(layer_idx, sequence), ("q", "k", "v"))
        arrays |= _read_arrays(self.folder / _layer_file(layer_idx), ("w_o",))
        tokens = self.sequences[sequence].tokens
        shapes = {
            "q": (model.num_heads, tokens, model.head_dim),
            "k": (model.num_kv_heads, tokens, model.head_dim),
            "v": (model.num_kv_heads, tokens, model.head_dim),
            "w_o": (model.num_heads, model.head_dim, model.hidden_size),
        }
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise FileFormatError(
                    f"{self.folder}: layer {layer_idx}: {name} of shape {arrays[name].shape} is not allowed: {shape}"
                )
        try:
            return LayerTrace(layer_idx=layer_idx, scaling=model.scaling_of(layer_idx), **arrays)
        except (SpecError, NonFiniteError) as error:
            raise FileFormatError(f"{self.folder}: {error}") from error

    def token_ids(self, sequence: int) -> npt.NDArray[np.int32]:
        """Return the token ids of one sequence, int32, shape (tokens,).

        Raises
        ------
        FileFormatError
            If the trace holds none, as those of earlier versions do not, or others than the manifest says.
        """
        path = self.folder / _token_file(sequence)
        if not path.exists():
            raise FileFormatError(
                f"{path} is missing: a run of the model needs token ids, which this trace does not hold; capture it "
                "again"
            )
        ids: npt.NDArray[np.int32] = _read_tensors(path, ("token_ids",))["token_ids"]
        info = self.sequences[sequence]
        found = hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()
        if ids.dtype != np.int32 or ids.shape != (info.tokens,) or found != info.token_ids_sha256:
            raise FileFormatError(
                f"{path}: token ids of dtype {ids.dtype}, shape {ids.shape} and SHA-256 {found[:12]}… are not "
                f"allowed: int32, ({info.tokens},), {info.token_ids_sha256[:12]}…"
            )
        return ids


def _layer_file(layer_idx: int) -> str:
    return f"layer-{layer_idx:03d}.safetensors"


def _sequence_file(layer_idx: int, sequence: int) -> str:
    return f"layer-{layer_idx:03d}.sequence-{sequence:03d}.safetensors"


def _token_file(sequence: int) -> str:
    return f"sequence-{sequence:03d}.tokens.safetensors"


def _read_tensors(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Return arrays of a file, of any dtype."""
    library = load_safetensors("traces need")
    try:
        with library.safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in names}
    except (library.SafetensorError, OSError) as error:
        raise FileFormatError(f"{path}: tensors {', '.join(names)} cannot be read: {error}") from error


def _read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, Float32Array]:
    """Return the float32 arrays of a file."""
    found = _read_tensors(path, names)
    for name, values in found.items():
        if values.dtype != np.float32:
            raise FileFormatError(f"{path}: {name} of dtype {values.dtype} is not allowed: float32")
    return found


def file_bytes(model: ModelInfo, tokens: Sequence[int]) -> int:
    """Return the size of the files of a trace in bytes, but for their headers, from the tokens of its sequences."""
    heads = model.num_heads + 2 * model.num_kv_heads
    each = heads * sum(tokens) + model.num_heads * model.hidden_size
    return 4 * model.num_layers * each * model.head_dim + 4 * sum(tokens)


def write_arrays(
    folder: Path, layer_idx: int, sequence: int | None, arrays: Mapping[str, Float32Array]
) -> None:
    """Write arrays of a layer, or of one of its sequences, to a temporary name that is renamed."""
    name = _layer_file(layer_idx) if sequence is None else _sequence_file(layer_idx, sequence)
    with temporary_beside(folder / name) as temporary:
        load_safetensors("traces need").numpy.save_file(
            {key: np.ascontiguousarray(value) for key, value in arrays.items()}, temporary
        )


def has_sequence(folder: Path, model: ModelInfo, sequence: int) -> bool:
    """Return whether the files of a sequence and the output weights are there."""
    layers = range(model.num_layers)
    names = [_token_file(sequence), *(_sequence_file(layer_idx, sequence) for layer_idx in layers)]
    return all((folder / name).is_file() for name in names + [_layer_file(layer_idx) for layer_idx in layers])


def write_token_ids(folder: Path, sequence: int, token_ids: npt.NDArray[np.int32]) -> None:
    """Write the token ids of a sequence, int32, shape (tokens,), to a temporary name that is renamed."""
    with temporary_beside(folder / _token_file(sequence)) as temporary:
        load_safetensors("traces need").numpy.save_file({"token_ids": token_ids.astype(np.int32)}, temporary)


def write_manifest(
    folder: Path, model: ModelInfo, sequences: list[SequenceInfo], verification: dict[str, float]
) -> None:
    """Write ``trace.json``: last, so that a folder with it is complete."""
    content = {
        "format": FORMAT,
        "model": asdict(model),
        "sequences": [asdict(sequence) for sequence in sequences],
        "verification": verification,
    }
    write_text(folder / "trace.json", json.dumps(content, indent=1) + "\n")


def read_trace(folder: Path) -> Trace:
    """Return a trace by its manifest.

    Raises
    ------
    FileFormatError
        If ``trace.json`` is missing or is no manifest of this format.
    """
    path = folder / "trace.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] == _EARLIER:
            raise FileFormatError(
                f"{path}: a trace of an earlier version, which names its model by the weights alone and its texts by "
                "whole lines: it cannot be told whether it is of the model and the texts that are meant; "
                "capture it again"
            )
        if content["format"] != FORMAT:
            raise FileFormatError(f"{path}: format {content['format']!r} is not allowed: {FORMAT}")
        model = parse_model(content["model"])
        sequences = tuple(map(parse_sequence, content["sequences"]))
        verification = {str(name): float(value) for name, value in content["verification"].items()}
    except OSError as error:
        raise FileFormatError(
            f"{folder}: not a trace, trace.json cannot be read: {error.strerror}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path}: not a manifest of {FORMAT}: {error!r}") from error
    sizes = (model.num_layers, model.num_heads, model.num_kv_heads, model.head_dim, model.hidden_size)
    if not sequences or min(sizes) < 1:
        raise FileFormatError(
            f"{path}: sizes {sizes} and {len(sequences)} sequences are not allowed: each at least 1"
        )
    if model.layer_scaling and len(model.layer_scaling) != model.num_layers:
        raise FileFormatError(
            f"{path}: {len(model.layer_scaling)} scalings are not allowed: one for each of {model.num_layers} layers"
        )
    return Trace(folder, model, sequences, verification)
