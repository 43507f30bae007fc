"""The project's transform files: safetensors, keys and values together, with means, clip ratios and probes.

For every layer i and side s, ``key`` or ``value``, the tensors ``layer.i.s.matrix``, M, float32, shape (1 or
num_kv_heads, d, d), rows are vectors; ``….inverse``, M⁻¹, where M is not orthogonal; ``….eigenvalues``, float64, where
a covariance had some; ``….clips``, float64, shape (num_kv_heads,), for clip ratios by head; ``….probe``, x M of the
probe vector, which differs by side, layer and head, so that it detects a matrix that was transposed or belongs to
another layer or head; ``….feedback``, float32, shape (num_kv_heads, d, d), unit upper triangular, where codes are
rounded with error feedback; and, where keys are centred, ``layer.i.key.mean``, μ, float32, shape (num_kv_heads, d). The
metadata name the format, kinds and compositions, and hold a digest of all tensors; `producer.scheme.fitted_file` adds
what they were fitted to.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from producer.errors import FileFormatError, NonFiniteError, SpecError
from producer.quantize.feedback import require_factors
from producer.system.files import temporary_beside
from producer.system.safetensors_loader import load_safetensors
from producer.transform.dense import Construction, DenseRotation, InvertibleTransform, closed_form
from producer.transform.probe import probe_defect, probe_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array
    from producer.transform.dense import DenseTransform

__all__ = ["FORMAT", "SIDES", "LayerTransforms", "read_metadata", "read_transforms", "write_transforms"]

FORMAT = "kvint2eval-transforms-v1"
SIDES = ("key", "value")

#: Largest difference of a stored matrix of a closed form from the same one built here: rounding of 1/√d to float32.
_CLOSED_FORM_BOUND = 1e-6


@dataclass(frozen=True, slots=True)
class LayerTransforms:
    """What one layer does to its keys and values.

    Attributes
    ----------
    key, value : DenseTransform
    key_mean : float32, shape (num_kv_heads, head_dim), or None
        Subtracted from every key first.
    key_clips, value_clips : tuple of float, one a KV head, or None
        Clip ratios by head, in place of the scheme's, in the meaning of its dialect.
    key_feedback, value_feedback : float32, shape (num_kv_heads, head_dim, head_dim), or None
        Factors of error feedback (`producer.quantize.feedback`); without them codes are the nearest.
    """

    key: DenseTransform
    value: DenseTransform
    key_mean: Float32Array | None = None
    key_clips: tuple[float, ...] | None = None
    value_clips: tuple[float, ...] | None = None
    key_feedback: Float32Array | None = None
    value_feedback: Float32Array | None = None


def _digest(tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of names, types, shapes and little-endian bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {values.dtype.name} {values.shape}\n".encode())
        digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def write_transforms(
    path: Path, layers: Mapping[int, LayerTransforms], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the transforms of layers, to a temporary name that is renamed; the same ones give the same bytes.

    Parameters
    ----------
    path : Path
    layers : mapping of int to LayerTransforms
    metadata : mapping of str to str, optional
        Further entries of the file's metadata.

    Raises
    ------
    SpecError
        If there is no layer, or kinds and compositions differ between layers.
    ExtraMissingError
        If safetensors is not installed.
    """
    library = load_safetensors("transform files need")
    held = {"format": FORMAT, **(metadata or {})}
    for side in SIDES:
        names = {
            (rotation.kind, rotation.composition)
            for rotation in (getattr(layer, side) for layer in layers.values())
        }
        if len(names) != 1:
            raise SpecError(
                f"{side} transforms of kinds {sorted(names)} are not allowed: one kind for all layers"
            )
        held[f"{side}_kind"], held[f"{side}_composition"] = names.pop()
    tensors: dict[str, npt.NDArray[Any]] = {}
    for index, layer in layers.items():
        for side in SIDES:
            tensors |= _side_tensors(layer, index, side)
        if layer.key_mean is not None:
            tensors[f"layer.{index}.key.mean"] = np.ascontiguousarray(layer.key_mean)
    held["sha256"] = _digest(tensors)
    content = _in_order(library.numpy.save(tensors, held))
    with temporary_beside(path) as temporary:
        temporary.write_bytes(content)


def _in_order(content: bytes) -> bytes:
    """Return a safetensors file with its metadata in order: the library takes them as they come, new at every run."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    # The data begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def _side_tensors(layer: LayerTransforms, index: int, side: str) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of the keys, or the values, of a layer."""
    transform: DenseTransform = getattr(layer, side)
    clips: tuple[float, ...] | None = getattr(layer, f"{side}_clips")
    name = f"layer.{index}.{side}"
    tensors: dict[str, npt.NDArray[Any]] = {
        f"{name}.matrix": np.ascontiguousarray(transform.matrices),
        f"{name}.probe": probe_of(transform.matrices, index, side),
    }
    if isinstance(transform, InvertibleTransform):
        tensors[f"{name}.inverse"] = np.ascontiguousarray(transform.inverses)
    elif isinstance(transform, DenseRotation) and transform.eigenvalues is not None:
        tensors[f"{name}.eigenvalues"] = np.ascontiguousarray(transform.eigenvalues, dtype=np.float64)
    if clips is not None:
        tensors[f"{name}.clips"] = np.array(clips, dtype=np.float64)
    factors: Float32Array | None = getattr(layer, f"{side}_feedback")
    if factors is not None:
        tensors[f"{name}.feedback"] = np.ascontiguousarray(factors)
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a transform file.

    Raises
    ------
    FileFormatError
        If it is no safetensors file, or of another format.
    OSError
        If it cannot be read.
    ExtraMissingError
        If safetensors is not installed.
    """
    library = load_safetensors("transform files need")
    try:
        with library.safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except library.SafetensorError as error:
        raise FileFormatError(f"{path}: not a safetensors file: {error}") from error
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path}: format {metadata.get('format')!r} is not allowed: {FORMAT}")
    for side in SIDES:
        if metadata.get(f"{side}_kind") not in get_args(Construction):
            raise FileFormatError(
                f"{path}: {side}_kind {metadata.get(f'{side}_kind')!r} is not allowed: one of "
                + ", ".join(get_args(Construction))
            )
    return metadata


def read_transforms(
    path: Path, head_dim: int, num_kv_heads: int, num_layers: int
) -> dict[int, LayerTransforms]:
    """Return the transforms of layers 0 … num_layers - 1.

    Parameters
    ----------
    path : Path
    head_dim, num_kv_heads, num_layers : int
        Of the model that will use them.

    Raises
    ------
    FileFormatError
        If the file is no such file, or holds more or fewer layers; if a matrix has another shape, is neither
        orthogonal nor comes with its inverse, does not turn the probe vector of its place as its writer's did, or is
        not the one that its construction gives, where that has a closed form; if a clip ratio is not in 0 … 1; if
        factors of error feedback are not unit upper triangular; if the tensors do not have their digest.
    OSError
        If the file cannot be read.
    ExtraMissingError
        If safetensors is not installed.
    """
    metadata = read_metadata(path)
    library = load_safetensors("transform files need")
    with library.safe_open(path, framework="np") as file:
        tensors: dict[str, npt.NDArray[Any]] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    reader = _Reader(path, metadata, tensors, head_dim, num_kv_heads)
    found = {index: reader.layer(index) for index in range(num_layers)}
    if reader.unread:
        raise FileFormatError(
            f"{path}: tensor {min(reader.unread)} is not allowed: layers 0 … {num_layers - 1} alone"
        )
    if _digest(tensors) != metadata.get("sha256"):
        raise FileFormatError(f"{path}: the tensors are not those of their digest: the file was changed")
    return found


class _Reader:
    """The tensors of one file, checked one by one."""

    def __init__(
        self,
        path: Path,
        metadata: dict[str, str],
        tensors: dict[str, npt.NDArray[Any]],
        head_dim: int,
        num_kv_heads: int,
    ) -> None:
        self._path = path
        self._metadata = metadata
        self._tensors = tensors
        self._head_dim = head_dim
        self._num_kv_heads = num_kv_heads
        self.unread = set(tensors)

    def layer(self, index: int) -> LayerTransforms:
        """Return what one layer does."""
        mean = f"layer.{index}.key.mean"
        return LayerTransforms(
            self._transform(index, "key"),
            self._transform(index, "value"),
            self._tensor(mean, [(self._num_kv_heads, self._head_dim)]) if mean in self._tensors else None,
            self._clips(index, "key"),
            self._clips(index, "value"),
            self._feedback(index, "key"),
            self._feedback(index, "value"),
        )

    def _transform(self, index: int, side: str) -> DenseTransform:
        name = f"layer.{index}.{side}"
        d = self._head_dim
        kind = cast("Construction", self._metadata[f"{side}_kind"])
        composition = self._metadata.get(f"{side}_composition", "")
        matrices = self._tensor(f"{name}.matrix", [(heads, d, d) for heads in (1, self._num_kv_heads)])
        probe = self._tensor(f"{name}.probe", [matrices.shape[:-1]])
        transform: DenseTransform
        try:
            if kind == "balanced" or f"{name}.inverse" in self._tensors:
                inverses = self._tensor(f"{name}.inverse", [matrices.shape])
                transform = InvertibleTransform(
                    kind=kind, matrices=matrices, inverses=inverses, composition=composition
                )
            else:
                eigenvalues = None
                if f"{name}.eigenvalues" in self._tensors:
                    eigenvalues = self._tensor(f"{name}.eigenvalues", [matrices.shape[:-1]], np.float64)
                transform = DenseRotation(
                    kind=kind, matrices=matrices, composition=composition, eigenvalues=eigenvalues
                )
        except (SpecError, NonFiniteError) as error:
            raise FileFormatError(f"{self._path}: {name}.matrix: {error}") from error
        fault = probe_defect(matrices, probe, index, side)
        if fault is not None:
            raise FileFormatError(f"{self._path}: {name}.matrix {fault}")
        self._require_construction(name, transform)
        return transform

    def _require_construction(self, name: str, transform: DenseTransform) -> None:
        """Raise unless a matrix is the one that its construction gives, where that has a closed form."""
        try:
            expected = closed_form(transform.kind, self._head_dim)
        except SpecError as error:
            raise FileFormatError(f"{self._path}: {name}.matrix: {error}") from error
        if expected is None:
            return
        differences = np.abs(transform.matrices - expected.matrices).max(axis=(1, 2))
        for head, difference in enumerate(differences.tolist()):
            if not difference <= _CLOSED_FORM_BOUND:
                raise FileFormatError(
                    f"{self._path}: {name}.matrix of head {head} is not allowed: the file says {transform.kind!r}, "
                    f"whose matrix for {self._head_dim} channels differs from it by {difference:.2g}"
                )

    def _clips(self, index: int, side: str) -> tuple[float, ...] | None:
        name = f"layer.{index}.{side}.clips"
        if name not in self._tensors:
            return None
        clips = self._tensor(name, [(self._num_kv_heads,)], np.float64)
        if not ((clips >= 0) & (clips <= 1)).all():
            raise FileFormatError(f"{self._path}: {name} {clips.tolist()} is not allowed: each 0 … 1")
        return tuple(clips.tolist())

    def _feedback(self, index: int, side: str) -> Float32Array | None:
        name = f"layer.{index}.{side}.feedback"
        if name not in self._tensors:
            return None
        factors = self._tensor(name, [(self._num_kv_heads, self._head_dim, self._head_dim)])
        try:
            require_factors(factors, name)
        except SpecError as error:
            raise FileFormatError(f"{self._path}: {error}") from error
        return factors

    def _tensor(
        self, name: str, shapes: list[tuple[int, ...]], dtype: type[np.floating[Any]] = np.float32
    ) -> npt.NDArray[Any]:
        """Return a tensor of one of some shapes, finite."""
        found = self._tensors.get(name)
        if found is None:
            raise FileFormatError(f"{self._path}: tensor {name} is missing")
        self.unread.discard(name)
        if found.dtype != dtype or found.shape not in shapes:
            raise FileFormatError(
                f"{self._path}: {name} of dtype {found.dtype} and shape {found.shape} is not allowed: "
                f"{dtype.__name__}, " + " or ".join(map(str, shapes))
            )
        if not np.isfinite(found).all():
            raise FileFormatError(f"{self._path}: {name} holds NaN or infinity")
        return found
