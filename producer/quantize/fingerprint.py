"""Fingerprint of a quantizer dialect: the digest of its outputs on the golden inputs.

One name is used in public for several computations, so a record carries this digest beside the name. It is taken
with the quantizer that is then measured with. docs/methods/dialects.md has the definition for a second implementation.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import DegenerateGroupError, SpecError
from producer.quantize.packing import get_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect

__all__ = ["GOLDEN_CHANNELS", "GOLDEN_RATIOS", "fingerprint", "golden_inputs"]

GOLDEN_CHANNELS = 128
GOLDEN_RATIOS = (1.0, 0.75, 0.5)

_SEED = 6260
_MULTIPLIER, _INCREMENT = 1664525, 1013904223
_RANDOM_ROWS = 8

# A row as tokens and channels, by the axis of the groups, and with heads before where groups span them.
_SHAPES = {"channels": (1, -1), "tokens": (-1, 1), "heads": (2, 1, -1)}


def golden_inputs() -> Float32Array:
    """Return the golden inputs, float32, shape (14, 128).

    Notes
    -----
    Eight rows of a linear congruential generator, in [-4, 4) with steps of 2⁻²¹; then zeros, all negative, one value,
    ties between codes, subnormals, and one outlier. All are exact in float32.
    """
    words = [_SEED]
    for _ in range(_RANDOM_ROWS * GOLDEN_CHANNELS):
        words.append((_MULTIPLIER * words[-1] + _INCREMENT) % 2**32)
    steps = (np.array(words[1:], dtype=np.int64) >> 8) - 2**23
    channel = np.arange(GOLDEN_CHANNELS, dtype=np.float64)
    ties = np.array([3, 2, 1, 0, -1, -2, -3, 1.5])
    outlier = np.where(channel % 2, -0.25, 0.25)
    outlier[7] = 100.0
    edges = [0 * channel, -(channel + 1) / 8, 0 * channel + 1.5, np.tile(ties, GOLDEN_CHANNELS // 8)]
    edges += [channel * 2.0**-149, outlier]
    rows = np.concatenate([(steps / 2**21).reshape(_RANDOM_ROWS, GOLDEN_CHANNELS), np.array(edges)])
    return rows.astype(np.float32)


def fingerprint(*dialects: Dialect) -> str:
    """Return the fingerprint of a dialect, 64 hexadecimal digits.

    Parameters
    ----------
    *dialects : Dialect
        The objects that are used for the measurement: one, or that of keys and then that of values where one
        scheme groups them along different axes, as KIVI does.

    Notes
    -----
    SHA-256 over, for each ratio and each row as one group: the packed codes in the dialect's layout, its stored
    scalars in their order and the dequantized values, both as little-endian float32, a zero as +0. Where the dialect
    refuses a row, the ASCII text ``refused: SpecError`` or ``refused: DegenerateGroupError`` and a line feed stand
    in their place. A dialect whose groups run along tokens takes a row as the tokens of one channel, and the ASCII
    text ``groups along tokens`` and a line feed stand before all else: a row cannot tell the two axes apart. One whose
    groups span the heads takes a row as a token of two heads of 64 channels, and ``groups along heads`` and a line feed
    stand before. Of two dialects the second follows the first.
    """
    digest = hashlib.sha256()
    for dialect in dialects:
        if dialect.numerics.group_axis != "channels":
            digest.update(f"groups along {dialect.numerics.group_axis}\n".encode())
        for ratio in GOLDEN_RATIOS:
            for row in golden_inputs():
                for part in _results(dialect, row, ratio):
                    digest.update(part)
    return digest.hexdigest()


def _results(dialect: Dialect, row: Float32Array, clip_ratio: float) -> Iterator[bytes]:
    """Give what the digest takes in of one row."""
    x = row.reshape(_SHAPES[dialect.numerics.group_axis])
    try:
        quantized = dialect.quantize(x, clip_ratio, row.size)
    except DegenerateGroupError:
        yield b"refused: DegenerateGroupError\n"
        return
    except SpecError:
        yield b"refused: SpecError\n"
        return
    yield get_layout(dialect.numerics.packing).pack(quantized.codes.reshape(-1)).tobytes()
    for values in (*quantized.metadata, dialect.dequantize(quantized)):
        # -0 + 0 is +0: which of the two zeros a subtraction gives is no property of a dialect.
        yield (values + np.float32(0)).astype("<f4").tobytes()
