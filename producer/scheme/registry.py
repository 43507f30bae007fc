"""The schemes by name: rotations, key centring, dialects with their clips, rounding and windows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from producer.errors import SpecError
from producer.transform.balanced import RIDGE

__all__ = [
    "ADDED_FIELDS",
    "FITTED_ROTATIONS",
    "SCHEMES",
    "Clips",
    "RotationName",
    "Rounding",
    "Scheme",
    "Weights",
    "get_scheme",
]

RotationName: TypeAlias = Literal[
    "identity", "hadamard", "quarot", "oscar", "oscar-layer", "balanced", "file"
]
Clips: TypeAlias = Literal["fixed", "tuned"]
Weights: TypeAlias = Literal["none", "attention-keys", "attention"]
Rounding: TypeAlias = Literal["nearest", "feedback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What is done to the keys and values of a cache.

    Attributes
    ----------
    name : str
    key_rotation, value_rotation : {"identity", "hadamard", "quarot", "oscar", "oscar-layer", "balanced", "file"}
        `oscar` and `balanced` have a matrix for every KV head, `oscar-layer` one for the layer; `file` is read from
        somebody else's file.
    center_keys : bool
        Whether the calibration's mean key is subtracted from every key.
    key_dialect, value_dialect : str
        Names in `producer.quantize.DIALECTS`.
    key_clip, value_clip : float
        In the meaning of the dialect.
    clips : {"fixed", "tuned"}
        Whether `key_clip` and `value_clip` stand for every head, or the calibration chooses a ratio for each KV head
        (`producer.scheme.clip_tuning`); the two are then what a head falls back to.
    weights : {"none", "attention-keys", "attention"}
        Whether the covariances of a balanced transform and of error feedback are weighted by attention (E35), of keys
        alone or of both sides.
    shrinkage : float
        Part of the plain covariances in weighted ones, 0 … 1.
    key_ridge, value_ridge : float
        Ridges of a balanced transform, parts of the mean diagonal.
    balance : float
        Place of a balanced transform between whitening what is stored, 0, and whitening what reads it, 1; at ½ it
        balances the two (E39).
    rounding : {"nearest", "feedback"}
        Whether a channel is rounded to its nearest level, or after the errors of the channels before it (E38).
    group_size : int
        Values that share a scale; 0 for the head dimension, and for all heads where a dialect groups them together.
    value_group_size : int
        The same for values; 0 where it is that of keys.
    sink, recent : int
        First and last tokens that stay unquantized.
    """

    name: str
    key_rotation: RotationName = "identity"
    value_rotation: RotationName = "identity"
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
    balance: float = 0.5
    rounding: Rounding = "nearest"
    group_size: int = 0
    sink: int = 64
    recent: int = 256
    value_group_size: int = 0

    def group_of(self, side: str) -> int:
        """Return the group size of keys or of values as it is written: 0 stands for the whole head."""
        return self.value_group_size or self.group_size if side == "value" else self.group_size


#: Rotations that are made here, from a calibration or from nothing.
FITTED_ROTATIONS: tuple[str, ...] = tuple(name for name in get_args(RotationName) if name != "file")

#: Fields that came after files and states had been written, with their defaults: what has not got them means these.
ADDED_FIELDS = {
    field.name: field.default
    for field in fields(Scheme)
    if field.name in {"balance", "rounding", "value_group_size"}
}


def _centred(name: str, rotation: RotationName, **changes: float | str) -> Scheme:
    """Return a scheme with one rotation for keys and values, and centred keys."""
    return Scheme(name=name, key_rotation=rotation, value_rotation=rotation, center_keys=True, **changes)  # type: ignore[arg-type]


def _tuned(name: str, rotation: RotationName, *, centred: bool, **changes: float | str) -> Scheme:
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


#: Chosen on development texts, none of them an evaluation text of docs/results/balanced.md.
def _unclipped(name: str, dialect: str, rotation: RotationName = "identity", **changes: bool | str) -> Scheme:
    """Return a scheme of a dialect with its whole range: a reference with more than two bits."""
    both = {"key_dialect": dialect, "value_dialect": dialect} | changes
    return Scheme(
        name=name,
        key_rotation=rotation,
        value_rotation=rotation,
        key_clip=1.0,
        value_clip=1.0,
        **both,  # type: ignore[arg-type]
    )


#: Chosen on development texts, none of them an evaluation text of docs/results/balanced.md.
_SHRUNK: dict[str, float | str] = {
    "weights": "attention",
    "shrinkage": 0.5,
    "key_ridge": 1e-2,
    "value_ridge": 1.0,
}

#: The same metric of error feedback for every rotation.
_FEEDBACK: dict[str, float | str] = {**_SHRUNK, "rounding": "feedback"}


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
        key_dialect="quarot-head-wise",
        value_dialect="quarot-group",
        key_clip=1.0,
        value_clip=1.0,
    ),
    Scheme(
        name="quarot-native-token-wise",
        key_rotation="quarot",
        value_rotation="quarot",
        key_dialect="quarot-token-wise",
        value_dialect="quarot-token-wise",
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
        name="kivi-float32",
        key_dialect="kivi-float32-key",
        value_dialect="kivi-float32-value",
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
    _tuned("quarot-feedback", "quarot", centred=True, **_FEEDBACK),
    _tuned("oscar-feedback", "oscar", centred=True, **_FEEDBACK),
    _tuned("balanced-feedback", "balanced", centred=True, **_SHRUNK, rounding="feedback", balance=0.3),
    _unclipped("int3", "affine-midpoint-3bit"),
    _unclipped("int4", "affine-midpoint-4bit"),
    _unclipped("int8", "affine-midpoint-8bit"),
    _unclipped("float8-e4m3", "float8-e4m3"),
    _unclipped("float8-e5m2", "float8-e5m2"),
    _unclipped("quarot-centred-3bit", "affine-midpoint-3bit", "quarot", center_keys=True),
    _unclipped("quarot-centred-4bit", "affine-midpoint-4bit", "quarot", center_keys=True),
    _unclipped("quarot-native-4bit", "quarot-head-wise-4bit", "quarot", value_dialect="quarot-group-4bit"),
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
