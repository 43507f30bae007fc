"""Export of fitted schemes as OSCAR rotation files, as far as that format can hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.transform.dense import DenseRotation
from producer.transform.oscar_file import write_oscar_rotations

if TYPE_CHECKING:
    from pathlib import Path

    from producer.scheme.fitted_file import Fitted
    from producer.transform.base import Side

__all__ = ["export_oscar"]

_TARGETS: dict[Side, str] = {"key": "qqt", "value": "sst"}


def export_oscar(path: Path, fitted: Fitted, side: Side) -> None:
    """Write one side of a fitted scheme as an OSCAR file: v1 with one matrix a layer, v2 with one a KV head.

    Parameters
    ----------
    path : Path
        Written to a temporary name and renamed.
    fitted : Fitted
    side : {"key", "value"}

    Raises
    ------
    SpecError
        If the side is more than a rotation: a transform that is not orthogonal needs its inverse, centred keys their
        mean, clips by head their ratios and error feedback its factors, and such a file has a place for none of them.
    ExtraMissingError
        If torch is not installed.
    """
    rotations: dict[int, DenseRotation] = {}
    for index, layer in fitted.layers.items():
        transform = getattr(layer.rotations, side)
        if not isinstance(transform, DenseRotation):
            raise SpecError(
                f"{side} transforms of kind {transform.kind} are not allowed in an OSCAR file: it holds one orthogonal "
                "matrix, R for the cache and Rᵀ for what reads it, and no inverse"
            )
        if side == "key" and layer.rotations.key_mean is not None:
            raise SpecError(
                "centred keys are not allowed in an OSCAR file: it has no place for the mean that every key loses"
            )
        if getattr(layer.rotations, f"{side}_clips") is not None:
            raise SpecError(
                f"{side} clips by head are not allowed in an OSCAR file: it has no place for them, and a server takes "
                "one ratio for all"
            )
        if getattr(layer.rotations, f"{side}_feedback") is not None:
            raise SpecError(
                f"{side} factors of error feedback are not allowed in an OSCAR file: it has no place for them, and a "
                "server rounds to the nearest level"
            )
        rotations[index] = transform
    write_oscar_rotations(path, rotations, side, _TARGETS[side])
