"""Schemes fitted to the layers of a model, and what they do to its keys and values."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.quantize.feedback import feedback_factors
from producer.scheme.clip_tuning import tune_clips
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import SCHEMES, RotationName, Scheme, get_scheme
from producer.transform.attention_weighted import attention_covariances
from producer.transform.balanced import balanced_from_covariances, unweighted_covariances, with_ridge
from producer.transform.centring import center_keys, key_mean
from producer.transform.dense import build_hadamard, build_identity, build_quarot
from producer.transform.oscar import build_oscar
from producer.transform.transform_file import LayerTransforms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.trace.layer import LayerTrace
    from producer.transform.base import Side
    from producer.transform.dense import DenseTransform

    _Covariances: TypeAlias = tuple[Float64Array, Float64Array]

__all__ = ["SCHEMES", "Scheme", "fit_layer", "get_scheme"]

#: Part of the mean diagonal that is added to the covariance of error feedback, so that it has no direction for nothing.
METRIC_RIDGE = 1e-2


def _build(
    scheme: Scheme, side: "Side", layer: "LayerTrace", covariances: "_Covariances | None"
) -> "DenseTransform":
    """Return the transform of a side, of a layer's calibration where it needs one; `layer` has all its tokens."""
    head_dim = layer.k.shape[-1]
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
    target = "qqt" if side == "key" else "sst"
    return build_oscar(target, layer.q, layer.k, layer.v, is_per_head=rotation == "oscar")


def _ridge(scheme: Scheme, side: "Side") -> float:
    return scheme.key_ridge if side == "key" else scheme.value_ridge


def _covariances(
    scheme: Scheme,
    side: "Side",
    layer: "LayerTrace",
    calibration: "Sequence[LayerTrace]",
    mean: "Float32Array | None",
) -> "_Covariances | None":
    """Return the covariances of what a side stores and of what reads it, if the scheme looks at them."""

    def stored(k: "Float32Array") -> "Float32Array":
        return k if mean is None else center_keys(k, mean)

    if scheme.rounding == "nearest" and getattr(scheme, f"{side}_rotation") != "balanced":
        return None
    covariances = unweighted_covariances(side, layer.q, stored(layer.k), layer.v, layer.w_o)
    _require_spread(scheme, side, layer.layer_idx, covariances)
    if scheme.weights == "attention" or (scheme.weights == "attention-keys" and side == "key"):
        keys = [stored(part.k) for part in calibration]
        windows = scheme.sink, scheme.recent
        covariances = attention_covariances(
            side, calibration, keys, covariances, windows, _ridge(scheme, side), scheme.shrinkage
        )
    return covariances


def _require_spread(scheme: Scheme, side: "Side", layer_idx: int, covariances: "_Covariances") -> None:
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
    scheme: Scheme, transform: "DenseTransform", covariances: "_Covariances | None"
) -> "Float32Array | None":
    """Return the factors of error feedback of a side: of M⁻¹ Σ_q M⁻ᵀ, the readers of what is stored as x M."""
    if covariances is None or scheme.rounding == "nearest":
        return None
    readers = with_ridge(covariances[1], METRIC_RIDGE)
    back = transform.inverses.astype(np.float64)
    metric = back @ readers @ back.swapaxes(-1, -2)
    return feedback_factors((metric + metric.swapaxes(-1, -2)) / 2)


def _fit_side(
    scheme: Scheme,
    side: "Side",
    layer: "LayerTrace",
    calibration: "Sequence[LayerTrace]",
    mean: "Float32Array | None",
) -> "tuple[DenseTransform, Float32Array | None]":
    """Return the transform of a side and its factors of error feedback."""
    covariances = _covariances(scheme, side, layer, calibration, mean)
    transform = _build(scheme, side, layer, covariances)
    return transform, _feedback(scheme, transform, covariances)


def _concatenated(layers: "Sequence[LayerTrace]", name: str) -> "Float32Array":
    """Return an array of all sequences, one after the other along the tokens."""
    return np.concatenate([getattr(layer, name) for layer in layers], axis=1)


def fit_layer(scheme: Scheme, calibration: "Sequence[LayerTrace]") -> FittedLayer:
    """Return a scheme fitted to one layer of calibration sequences.

    Parameters
    ----------
    scheme : Scheme
    calibration : sequence of LayerTrace
        The same layer of at least one sequence; their tokens are taken together.

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
    if not calibration:
        raise SpecError("no calibration sequence: at least one is needed")
    first = calibration[0]
    layer = first
    if len(calibration) > 1:
        joined = {name: _concatenated(calibration, name) for name in ("q", "k", "v")}
        layer = type(first)(layer_idx=first.layer_idx, w_o=first.w_o, scaling=first.scaling, **joined)
    mean = key_mean(layer.k) if scheme.center_keys else None
    key, key_feedback = _fit_side(scheme, "key", layer, calibration, mean)
    value, value_feedback = _fit_side(scheme, "value", layer, calibration, mean)
    rotations = LayerTransforms(key, value, mean, key_feedback=key_feedback, value_feedback=value_feedback)
    if scheme.clips == "tuned":
        keys, values = tune_clips(scheme, rotations, calibration)
        rotations = replace(rotations, key_clips=keys, value_clips=values)
    return FittedLayer(scheme, rotations)
