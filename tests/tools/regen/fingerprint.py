"""Fingerprints by a second implementation: plain Python, each operation rounded to binary32 by `struct`.

docs/reference/contract-v2.md, "Fingerprint", defines the golden inputs and what is hashed.
"""

import hashlib
import json
import struct
from collections.abc import Iterator

CHANNELS = 128
RATIOS = (1.0, 0.75, 0.5)


def single(value: float) -> float:
    """Nearest binary32 value. Two roundings of +, -, *, / through binary64 are one."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def golden_rows() -> Iterator[list[float]]:
    """The golden inputs: 14 rows of 128 binary32 values."""
    word = 6260
    for _ in range(8):
        row = []
        for _ in range(CHANNELS):
            word = (1664525 * word + 1013904223) % 2**32
            row.append(((word >> 8) - 2**23) / 2**21)
        yield row
    yield [0.0] * CHANNELS
    yield [-(index + 1) / 8 for index in range(CHANNELS)]
    yield [1.5] * CHANNELS
    yield [(3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 1.5)[index % 8] for index in range(CHANNELS)]
    yield [index * 2.0**-149 for index in range(CHANNELS)]
    yield [100.0 if index == 7 else (-1) ** index / 4 for index in range(CHANNELS)]


def symmetric_absmax_clip(row: list[float], ratio: float) -> tuple[list[int], float, list[float]]:
    """Codes, scale and values of one group in the dialect `symmetric-absmax-clip`."""
    scale = single(single(max(map(abs, row)) * single(ratio)) + single(1e-12))
    codes = []
    for value in row:
        level = single(single(single(value / scale) + 1) * 1.5)
        codes.append(int(min(max(round(level), 0), 3)))
    return codes, scale, [single(single(single(code / 1.5) - 1) * scale) for code in codes]


def consecutive(codes: list[int]) -> bytes:
    """Four codes a byte, the first in the lowest bits."""
    return bytes(
        sum(code << 2 * place for place, code in enumerate(codes[at : at + 4])) for at in range(0, 128, 4)
    )


def fingerprint() -> str:
    """Fingerprint of the dialect `symmetric-absmax-clip`."""
    digest = hashlib.sha256()
    for ratio in RATIOS:
        for row in golden_rows():
            codes, scale, values = symmetric_absmax_clip(row, ratio)
            digest.update(consecutive(codes) + struct.pack("<f", scale) + struct.pack("<128f", *values))
    return digest.hexdigest()


def vectors() -> bytes:
    """Golden inputs as testdata/vectors holds them: exact values as hexadecimal floats."""
    rows = [[value.hex() for value in row] for row in golden_rows()]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return f'{{"ratios": {json.dumps(RATIOS)}, "rows": [\n{lines}\n]}}\n'.encode()
