"""Quantizer dialects: the registry.

To add one: a module with a class that follows `producer.quantize.base.Dialect`, and a line in `DIALECTS`
(docs/contributing.md).
"""

from __future__ import annotations

from producer.errors import SpecError
from producer.quantize import symmetric_absmax_clip
from producer.quantize.base import Dialect, Numerics, Quantized
from producer.quantize.float8 import Float8
from producer.quantize.kivi import Kivi
from producer.quantize.lloyd_max import LloydMax, OscarUniformLloyd
from producer.quantize.midpoint import Midpoint
from producer.quantize.oscar import Oscar
from producer.quantize.quarot import QuarotGroup, QuarotHead, QuarotToken
from producer.quantize.rotatekv import RotateKV
from producer.quantize.symmetric_absmax_clip import SymmetricAbsmaxClip
from producer.quantize.turboquant import TurboQuantKey, TurboQuantValue

__all__ = [
    "DIALECTS",
    "PAIRS",
    "Dialect",
    "Numerics",
    "Quantized",
    "get_dialect",
    "get_pair",
    "lasting_name",
    "present_name",
    "symmetric_absmax_clip",
]

_ALL: tuple[Dialect, ...] = (
    SymmetricAbsmaxClip(),
    Oscar(name="oscar-prefill"),
    Oscar(name="oscar-prefill-bfloat16", metadata_dtype="bfloat16"),
    Oscar(name="oscar-flush", threshold="binary-search"),
    OscarUniformLloyd(),
    LloydMax(),
    QuarotHead(),
    QuarotToken(),
    QuarotGroup(),
    RotateKV(),
    Kivi(name="kivi-key", group_axis="tokens"),
    Kivi(name="kivi-value", group_axis="channels"),
    Kivi(name="kivi-float32-key", group_axis="tokens", encoding_dtype="float32"),
    Kivi(name="kivi-float32-value", group_axis="channels", encoding_dtype="float32"),
    TurboQuantKey(),
    TurboQuantValue(),
    Midpoint(name="affine-midpoint", zero_point="float"),
    Midpoint(name="oscar-transformers", zero_point="integer", metadata_dtype="float16"),
    Midpoint(name="affine-midpoint-3bit", zero_point="float", bits=3),
    Midpoint(name="affine-midpoint-4bit", zero_point="float", bits=4),
    Midpoint(name="affine-midpoint-8bit", zero_point="float", bits=8),
    QuarotHead(name="quarot-head-wise-4bit", bits=4),
    QuarotGroup(name="quarot-group-4bit", bits=4),
    Float8(name="float8-e4m3", form="e4m3"),
    Float8(name="float8-e5m2", form="e5m2"),
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}

#: One name for two dialects that differ in the group axis alone: of keys, of values.
PAIRS: dict[str, tuple[str, str]] = {
    "kivi": ("kivi-key", "kivi-value"),
    "kivi-float32": ("kivi-float32-key", "kivi-float32-value"),
}

#: What a name meant in files written before it was given up or given to another computation, by name and fingerprint.
_EARLIER: dict[tuple[str, str], str] = {
    ("kivi-key", "b0b93e003e8d1ee0e6198d5f6a494bdd05bdd179e0e99e76f5b71d78325876f2"): "kivi-float32-key",
    # The same before a fingerprint told the axis of the groups.
    ("kivi-key", "c4c1491ee4cebb2a66ab8ec10ed93c77a42979a5d097e7610e10a3f635cc36d2"): "kivi-float32-key",
    ("kivi-value", "c4c1491ee4cebb2a66ab8ec10ed93c77a42979a5d097e7610e10a3f635cc36d2"): "kivi-float32-value",
    ("kivi", "0d4f44b4e25183f037b2b6fe754c0262790b36190f01b2ec6c092b3e5d7f332d"): "kivi-float32",
    ("quarot-token", "8e3c4fcaa38794736247f302b714b5a1b54d341661de52d48f9c874687d3580c"): "quarot-head-wise",
}
#: Names in digests where they are not those of today.
_LASTING = {
    "kivi-key": "kivi-float16-key",
    "kivi-value": "kivi-float16-value",
    "kivi-float32-key": "kivi-key",
    "kivi-float32-value": "kivi-value",
    "quarot-head-wise": "quarot-token",
}
#: Names that were given up, and why, for whoever asks for them.
_GIVEN_UP = {
    "quarot-token": "it was QuaRot's head-wise setting, now `quarot-head-wise`; `quarot-token-wise` spans all heads"
}


def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name.

    Raises
    ------
    SpecError
        If there is none of that name.
    """
    if name in _GIVEN_UP:
        raise SpecError(f"dialect {name!r} is not allowed: {_GIVEN_UP[name]}")
    if name not in DIALECTS:
        raise SpecError(f"dialect {name!r} is not allowed: one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def get_pair(name: str) -> tuple[Dialect, Dialect]:
    """Return the dialects of keys and of values by one name, that of a dialect or of a pair.

    Raises
    ------
    SpecError
        If there is none of that name.
    """
    key, value = PAIRS.get(name, (name, name))
    return get_dialect(key), get_dialect(value)


def lasting_name(name: str) -> str:
    """Return a name that has meant one computation ever since digests were taken of it.

    A dialect that was renamed keeps its first name in digests, so that runs of earlier states are found again; one that
    was given the name of another has a new one, so that the other's are not.
    """
    return _LASTING.get(name, name)


def present_name(name: str, fingerprint: str) -> str:
    """Return what a dialect that a file names is called here, told by its fingerprint.

    Parameters
    ----------
    name : str
        As the file has it.
    fingerprint : str
        That stands beside it.
    """
    return _EARLIER.get((name, fingerprint), name)
