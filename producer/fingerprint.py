"""The fingerprint of a quantizer dialect: a digest of what it makes of fixed golden inputs.

One name is used in public for several computations, so a record carries this digest beside the name. It is taken
with the quantizer that is then measured with. docs/dialects.md has the definition for a second implementation.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import DegenerateGroupError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer.arrays import Float32Array
    from producer.quantize.base import Dialect

__all__ = ["GOLDEN_CLIPS", "GOLDEN_GROUP_SIZES", "fingerprint", "golden_inputs"]

#: Group sizes and clip ratios with which every golden input is quantized, in this order.
GOLDEN_GROUP_SIZES = (32, 128)
GOLDEN_CLIPS = (1.0, 0.92, 0.75)

_CHANNELS = 128
_TOKENS = 32
_MASK = 0xFFFF_FFFF


def _hashed(count: int, start: int) -> "Float32Array":
    """Return whole numbers of about normal shape, float32: sums of four bytes of hashed indices, less 510."""
    values = np.empty(count, dtype=np.float32)
    for index in range(count):
        word = ((start + index) * 2654435761) & _MASK
        word ^= word >> 15
        word = (word * 2246822519) & _MASK
        word ^= word >> 13
        values[index] = sum(word.to_bytes(4, "little")) - 510
    return values


def golden_inputs() -> "Iterator[tuple[str, Float32Array]]":
    """Give the golden inputs in their order: name, and float32 of shape (32, 128).

    All are made of whole numbers and powers of two, so that nothing but a rounding to float32 can differ: values of
    about normal shape; with an offset; with one outlier a row; all negative; ties; few channels large; subnormals;
    two neighbouring numbers; one value; zeros.
    """
    normal = _hashed(_TOKENS * _CHANNELS, 1).reshape(_TOKENS, _CHANNELS) / np.float32(256)
    yield "normal", normal
    yield "offset", normal + np.float32(16)
    outlier = normal.copy()
    outlier[np.arange(_TOKENS), np.arange(_TOKENS) * 5 % _CHANNELS] = 64
    yield "outlier", outlier
    yield "negative", -np.abs(normal) - np.float32(0.125)
    quarters = np.arange(_TOKENS * _CHANNELS, dtype=np.float32).reshape(_TOKENS, _CHANNELS)
    yield "ties", (quarters * 5 % 13) / np.float32(4)
    channels = normal.copy()
    channels[:, 7::32] *= np.float32(32)
    yield "channels", channels
    yield "subnormal", normal * np.float32(2.0**-140)
    pair = np.full((_TOKENS, _CHANNELS), 0.1375, dtype=np.float32)
    pair[:, 1::2] = np.nextafter(np.float32(0.1375), np.float32(1))
    yield "neighbours", pair
    yield "constant", np.full((_TOKENS, _CHANNELS), -3, dtype=np.float32)
    yield "zeros", np.zeros((_TOKENS, _CHANNELS), dtype=np.float32)


def fingerprint(dialect: "Dialect") -> str:
    """Return the fingerprint of a dialect, 64 hexadecimal digits.

    Parameters
    ----------
    dialect : Dialect
        The object that is used for the measurement.

    Notes
    -----
    SHA-256 over, for every input, group size and clip ratio in their order: a line ``name group_size clip_ratio``
    in ASCII, ended by LF; then the codes as bytes in C order, every metadata array as little-endian float32 in
    stored order, and the dequantized values as little-endian float32. Where the dialect refuses, the line
    ``refused: SpecError`` or ``refused: DegenerateGroupError`` stands in their place. A zero is written as +0.
    """
    digest = hashlib.sha256()
    for name, x in golden_inputs():
        for group_size in GOLDEN_GROUP_SIZES:
            for clip_ratio in GOLDEN_CLIPS:
                digest.update(f"{name} {group_size} {clip_ratio}\n".encode())
                for part in _results(dialect, x, clip_ratio, group_size):
                    digest.update(part)
    return digest.hexdigest()


def _results(dialect: "Dialect", x: "Float32Array", clip_ratio: float, group_size: int) -> "Iterator[bytes]":
    """Give what the digest takes in of one input."""
    try:
        quantized = dialect.quantize(x, clip_ratio, group_size)
    except DegenerateGroupError:
        yield b"refused: DegenerateGroupError\n"
        return
    except SpecError:
        yield b"refused: SpecError\n"
        return
    yield quantized.codes.tobytes()
    for values in (*quantized.metadata, dialect.dequantize(quantized)):
        # -0 + 0 is +0: which of the two zeros a subtraction gives is no property of a dialect.
        yield (values + np.float32(0)).astype("<f4").tobytes()
