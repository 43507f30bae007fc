"""Schemes: a rotation of keys and of values, key centring or not, dialects with their clips, and windows."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from producer.centring import center_keys, key_mean
from producer.clips import tune_clips
from producer.errors import SpecError
from producer.quantize import get_dialect
from producer.quantize.base import Quantized
from producer.rotation.balanced import RIDGE, balanced_from_covariances, unweighted_covariances
from producer.rotation.dense import build_hadamard, build_identity, build_quarot
from producer.rotation.files import LayerRotations
from producer.rotation.oscar import build_oscar
from producer.rotation.weighted import attention_covariances
from producer.storage import bits_per_element_of, store_quantized
from producer.windows import TokenCounts, static_split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from producer.arrays import Float32Array
    from producer.quantize import Dialect
    from producer.rotation.base import Side
    from producer.rotation.dense import DenseTransform
    from producer.trace.data import LayerTrace

__all__ = ["SCHEMES", "CacheSide", "FittedLayer", "Scheme", "fit_layer", "get_scheme"]

Rotation: TypeAlias = Literal["identity", "hadamard", "quarot", "oscar", "oscar-layer", "balanced"]
Clips: TypeAlias = Literal["fixed", "tuned"]
Weights: TypeAlias = Literal["none", "attention-keys", "attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What is done to the keys and values of a cache.

    Attributes
    ----------
    name : str
    key_rotation, value_rotation : {"identity", "hadamard", "quarot", "oscar", "oscar-layer", "balanced"}
        `oscar` and `balanced` have a matrix for every KV head, `oscar-layer` one for the layer.
    center_keys : bool
        Whether the calibration's mean key is subtracted from every key.
    key_dialect, value_dialect : str
        Names in `producer.quantize.DIALECTS`.
    key_clip, value_clip : float
        In the meaning of the dialect.
    clips : {"fixed", "tuned"}
        Whether `key_clip` and `value_clip` stand for every head, or the calibration chooses a ratio for each KV head
        (`producer.clips`); the two are then what a head falls back to.
    weights : {"none", "attention-keys", "attention"}
        Whether the covariances of a balanced transform are weighted by attention (E35), of keys alone or of both sides.
    shrinkage : float
        Part of the plain covariances in weighted ones, 0 … 1.
    key_ridge, value_ridge : float
        Ridges of a balanced transform, parts of the mean diagonal.
    group_size : int
        Values that share a scale; 0 for the head dimension.
    sink, recent : int
        First and last tokens that stay unquantized.
    """

    name: str
    key_rotation: Rotation = "identity"
    value_rotation: Rotation = "identity"
    center_keys: bool = False
    key_dialect: str = "oscar-prefill"
    value_dialect: str = "oscar-prefill"
    key_clip: float = 0.96
    value_clip: float = 0.92
    clips: Clips = "fixed"
    weights: Weights = "none"
    shrinkage: float = 0.0
    key_ridge: float = RIDGE
    value_ridge: float = RIDGE
    group_size: int = 0
    sink: int = 64
    recent: int = 256


def _centred(name: str, rotation: Rotation, **changes: float | str) -> Scheme:
    """Return a scheme with one rotation for keys and values, and centred keys."""
    return Scheme(name=name, key_rotation=rotation, value_rotation=rotation, center_keys=True, **changes)  # type: ignore[arg-type]


def _tuned(name: str, rotation: Rotation, *, centred: bool, **changes: float | str) -> Scheme:
    """Return a scheme with a range clip that the calibration chooses by KV head."""
    return Scheme(
        name=name,
        key_rotation=rotation,
        value_rotation=rotation,
        center_keys=centred,
        key_dialect="affine-midpoint",
        value_dialect="affine-midpoint",
        key_clip=0.7,
        value_clip=0.7,
        clips="tuned",
        **changes,  # type: ignore[arg-type]
    )


#: Chosen on development texts, none of them an evaluation text of docs/balanced.md.
_SHRUNK: dict[str, float | str] = {
    "weights": "attention",
    "shrinkage": 0.5,
    "key_ridge": 1e-2,
    "value_ridge": 1.0,
}


_ALL = (
    Scheme(name="int2", key_clip=0.0, value_clip=0.0),
    Scheme(name="int2-clip"),
    Scheme(name="centred", center_keys=True),
    Scheme(name="quarot", key_rotation="quarot", value_rotation="quarot"),
    _centred("quarot-centred", "quarot"),
    Scheme(name="oscar-layer", key_rotation="oscar-layer", value_rotation="oscar-layer"),
    Scheme(name="oscar", key_rotation="oscar", value_rotation="oscar"),
    _centred("oscar-centred", "oscar"),
    Scheme(
        name="oscar-flush",
        key_rotation="oscar",
        value_rotation="oscar",
        key_dialect="oscar-flush",
        value_dialect="oscar-flush",
    ),
    _centred(
        "quarot-centred-lloyd-max",
        "quarot",
        key_dialect="lloyd-max",
        value_dialect="lloyd-max",
        key_clip=1.0,
        value_clip=1.0,
    ),
    _centred(
        "quarot-centred-midpoint",
        "quarot",
        key_dialect="affine-midpoint",
        value_dialect="affine-midpoint",
        key_clip=0.7,
        value_clip=0.7,
    ),
    Scheme(
        name="quarot-native",
        key_rotation="quarot",
        value_rotation="quarot",
        key_dialect="quarot-token",
        value_dialect="quarot-token",
        key_clip=1.0,
        value_clip=1.0,
    ),
    Scheme(
        name="kivi",
        key_dialect="kivi-key",
        value_dialect="kivi-value",
        key_clip=1.0,
        value_clip=1.0,
        group_size=32,
    ),
    Scheme(
        name="turboquant-3bit",
        key_rotation="hadamard",
        key_dialect="turboquant-3bit-key",
        value_dialect="turboquant-3bit-value",
        key_clip=1.0,
        value_clip=1.0,
    ),
    _tuned("int2-tuned", "identity", centred=False),
    _tuned("centred-tuned", "identity", centred=True),
    _tuned("quarot-tuned", "quarot", centred=False),
    _tuned("quarot-centred-tuned", "quarot", centred=True),
    _tuned("oscar-tuned", "oscar", centred=False),
    _tuned("oscar-centred-tuned", "oscar", centred=True),
    Scheme(name="balanced-uncentred-clip", key_rotation="balanced", value_rotation="balanced", **_SHRUNK),  # type: ignore[arg-type]
    _centred("balanced-clip", "balanced", **_SHRUNK),
    _tuned("balanced-plain", "balanced", centred=True),
    _tuned("balanced-uncentred", "balanced", centred=False, **_SHRUNK),
    _tuned("balanced", "balanced", centred=True, **_SHRUNK),
    _tuned("balanced-attention", "balanced", centred=True, weights="attention"),
    _tuned("balanced-attention-keys", "balanced", centred=True, weights="attention-keys"),
)

#: The schemes that are compared. `int2` is the baseline: per group, no rotation, no clip.
SCHEMES: dict[str, Scheme] = {scheme.name: scheme for scheme in _ALL}


def get_scheme(name: str) -> Scheme:
    """Return a scheme by its name.

    Raises
    ------
    SpecError
        If there is none of that name.
    """
    if name not in SCHEMES:
        raise SpecError(f"scheme {name!r} is not allowed: one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def _build(
    scheme: Scheme,
    side: "Side",
    layer: "LayerTrace",
    calibration: "Sequence[LayerTrace]",
    mean: "Float32Array | None",
) -> "DenseTransform":
    """Return the transform of a side, of a layer's calibration where it needs one; `layer` has all its tokens."""
    head_dim = layer.k.shape[-1]
    rotation: Rotation = scheme.key_rotation if side == "key" else scheme.value_rotation
    if rotation == "identity":
        return build_identity(head_dim)
    if rotation == "hadamard":
        return build_hadamard(head_dim)
    if rotation == "quarot":
        return build_quarot(head_dim)
    if rotation == "balanced":
        return _balance(scheme, side, layer, calibration, mean)
    target = "qqt" if side == "key" else "sst"
    return build_oscar(target, layer.q, layer.k, layer.v, is_per_head=rotation == "oscar")


def _balance(
    scheme: Scheme,
    side: "Side",
    layer: "LayerTrace",
    calibration: "Sequence[LayerTrace]",
    mean: "Float32Array | None",
) -> "DenseTransform":
    """Return the balanced transform of a side."""

    def stored(k: "Float32Array") -> "Float32Array":
        return k if mean is None else center_keys(k, mean)

    ridge = scheme.key_ridge if side == "key" else scheme.value_ridge
    covariances = unweighted_covariances(side, layer.q, stored(layer.k), layer.v, layer.w_o)
    if scheme.weights == "attention" or (scheme.weights == "attention-keys" and side == "key"):
        keys = [stored(part.k) for part in calibration]
        windows = scheme.sink, scheme.recent
        covariances = attention_covariances(
            side, calibration, keys, covariances, windows, ridge, scheme.shrinkage
        )
    return balanced_from_covariances(*covariances, ridge)


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
        side = self._side(centred, rotation, get_dialect(self.scheme.key_dialect), clips)
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
        return self._side(v, self.rotations.value, dialect, clips)

    def quantize_all(self, k: "Float32Array", v: "Float32Array") -> "tuple[Float32Array, Float32Array]":
        """Return all keys and values as if none were in a window: what a token becomes once it has left it."""
        whole = FittedLayer(_without_windows(self.scheme), self.rotations)
        return whole.keys(k).values, whole.values(v).values

    def _side(
        self, x: "Float32Array", rotation: "DenseTransform", dialect: "Dialect", clips: tuple[float, ...]
    ) -> CacheSide:
        size = self.scheme.group_size or x.shape[-1]
        tokens = static_split(x.shape[1], self.scheme.sink, self.scheme.recent)
        if dialect.numerics.group_axis == "tokens":
            # What does not fill a group stays in the residual window.
            left = tokens.quantized % size
            tokens = TokenCounts(tokens.sink, tokens.quantized - left, tokens.recent + left)
        middle = slice(tokens.sink, tokens.sink + tokens.quantized)
        quantized = _quantize(dialect, rotation.rotate(np.ascontiguousarray(x[:, middle])), clips, size)
        values = x.copy()
        values[:, middle] = rotation.undo(dialect.dequantize(quantized))
        stored = store_quantized(dialect, quantized)
        windows = 2 * (tokens.sink + tokens.recent) * x.shape[0] * x.shape[2]
        bits = bits_per_element_of(dialect.numerics, size, tokens)
        return CacheSide(values, tokens, bits, stored.code_bytes + stored.metadata_bytes + windows)


def _quantize(dialect: "Dialect", x: "Float32Array", clips: tuple[float, ...], size: int) -> Quantized:
    """Return what a dialect makes of heads, (num_kv_heads, tokens, head_dim), with one clip ratio or one a head."""
    if len(set(clips)) == 1:
        return dialect.quantize(x, clips[0], size)
    heads = [dialect.quantize(head[None], clip, size) for head, clip in zip(x, clips, strict=True)]
    return Quantized(
        np.concatenate([head.codes for head in heads]),
        tuple(np.concatenate(scalars) for scalars in zip(*(head.metadata for head in heads), strict=True)),
    )


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
    rotations = LayerRotations(
        _build(scheme, "key", layer, calibration, mean),
        _build(scheme, "value", layer, calibration, mean),
        mean,
    )
    if scheme.clips == "tuned":
        keys, values = tune_clips(scheme, rotations, calibration)
        rotations = replace(rotations, key_clips=keys, value_clips=values)
    return FittedLayer(scheme, rotations)
