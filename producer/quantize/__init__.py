"""Quantizer dialects: the registry.

To add one: a module with a class that follows `producer.quantize.base.Dialect`, and a line in `DIALECTS`
(docs/contributing.md).
"""

from producer.errors import SpecError
from producer.quantize import symmetric_absmax_clip
from producer.quantize.base import Dialect, Numerics, Quantized
from producer.quantize.kivi import Kivi
from producer.quantize.lloyd_max import LloydMax, OscarUniformLloyd
from producer.quantize.midpoint import Midpoint
from producer.quantize.oscar import Oscar
from producer.quantize.quarot import QuarotGroup, QuarotToken
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
    "symmetric_absmax_clip",
]

_ALL: tuple[Dialect, ...] = (
    SymmetricAbsmaxClip(),
    Oscar(name="oscar-prefill"),
    Oscar(name="oscar-prefill-bfloat16", metadata_dtype="bfloat16"),
    Oscar(name="oscar-flush", threshold="binary-search"),
    OscarUniformLloyd(),
    LloydMax(),
    QuarotToken(),
    QuarotGroup(),
    RotateKV(),
    Kivi(name="kivi-key", group_axis="tokens"),
    Kivi(name="kivi-value", group_axis="channels"),
    TurboQuantKey(),
    TurboQuantValue(),
    Midpoint(name="affine-midpoint", zero_point="float"),
    Midpoint(name="oscar-transformers", zero_point="integer", metadata_dtype="float16"),
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}

#: One name for two dialects that differ in the group axis alone: of keys, of values.
PAIRS: dict[str, tuple[str, str]] = {"kivi": ("kivi-key", "kivi-value")}


def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name.

    Raises
    ------
    SpecError
        If there is none of that name.
    """
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
