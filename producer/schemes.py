"""Schemes fitted to the layers of a model, and what they do to its keys and values."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from producer.centring import center_keys, key_mean
from producer.clips import tune_clips
from producer.errors import SpecError
from producer.quantize import get_dialect
from producer.quantize.feedback import feedback_factors
from producer.quantize.heads import quantize_heads
from producer.rotation.balanced import balanced_from_covariances, unweighted_covariances, with_ridge
from producer.rotation.dense import build_hadamard, build_identity, build_quarot
from producer.rotation.files import LayerRotations
from producer.rotation.oscar import build_oscar
from producer.rotation.weighted import attention_covariances
from producer.scheme import SCHEMES, Rotation, Scheme, get_scheme
from producer.storage import bits_per_element_of, store_quantized
from producer.windows import TokenCounts, static_split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction
    from typing import TypeAlias

    from producer.arrays import Float32Array, Float64Array
    from producer.quantize import Dialect
    from producer.rotation.base import Side
    from producer.rotation.dense import DenseTransform
    from producer.trace.data import LayerTrace

    _Covariances: TypeAlias = tuple[Float64Array, Float64Array]

__all__ = ["SCHEMES", "CacheSide", "FittedLayer", "Scheme", "fit_layer", "get_scheme"]

#: Part of the mean diagonal that is added to the covariance of error feedback, so that it has no direction for nothing.
METRIC_RIDGE = 1e-2


def _build(
    scheme: Scheme, side: "Side", layer: "LayerTrace", covariances: "_Covariances | None"
) -> "DenseTransform":
    """Return the transform of a side, of a layer's calibration where it needs one; `layer` has all its tokens."""
    head_dim = layer.k.shape[-1]
    rotation: Rotation = getattr(scheme, f"{side}_rotation")
    if rotation == "identity":
        return build_identity(head_dim)
    if rotation == "hadamard":
        return build_hadamard(head_dim)
    if rotation == "quarot":
        return build_quarot(head_dim)
    if covariances is not None and rotation == "balanced":
        return balanced_from_covariances(*covariances, _ridge(scheme, side), balance=scheme.balance)
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
    if scheme.weights == "attention" or (scheme.weights == "attention-keys" and side == "key"):
        keys = [stored(part.k) for part in calibration]
        windows = scheme.sink, scheme.recent
        covariances = attention_covariances(
            side, calibration, keys, covariances, windows, _ridge(scheme, side), scheme.shrinkage
        )
    return covariances


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


@dataclass(frozen=True, slots=True)
class CacheSide:
    """The keys, or the values, of a layer as attention sees them.

    Attributes
    ----------
    values : float32, shape (num_kv_heads, tokens, head_dim)
        In the model's own coordinates: rotated back, and with the mean key added again.
    tokens : TokenCounts
    bits_per_element : Fraction
        With metadata and windows as the dialect stores them, windows in 16 bits.
    stored_bytes : int
        Counted from the packed codes, the metadata and the windows in 16 bits.
    """

    values: "Float32Array"
    tokens: TokenCounts
    bits_per_element: "Fraction"
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class FittedLayer:
    """A scheme with the rotations and the key mean of one layer.

    Attributes
    ----------
    scheme : Scheme
    rotations : LayerRotations
    """

    scheme: Scheme
    rotations: LayerRotations

    def keys(self, k: "Float32Array") -> CacheSide:
        """Return keys as attention sees them; `k` is post-RoPE, (num_kv_heads, tokens, head_dim)."""
        mean, rotation = self.rotations.key_mean, self.rotations.key
        centred = k if mean is None else center_keys(k, mean)
        clips = self.rotations.key_clips or (self.scheme.key_clip,)
        dialect = get_dialect(self.scheme.key_dialect)
        side = self._side(centred, rotation, dialect, clips, self.rotations.key_feedback)
        if mean is None:
            return side
        middle = slice(side.tokens.sink, side.tokens.sink + side.tokens.quantized)
        values = k.copy()
        values[:, middle] = side.values[:, middle] + mean[:, None, :]
        return CacheSide(values, side.tokens, side.bits_per_element, side.stored_bytes)

    def values(self, v: "Float32Array") -> CacheSide:
        """Return values as attention sees them; `v` is (num_kv_heads, tokens, head_dim)."""
        dialect = get_dialect(self.scheme.value_dialect)
        clips = self.rotations.value_clips or (self.scheme.value_clip,)
        return self._side(v, self.rotations.value, dialect, clips, self.rotations.value_feedback)

    def quantize_all(self, k: "Float32Array", v: "Float32Array") -> "tuple[Float32Array, Float32Array]":
        """Return all keys and values as if none were in a window: what a token becomes once it has left it."""
        whole = FittedLayer(_without_windows(self.scheme), self.rotations)
        return whole.keys(k).values, whole.values(v).values

    def _side(
        self,
        x: "Float32Array",
        rotation: "DenseTransform",
        dialect: "Dialect",
        clips: tuple[float, ...],
        factors: "Float32Array | None",
    ) -> CacheSide:
        size = self.scheme.group_size or x.shape[-1]
        tokens = static_split(x.shape[1], self.scheme.sink, self.scheme.recent)
        if dialect.numerics.group_axis == "tokens":
            # What does not fill a group stays in the residual window.
            left = tokens.quantized % size
            tokens = TokenCounts(tokens.sink, tokens.quantized - left, tokens.recent + left)
        middle = slice(tokens.sink, tokens.sink + tokens.quantized)
        rows = rotation.rotate(np.ascontiguousarray(x[:, middle]))
        quantized = quantize_heads(dialect, rows, clips, size, factors)
        values = x.copy()
        values[:, middle] = rotation.undo(dialect.dequantize(quantized))
        stored = store_quantized(dialect, quantized)
        windows = 2 * (tokens.sink + tokens.recent) * x.shape[0] * x.shape[2]
        bits = bits_per_element_of(dialect.numerics, size, tokens)
        return CacheSide(values, tokens, bits, stored.code_bytes + stored.metadata_bytes + windows)


def _without_windows(scheme: Scheme) -> Scheme:
    return replace(scheme, sink=0, recent=0)


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
        tuned and cannot be (`producer.clips.tune_clips`).

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
    rotations = LayerRotations(key, value, mean, key_feedback=key_feedback, value_feedback=value_feedback)
    if scheme.clips == "tuned":
        keys, values = tune_clips(scheme, rotations, calibration)
        rotations = replace(rotations, key_clips=keys, value_clips=values)
    return FittedLayer(scheme, rotations)
