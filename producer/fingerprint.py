"""The fingerprint of a dialect: the digest of what its quantizer makes of the golden inputs.

The golden inputs are fixed by docs/contract-v2.md, "Fingerprint", and stand in testdata/vectors/golden-inputs.json.
"""

import hashlib

import numpy as np

from producer.packing import pack
from producer.quantize import symmetric_absmax_clip as dialect

__all__ = ["GOLDEN_CHANNELS", "GOLDEN_RATIOS", "fingerprint", "golden_inputs"]

GOLDEN_CHANNELS = 128
GOLDEN_RATIOS = (1.0, 0.75, 0.5)

_SEED = 6260
_MULTIPLIER, _INCREMENT = 1664525, 1013904223
_RANDOM_ROWS = 8


def golden_inputs() -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
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


def fingerprint() -> str:
    """Return the fingerprint of the dialect `symmetric-absmax-clip`, by the quantizer that runs use.

    Notes
    -----
    SHA-256 over, for each ratio and each row as one group: the packed codes, the scale, and the dequantized values,
    float32 little-endian.
    """
    rows = golden_inputs()
    digest = hashlib.sha256()
    for ratio in GOLDEN_RATIOS:
        codes, scale = dialect.quantize(rows, ratio, GOLDEN_CHANNELS)
        values = dialect.dequantize(codes, scale)
        for packed, one, row in zip(pack(codes), scale.astype("<f4"), values.astype("<f4"), strict=True):
            digest.update(packed.tobytes() + one.tobytes() + row.tobytes())
    return digest.hexdigest()
