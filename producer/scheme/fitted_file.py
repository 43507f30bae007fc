"""Fitted schemes in one file: the transforms of every layer, and the data they were fitted to.

A transform file (`producer.transform.transform_file`) whose metadata hold, as JSON, the scheme, the fingerprints of
its dialects, the model by the digest of its weights, and the calibration sequences by digest, with their passages,
so that a later evaluation can refuse a text that the fit has seen.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

from producer.errors import FileFormatError, SpecError
from producer.quantize import get_dialect, present_name
from producer.quantize.fingerprint import fingerprint
from producer.quantize.steps import clip_defect
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import ADDED_FIELDS, Clips, RotationName, Rounding, Scheme, Weights
from producer.trace.model_info import differences, parse_model
from producer.trace.texts import SequenceInfo, parse_sequence
from producer.transform.transform_file import SIDES, read_metadata, read_transforms, write_transforms

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from producer.trace.files import ModelInfo

__all__ = ["REFINED", "Fitted", "read_fitted", "read_fitted_file", "require_model", "write_fitted"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "key_rotation": get_args(RotationName),
    "value_rotation": get_args(RotationName),
    "clips": get_args(Clips),
    "weights": get_args(Weights),
    "rounding": get_args(Rounding),
}

#: Kinds of transforms that were learned from any start.
REFINED = {"optr", "optr-general"}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A scheme fitted to a model.

    Attributes
    ----------
    scheme : Scheme
    model : ModelInfo
    layers : mapping of int to FittedLayer
        Of every layer of the model.
    calibration : tuple of SequenceInfo
        What it was fitted to.
    """

    scheme: Scheme
    model: ModelInfo
    layers: Mapping[int, FittedLayer]
    calibration: tuple[SequenceInfo, ...]


def _fingerprints(scheme: Scheme) -> dict[str, str]:
    names = sorted({scheme.key_dialect, scheme.value_dialect})
    return {name: fingerprint(get_dialect(name)) for name in names}


def write_fitted(path: Path, fitted: Fitted) -> None:
    """Write a fitted scheme, to a temporary name that is renamed.

    Raises
    ------
    SpecError
        If layers are missing, or their transforms are of different kinds.
    ExtraMissingError
        If safetensors is not installed.
    """
    if set(fitted.layers) != set(range(fitted.model.num_layers)):
        raise SpecError(
            f"layers {sorted(fitted.layers)} are not allowed: 0 … {fitted.model.num_layers - 1}, those of the model"
        )
    content = {
        "scheme": asdict(fitted.scheme),
        "fingerprints": _fingerprints(fitted.scheme),
        "model": asdict(fitted.model),
        "calibration": [asdict(sequence) for sequence in fitted.calibration],
    }
    metadata = {name: json.dumps(value, sort_keys=True) for name, value in content.items()}
    write_transforms(path, {index: layer.rotations for index, layer in fitted.layers.items()}, metadata)


def read_fitted(
    path: Path, model: ModelInfo
) -> tuple[Scheme, dict[int, FittedLayer], tuple[SequenceInfo, ...]]:
    """Return a fitted scheme for the model that will use it.

    Parameters
    ----------
    path : Path
    model : ModelInfo

    Returns
    -------
    scheme : Scheme
    layers : dict of int to FittedLayer
        Of layers 0 … num_layers - 1.
    calibration : tuple of SequenceInfo
        For `producer.trace.texts.require_disjoint`.

    Raises
    ------
    FileFormatError
        If the file is not whole and consistent (`producer.transform.transform_file.read_transforms`), was fitted to
        another model, or to quantizers that compute something else than those of the same names here.
    OSError
        If it cannot be read.
    ExtraMissingError
        If safetensors is not installed.
    """
    fitted = read_fitted_file(path)
    require_model(path, fitted.model, model)
    return fitted.scheme, dict(fitted.layers), fitted.calibration


def require_model(path: Path, held: ModelInfo, model: ModelInfo) -> None:
    """Raise `FileFormatError` unless the model that a file was fitted to is the one that will use it."""
    parts = differences(model, held)
    if parts:
        raise FileFormatError(f"{path}: fitted to {held.name!r}, not to {model.name!r}: {'; '.join(parts)}")


def read_fitted_file(path: Path) -> Fitted:
    """Return a fitted scheme with the model that its file names.

    Raises
    ------
    FileFormatError, OSError, ExtraMissingError
        As `read_fitted`, but for the model.
    """
    metadata = read_metadata(path)
    written: dict[str, Any] = _json(path, metadata, "scheme", dict)
    held: dict[str, Any] = _json(path, metadata, "fingerprints", dict)
    # A file whose dialects were given other names since is read as what it was fitted to.
    names = {name: present_name(name, digest) for name, digest in held.items() if isinstance(digest, str)}
    for member in ("key_dialect", "value_dialect"):
        if isinstance(written.get(member), str):
            written[member] = names.get(written[member], written[member])
    scheme = _read_scheme(path, written)
    found, expected = {names.get(name, name): digest for name, digest in held.items()}, _fingerprints(scheme)
    if found != expected:
        other = sorted(name for name in found | expected if found.get(name) != expected.get(name))
        raise FileFormatError(
            f"{path}: dialects {', '.join(other)} are not allowed: their fingerprints are not "
            "those of the quantizers here"
        )
    try:
        named = _json(path, metadata, "model", dict)
        if "config_sha256" not in named:
            raise FileFormatError(
                f"{path}: written by an earlier version, which names its model by the weights alone and its texts by "
                "whole lines: it cannot be told whether it was fitted to the model and the texts that are meant; "
                "fit it again"
            )
        model = parse_model(named)
        calibration = tuple(map(parse_sequence, _json(path, metadata, "calibration", list)))
    except (TypeError, KeyError, ValueError) as error:
        raise FileFormatError(
            f"{path}: the model or the calibration is not as it is written: {error!r}"
        ) from error
    sizes = (model.head_dim, model.num_kv_heads, model.num_layers)
    if not calibration or min(sizes) < 1:
        raise FileFormatError(
            f"{path}: sizes {sizes} and {len(calibration)} calibration sequences are not allowed: each at least 1"
        )
    layers = read_transforms(path, *sizes)
    fitted = {index: FittedLayer(scheme, rotations) for index, rotations in layers.items()}
    for index, layer in fitted.items():
        _require_consistent(f"{path}: layer {index}", layer)
        _require_clips(f"{path}: layer {index}", layer)
    return Fitted(scheme, model, fitted, calibration)


def _json(path: Path, metadata: dict[str, str], name: str, kind: type) -> Any:
    """Return an entry of the metadata."""
    try:
        value = json.loads(metadata[name])
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: {name} of the metadata cannot be read: {error!r}") from error
    if not isinstance(value, kind):
        raise FileFormatError(
            f"{path}: {name} of the metadata is not allowed: found {type(value).__name__}, allowed {kind.__name__}"
        )
    return value


def _read_scheme(path: Path, content: dict[str, Any]) -> Scheme:
    """Return the scheme that a file names; every field is there, and of its type."""
    content = ADDED_FIELDS | content
    types = {field.name: type(field.default) for field in fields(Scheme)} | {"name": str}
    if content.keys() != types.keys():
        raise FileFormatError(
            f"{path}: scheme with {', '.join(sorted(content.keys() ^ types.keys()))} missing or unknown is not allowed"
        )
    for name, value in content.items():
        allowed = _CHOICES.get(name)
        if type(value) is not types[name] or (allowed is not None and value not in allowed):
            raise FileFormatError(
                f"{path}: scheme: {name} {value!r} is not allowed: "
                + (types[name].__name__ if allowed is None else ", ".join(allowed))
            )
    try:
        for name in ("key_dialect", "value_dialect"):
            get_dialect(content[name])
    except SpecError as error:
        raise FileFormatError(f"{path}: scheme: {error}") from error
    return Scheme(**content)


def _require_consistent(where: str, layer: FittedLayer) -> None:
    """Raise unless a layer holds what its scheme says: means, clip ratios, and factors of error feedback."""
    scheme, rotations = layer.scheme, layer.rotations
    if (rotations.key_mean is not None) != scheme.center_keys:
        found = "no key mean" if rotations.key_mean is None else "a key mean"
        raise FileFormatError(f"{where} has {found}, but center_keys is {scheme.center_keys}")
    for side in SIDES:
        clips, kind = getattr(rotations, f"{side}_clips"), getattr(rotations, side).kind
        if (clips is not None) != (scheme.clips == "tuned"):
            found = "no clip ratios" if clips is None else "clip ratios"
            raise FileFormatError(
                f"{where} has {found} by head for {side}s, but the scheme's clips are {scheme.clips}"
            )
        factors = getattr(rotations, f"{side}_feedback")
        if (factors is not None) != (scheme.rounding == "feedback"):
            found = "no factors" if factors is None else "factors"
            raise FileFormatError(
                f"{where} has {found} of error feedback for {side}s, but the scheme's rounding is {scheme.rounding}"
            )
        named = getattr(scheme, f"{side}_rotation")
        if kind not in {named.removesuffix("-layer"), *REFINED}:
            raise FileFormatError(
                f"{where} has {side} transforms of kind {kind}, but the scheme's are {named}"
            )


def _require_clips(where: str, layer: FittedLayer) -> None:
    """Raise unless every clip ratio is one that its dialect takes: 0 switches an order statistic off, and no other."""
    for side in SIDES:
        dialect = get_dialect(getattr(layer.scheme, f"{side}_dialect"))
        own = getattr(layer.rotations, f"{side}_clips")
        clips = (getattr(layer.scheme, f"{side}_clip"),) if own is None else own
        for head, ratio in enumerate(clips):
            allowed = clip_defect(dialect.numerics.clip_kind, ratio)
            if allowed is not None:
                place = f"the {side} clip" if own is None else f"KV head {head}: the {side} clip"
                raise FileFormatError(
                    f"{where}, {place} {ratio:g} is not allowed: {allowed} under {dialect.name}; fit the scheme again"
                )
