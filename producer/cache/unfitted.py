"""Schemes that need no calibration, as layers: fixed rotations and clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.scheme.fitted_layer import FittedLayer
from producer.transform.dense import DenseTransform, build_hadamard, build_identity, build_quarot
from producer.transform.transform_file import LayerTransforms

if TYPE_CHECKING:
    from producer.scheme.registry import Scheme

__all__ = ["unfitted_layers"]

_BUILD = {"identity": build_identity, "hadamard": build_hadamard, "quarot": build_quarot}


def unfitted_layers(scheme: Scheme, layers: int, head_dim: int) -> dict[int, FittedLayer]:
    """Return a scheme for every layer of a model.

    Raises
    ------
    SpecError
        If the scheme takes something from a calibration, or its rotation does not exist for the head dimension.
    """
    needed = [name for name in ("key_rotation", "value_rotation") if getattr(scheme, name) not in _BUILD]
    needed += ["center_keys"] if scheme.center_keys else []
    needed += ["clips"] if scheme.clips == "tuned" else []
    needed += ["rounding"] if scheme.rounding == "feedback" else []
    if needed:
        raise SpecError(
            f"scheme {scheme.name!r} is not allowed without a fit: {', '.join(needed)} come from a calibration; fit it "
            "with kvint2eval-producer fit, then PackedCache.from_file"
        )

    def build(name: str) -> DenseTransform:
        return _BUILD[name](head_dim)

    rotations = LayerTransforms(build(scheme.key_rotation), build(scheme.value_rotation))
    return {index: FittedLayer(scheme, rotations) for index in range(layers)}
