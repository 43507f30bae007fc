"""OSCAR's rotation files, RotationZoo v1 (one matrix a layer) and v2 (one a KV head).

They are read with the checks that the public server omits, and written.

The files hold no key mean: a rotation that needs centred keys cannot be expressed in them
(`producer.transform.transform_file` can).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import ExtraMissingError, FileFormatError, NonFiniteError, SpecError
from producer.system.files import temporary_beside
from producer.system.torch_file import read_torch_file
from producer.transform.dense import DenseRotation
from producer.transform.oscar import COMPOSITIONS
from producer.transform.probe import probe_defect, probe_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from producer.transform.base import Side

__all__ = ["read_oscar_rotations", "side_of", "write_oscar_rotations"]

_TARGETS: dict[Side, tuple[str, ...]] = {"key": ("qqt", "ktk"), "value": ("sst", "vtv")}
_PER_HEAD_OBJECTIVE = "cov_eig_hadamard_perhead"
# A member that a server does not read: x R of the probe of a rotation's place (`producer.transform.probe`).
_PROBE = "kvint2eval_probe"


def read_oscar_rotations(
    path: Path, side: Side, head_dim: int, num_kv_heads: int, layers: Iterable[int]
) -> dict[int, DenseRotation]:
    """Return the rotations of some layers from an OSCAR file.

    Parameters
    ----------
    path : Path
        Written by ``torch.save``; read without running anything that it holds.
    side : {"key", "value"}
        What the file is for; an objective of the other side is refused.
    head_dim, num_kv_heads : int
        Of the model.
    layers : iterable of int
        Layers that are needed. A missing one is refused: it never becomes the identity.

    Returns
    -------
    dict of int to DenseRotation

    Raises
    ------
    FileFormatError
        If the file is no such file, its version is unknown, it is for the other side, or a layer is missing, stands
        under another id, has another shape, is not orthogonal (a matrix rounded to bfloat16 is not), or does not turn
        its probe as its writer's did.

    Notes
    -----
    In files that were written here a probe detects a transposed matrix, and that of another layer or side. In
    other files a transposed matrix goes unnoticed, and in v2, whose objective names no side, so does the wrong
    side; `producer.transform.probe.diagonal_defect` detects both, given the covariance.
    """
    content = read_torch_file(path)
    if not isinstance(content, dict) or not isinstance(content.get("layers"), dict):
        raise FileFormatError(f"{path}: found no mapping `layers`, allowed: an OSCAR rotation file, v1 or v2")
    version = content.get("format_version")
    if version not in {1, 2} or isinstance(version, bool):
        raise FileFormatError(f"{path}: format_version {version!r} is not allowed: 1 or 2")
    composition = _composition(path, content.get("objective"), side)
    return {
        layer: _layer(path, content, layer, (head_dim, num_kv_heads), side, composition) for layer in layers
    }


def side_of(path: Path) -> Side:
    """Return the side that a rotation file is for, as its objective says.

    Raises
    ------
    FileFormatError
        If it is no such file, or does not say it: files of version 2 have one objective for both.
    OSError
        If it cannot be read.
    """
    content = read_torch_file(path)
    objective = content.get("objective") if isinstance(content, dict) else None
    if isinstance(objective, str):
        for side, targets in _TARGETS.items():
            if objective.split("_")[0] in targets:
                return side
    raise FileFormatError(
        f"{path}: objective {objective!r} does not say whether the rotations are of keys or of values: "
        f"write key={path} or value={path}"
    )


def _composition(path: Path, objective: Any, side: Side) -> str:
    """Return the composition that an objective names; refuse an objective of the other side."""
    if objective == _PER_HEAD_OBJECTIVE:
        # The name contains neither side nor composition.
        return ""
    match = re.fullmatch(r"([a-z]+)_([a-z0-9_]+)", objective) if isinstance(objective, str) else None
    if match is None:
        raise FileFormatError(f"{path}: objective {objective!r} is not allowed: such as 'qqt_r_h_pbr'")
    if match[1] not in _TARGETS[side]:
        raise FileFormatError(
            f"{path}: objective {objective!r} is not allowed for {side}s: {' or '.join(_TARGETS[side])} first; is "
            "this the file of the other side?"
        )
    return match[2] if match[2] in COMPOSITIONS else ""


def _layer(
    path: Path,
    content: dict[str, Any],
    layer: int,
    sizes: tuple[int, int],
    side: Side,
    composition: str,
) -> DenseRotation:
    """Return the rotation of one layer, checked."""
    head_dim, num_kv_heads = sizes
    layers = content["layers"]
    found = [layers[key] for key in (layer, str(layer)) if key in layers]
    if len(found) != 1 or not isinstance(found[0], dict):
        held = sorted(map(str, layers))
        raise FileFormatError(
            f"{path}: layer {layer} is {'there twice' if found else 'missing'}; it holds {held}"
        )
    entry = found[0]
    where = f"{path}: layer {layer}"
    if entry.get("layer_id", layer) != layer:
        raise FileFormatError(f"{where}: it says layer_id {entry['layer_id']!r}")
    matrices = entry.get("rotation")
    is_per_head = content["format_version"] == 2
    expected = (num_kv_heads, head_dim, head_dim) if is_per_head else (head_dim, head_dim)
    if not isinstance(matrices, np.ndarray) or matrices.shape != expected or matrices.dtype.kind != "f":
        shape = matrices.shape if isinstance(matrices, np.ndarray) else type(matrices).__name__
        raise FileFormatError(
            f"{where}: rotation of shape {shape} is not allowed: {expected} in version {content['format_version']}"
        )
    eigenvalues = entry.get("eigenvalues")
    if eigenvalues is not None:
        if not isinstance(eigenvalues, np.ndarray) or eigenvalues.shape != expected[:-1]:
            raise FileFormatError(f"{where}: eigenvalues are not allowed: an array of shape {expected[:-1]}")
        eigenvalues = eigenvalues.astype(np.float64).reshape(-1, head_dim)
    try:
        rotation = DenseRotation(
            kind="oscar",
            matrices=np.array(matrices.reshape(-1, head_dim, head_dim), dtype=np.float32),
            composition=composition,
            eigenvalues=eigenvalues,
        )
    except (SpecError, NonFiniteError) as error:
        raise FileFormatError(f"{where}: {error}") from error
    _require_place(where, entry.get(_PROBE), rotation, layer, side)
    return rotation


def _require_place(where: str, probe: Any, rotation: DenseRotation, layer: int, side: Side) -> None:
    """Raise unless a rotation turns the probe of its place as its writer's did; other writers' files have no probe."""
    if probe is None:
        return
    if not isinstance(probe, np.ndarray) or probe.shape != rotation.matrices.shape[:2]:
        raise FileFormatError(
            f"{where}: {_PROBE} is not allowed: an array of shape {rotation.matrices.shape[:2]}"
        )
    fault = probe_defect(rotation.matrices, probe, layer, side)
    if fault is not None:
        raise FileFormatError(f"{where}: the {side} rotation {fault}")


def write_oscar_rotations(
    path: Path, rotations: Mapping[int, DenseRotation], side: Side, target: str
) -> None:
    """Write rotations of layers as an OSCAR file: v1 when each layer has one matrix, v2 when each KV head has one.

    Parameters
    ----------
    path : Path
        Written to a temporary name and renamed.
    rotations : mapping of int to DenseRotation
        All per layer, or all per KV head, with their composition and eigenvalues.
    side : {"key", "value"}
    target : str
        What the covariance was: `qqt` or `ktk` for keys, `sst` or `vtv` for values.

    Raises
    ------
    SpecError
        If there are no rotations, per-layer and per-head ones are mixed, or the target is not one of the side.
    ExtraMissingError
        If torch is not installed.
    """
    if len({rotation.is_per_head for rotation in rotations.values()}) != 1:
        raise SpecError("rotations are not allowed: at least one, and all per layer or all per KV head")
    if target not in _TARGETS[side]:
        raise SpecError(f"target {target!r} is not allowed for {side}s: {' or '.join(_TARGETS[side])}")
    try:
        import torch  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ExtraMissingError(
            "OSCAR files are written with torch: pip install 'kvint2eval[trace]'"
        ) from error
    is_per_head = next(iter(rotations.values())).is_per_head
    layers: dict[int, dict[str, Any]] = {}
    composition = ""
    for layer, rotation in rotations.items():
        # An objective needs a second part, and a rotation of no covariance has its kind alone.
        composition = rotation.composition or rotation.kind
        matrices = rotation.matrices if is_per_head else rotation.matrices[0]
        probe = torch.from_numpy(probe_of(rotation.matrices, layer, side))
        layers[layer] = {"layer_id": layer, "rotation": torch.from_numpy(matrices.copy()), _PROBE: probe}
        if rotation.eigenvalues is not None:
            values = rotation.eigenvalues if is_per_head else rotation.eigenvalues[0]
            layers[layer]["eigenvalues"] = torch.from_numpy(values.astype(np.float32))
    content = {
        "format_version": 2 if is_per_head else 1,
        "objective": _PER_HEAD_OBJECTIVE if is_per_head else f"{target}_{composition}",
        "source_grouping": "per_kv_head" if is_per_head else "layer",
        "layers": layers,
    }
    with temporary_beside(path) as temporary:
        torch.save(content, temporary)
