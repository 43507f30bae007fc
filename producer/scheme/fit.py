"""Fit of a scheme to a layer's calibration data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.feedback import feedback_factors
from producer.scheme.calibration import LayerCalibration
from producer.scheme.clip_tuning import tune_clips
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import SCHEMES, RotationName, Scheme, get_scheme
from producer.transform.balanced import balanced_from_covariances, with_ridge
from producer.transform.dense import build_hadamard, build_identity, build_quarot
from producer.transform.oscar import oscar_from_covariance
from producer.transform.transform_file import LayerTransforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.numerics.arrays import Float32Array
    from producer.scheme.calibration import Covariances
    from producer.trace.layer import LayerTrace
    from producer.transform.base import Side
    from producer.transform.dense import DenseTransform

__all__ = ["SCHEMES", "Scheme", "fit_layer", "get_scheme"]

#: Part of the mean diagonal that is added to the covariance of error feedback, so that it has no direction for nothing.
METRIC_RIDGE = 1e-2


def _build(
    scheme: Scheme, side: Side, calibration: LayerCalibration, covariances: Covariances | None
) -> DenseTransform:
    """Return the transform of a side, of a layer's calibration where it needs one."""
    head_dim = calibration.layers[0].k.shape[-1]
    rotation: RotationName = getattr(scheme, f"{side}_rotation")
    if rotation == "identity":
        return build_identity(head_dim)
    if rotation == "hadamard":
        return build_hadamard(head_dim)
    if rotation == "quarot":
        return build_quarot(head_dim)
    if covariances is not None and rotation == "balanced":
        return balanced_from_covariances(*covariances, _ridge(scheme, side), balance=scheme.balance)
    if rotation == "file":
        raise SpecError(f"{side} rotation 'file' is not allowed here: it is read, not fitted")
    sigma = calibration.covariance("qqt" if side == "key" else "sst")
    return oscar_from_covariance(sigma if rotation == "oscar" else sigma.mean(axis=0, keepdims=True))


def _ridge(scheme: Scheme, side: Side) -> float:
    return scheme.key_ridge if side == "key" else scheme.value_ridge


def _covariances(scheme: Scheme, side: Side, calibration: LayerCalibration) -> Covariances | None:
    """Return the covariances of what a side stores and of what reads it, if the scheme looks at them."""
    if scheme.rounding == "nearest" and getattr(scheme, f"{side}_rotation") != "balanced":
        return None
    covariances = calibration.plain(side, centred=scheme.center_keys)
    _require_spread(scheme, side, calibration.layers[0].layer_idx, covariances)
    if scheme.weights == "attention" or (scheme.weights == "attention-keys" and side == "key"):
        return calibration.weighted(
            side,
            centred=scheme.center_keys,
            windows=(scheme.sink, scheme.recent),
            ridge=_ridge(scheme, side),
            shrinkage=scheme.shrinkage,
        )
    return covariances


def _require_spread(scheme: Scheme, side: Side, layer_idx: int, covariances: Covariances) -> None:
    """Raise `SpecError` where what a side stores, or what reads it, is zero at every calibration token."""
    for sigma, what in zip(
        covariances, (f"the {side}s as they are stored", f"what reads the {side}s"), strict=True
    ):
        traces = np.trace(sigma, axis1=-2, axis2=-1)
        for head in np.flatnonzero(~(traces > 0)).tolist():
            raise SpecError(
                f"scheme {scheme.name!r}, layer {layer_idx}, KV head {head}: {what}: found zeros at every token, "
                "allowed: a covariance above 0; schemes without a balanced transform and without error "
                "feedback, such as "
                "quarot-centred-tuned, need none: --scheme names them"
            )


def _feedback(
    scheme: Scheme, transform: DenseTransform, covariances: Covariances | None
) -> Float32Array | None:
    """Return the factors of error feedback of a side: of M⁻¹ Σ_q M⁻ᵀ, the readers of what is stored as x M."""
    if covariances is None or scheme.rounding == "nearest":
        return None
    readers = with_ridge(covariances[1], METRIC_RIDGE)
    back = transform.inverses.astype(np.float64)
    metric = back @ readers @ back.swapaxes(-1, -2)
    return feedback_factors((metric + metric.swapaxes(-1, -2)) / 2)


def _fit_side(
    scheme: Scheme, side: Side, calibration: LayerCalibration
) -> tuple[DenseTransform, Float32Array | None]:
    """Return the transform of a side and its factors of error feedback."""
    covariances = _covariances(scheme, side, calibration)
    transform = _build(scheme, side, calibration, covariances)
    return transform, _feedback(scheme, transform, covariances)


def fit_layer(scheme: Scheme, calibration: LayerCalibration | Sequence[LayerTrace]) -> FittedLayer:
    """Return a scheme fitted to one layer of calibration sequences.

    Parameters
    ----------
    scheme : Scheme
    calibration : LayerCalibration, or sequence of LayerTrace
        The same layer of at least one sequence; their tokens are taken together. Several schemes share the statistics
        of one `LayerCalibration`.

    Raises
    ------
    SpecError
        If there is no sequence; if a rotation does not exist for the head dimension or the calibration; if clips are
        tuned and cannot be (`producer.scheme.clip_tuning.tune_clips`).

    Notes
    -----
    OSCAR's rotations: `qqt` for keys and `sst` for values, composed as `r_h_pbr`. Balanced transforms: the covariance
    of keys as they are stored with that of queries, and the second moment of values with W Wᵀ (E34), with Hadamard.
    """
    if not isinstance(calibration, LayerCalibration):
        calibration = LayerCalibration(calibration)
    key, key_feedback = _fit_side(scheme, "key", calibration)
    value, value_feedback = _fit_side(scheme, "value", calibration)
    mean = calibration.key_mean if scheme.center_keys else None
    rotations = LayerTransforms(key, value, mean, key_feedback=key_feedback, value_feedback=value_feedback)
    if scheme.clips == "tuned":
        keys, values = tune_clips(scheme, rotations, calibration)
        rotations = replace(rotations, key_clips=keys, value_clips=values)
    return FittedLayer(scheme, rotations)
