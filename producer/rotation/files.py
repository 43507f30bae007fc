"""The project's rotation files: safetensors, keys and values together, with key means and probes.

For every layer i the tensors ``layer.i.key.rotation`` and ``layer.i.value.rotation``, float32, shape (1 or
num_kv_heads, d, d), rows are vectors; ``….probe``, x R of the probe vector x_j = (j + 1)/d, which tells a transposed
matrix; and, where keys are centred, ``layer.i.key.mean``, μ, float32, shape (num_kv_heads, d). The file's metadata
name the format, the kinds and the compositions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from producer.errors import ExtraMissingError, FileFormatError, NonFiniteError, SpecError
from producer.files import temporary_beside
from producer.rotation.checks import PROBE_BOUND, probe_of
from producer.rotation.dense import Construction, DenseRotation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from producer.arrays import Float32Array
    from producer.rotation.dense import DenseTransform

__all__ = ["FORMAT", "LayerRotations", "read_rotations", "write_rotations"]

FORMAT = "kvint2eval-rotations-v1"


@dataclass(frozen=True, slots=True)
class LayerRotations:
    """What one layer does to its keys and values.

    Attributes
    ----------
    key, value : DenseTransform
    key_mean : float32, shape (num_kv_heads, head_dim), or None
        Subtracted from every key first.
    key_clips, value_clips : tuple of float, one a KV head, or None
        Clip ratios by head, in place of the scheme's, in the meaning of its dialect.
    """

    key: "DenseTransform"
    value: "DenseTransform"
    key_mean: "Float32Array | None" = None
    key_clips: tuple[float, ...] | None = None
    value_clips: tuple[float, ...] | None = None


def _safetensors() -> Any:
    """Return the module that reads and writes safetensors as arrays."""
    try:
        import safetensors.numpy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissingError("rotation files need safetensors: pip install 'kvint2eval[trace]'") from error
    return safetensors


def write_rotations(path: "Path", layers: "Mapping[int, LayerRotations]") -> None:
    """Write the rotations of layers, to a temporary name that is renamed.

    Raises
    ------
    SpecError
        If there is no layer, or kinds and compositions differ between layers.
    ExtraMissingError
        If safetensors is not installed.
    """
    library = _safetensors()
    metadata = {"format": FORMAT}
    for side in ("key", "value"):
        rotations = [getattr(layer, side) for layer in layers.values()]
        names = {(rotation.kind, rotation.composition) for rotation in rotations}
        if len(names) != 1:
            raise SpecError(
                f"{side} rotations of kinds {sorted(names)} are not allowed: one kind for all layers"
            )
        metadata[f"{side}_kind"], metadata[f"{side}_composition"] = names.pop()
    tensors: dict[str, Float32Array] = {}
    for index, layer in layers.items():
        for side in ("key", "value"):
            matrices = getattr(layer, side).matrices
            tensors[f"layer.{index}.{side}.rotation"] = np.ascontiguousarray(matrices)
            tensors[f"layer.{index}.{side}.probe"] = probe_of(matrices)
        if layer.key_mean is not None:
            tensors[f"layer.{index}.key.mean"] = np.ascontiguousarray(layer.key_mean)
    with temporary_beside(path) as temporary:
        library.numpy.save_file(tensors, temporary, metadata)


def read_rotations(
    path: "Path", head_dim: int, num_kv_heads: int, num_layers: int
) -> dict[int, LayerRotations]:
    """Return the rotations of layers 0 … num_layers - 1.

    Raises
    ------
    FileFormatError
        If the file is no such file, or a layer is missing, has another shape, is not orthogonal, or does not turn
        the probe vector as its writer's did (a transposed matrix does not).
    ExtraMissingError
        If safetensors is not installed.
    """
    library = _safetensors()
    try:
        with library.safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Float32Array] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except library.SafetensorError as error:
        raise FileFormatError(f"{path}: not a safetensors file: {error}") from error
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path}: format {metadata.get('format')!r} is not allowed: {FORMAT}")
    for side in ("key", "value"):
        if metadata.get(f"{side}_kind") not in get_args(Construction):
            raise FileFormatError(f"{path}: {side}_kind {metadata.get(f'{side}_kind')!r} is not allowed")
    reader = _Reader(path, metadata, tensors, head_dim, num_kv_heads)
    return {
        index: LayerRotations(
            reader.rotation(index, "key"), reader.rotation(index, "value"), reader.mean(index)
        )
        for index in range(num_layers)
    }


@dataclass(frozen=True, slots=True)
class _Reader:
    """The tensors of one file, checked one by one."""

    path: "Path"
    metadata: dict[str, str]
    tensors: "dict[str, Float32Array]"
    head_dim: int
    num_kv_heads: int

    def rotation(self, index: int, side: str) -> DenseRotation:
        """Return one rotation."""
        name = f"layer.{index}.{side}"
        matrices = self._tensor(
            f"{name}.rotation", [(heads, self.head_dim, self.head_dim) for heads in self._heads]
        )
        probe = self._tensor(f"{name}.probe", [matrices.shape[:-1]])
        try:
            rotation = DenseRotation(
                kind=cast("Construction", self.metadata[f"{side}_kind"]),
                matrices=matrices,
                composition=self.metadata.get(f"{side}_composition", ""),
            )
        except (SpecError, NonFiniteError) as error:
            raise FileFormatError(f"{self.path}: {name}.rotation: {error}") from error
        if not np.abs(probe_of(matrices) - probe).max() <= PROBE_BOUND:
            turned = probe_of(np.swapaxes(matrices, -1, -2))
            is_transposed = bool(np.abs(turned - probe).max() <= PROBE_BOUND)
            raise FileFormatError(
                f"{self.path}: {name}.rotation does not turn the probe as its writer's did"
                + ("; it is transposed" if is_transposed else "")
            )
        return rotation

    def mean(self, index: int) -> "Float32Array | None":
        """Return the key mean of a layer, if keys are centred."""
        name = f"layer.{index}.key.mean"
        if name not in self.tensors:
            return None
        mean = self._tensor(name, [(self.num_kv_heads, self.head_dim)])
        if not np.isfinite(mean).all():
            raise FileFormatError(f"{self.path}: {name} holds NaN or infinity")
        return mean

    @property
    def _heads(self) -> tuple[int, ...]:
        return (1, self.num_kv_heads)

    def _tensor(self, name: str, shapes: list[tuple[int, ...]]) -> "Float32Array":
        """Return a tensor of one of some shapes."""
        found = self.tensors.get(name)
        if found is None:
            raise FileFormatError(f"{self.path}: tensor {name} is missing")
        if found.dtype != np.float32 or found.shape not in shapes:
            raise FileFormatError(
                f"{self.path}: {name} of dtype {found.dtype} and shape {found.shape} is not allowed: float32, "
                + " or ".join(map(str, shapes))
            )
        return found
