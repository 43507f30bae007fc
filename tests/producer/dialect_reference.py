"""A second implementation of every dialect: one group at a time, written from the description of the scheme.

It shares no line with the producer. Each function takes one row (or one column of a token block) and gives codes,
stored scalars and values; a refusal is an exception of the name that the fingerprint writes.
"""

import hashlib
import math
import struct
from itertools import pairwise

import numpy as np

F = np.float32


class DegenerateGroupError(Exception):
    pass


class SpecError(Exception):
    pass


def bfloat16(value):
    """Nearest float32 with eight bits of precision, ties to even: by spacing, not by bits."""
    value = float(value)
    if value == 0:
        return F(0)
    spacing = 2.0 ** (max(math.frexp(value)[1], -125) - 8)
    return F(round(value / spacing) * spacing)


def stored(values, dtype):
    convert = {"float32": F, "float16": lambda v: F(np.float16(v)), "bfloat16": bfloat16}[dtype]
    values = [convert(value) for value in values]
    if not all(map(math.isfinite, values)):
        raise DegenerateGroupError
    return values


def positive(value):
    if not (value > 0 and math.isfinite(value)):
        raise DegenerateGroupError
    return value


def hold(codes, top):
    return np.array([min(max(int(code), 0), top) for code in codes], dtype=np.uint8)


def half_up(numbers):
    return [math.trunc(float(F(number) + F(0.5))) for number in numbers]


def half_even(numbers):
    return [round(float(number)) for number in numbers]


def sort_threshold(row, ratio):
    ordered = sorted(abs(value) for value in row)
    return ordered[min(math.floor(ratio * len(row)), len(row) - 1)]


def search_threshold(row, ratio):
    target = len(row) - min(math.floor(ratio * len(row)), len(row) - 1)
    low, high = F(0), max(abs(row))
    for _ in range(round(math.log2(len(row)))):
        middle = F((float(low) + float(high)) / 2)
        if sum(abs(row) > middle) > target:
            low = middle
        else:
            high = middle
    return high


def oscar(threshold, dtype="float32"):
    def quantize(row, ratio, size):
        tau = threshold(row, ratio)
        row = np.minimum(np.maximum(row, -tau), tau)
        for start in range(0, len(row), size):
            group = row[start : start + size]
            scale = max(max(group) - min(group), F(1e-8)) / F(3)
            zero = -min(group) / scale
            codes = hold(half_up(group / scale + zero), 3)
            scale, zero = stored([scale, zero], dtype)
            positive(scale)
            yield codes, (scale, zero), (codes.astype(F) - zero) * scale

    return quantize


def moments(row):
    row = [float(value) for value in row]
    mean = math.fsum(row) / len(row)
    return F(mean), F(math.sqrt(math.fsum((value - mean) ** 2 for value in row) / len(row) + 1e-8))


def levels_of(outer_half):
    return [-level for level in reversed(outer_half)] + list(outer_half)


def by_thresholds(z, thresholds):
    return np.array([sum(F(t) <= value for t in thresholds) for value in z], dtype=np.uint8)


def lloyd_max(row, ratio, size):
    if ratio != 1:
        raise SpecError
    levels = levels_of([0.4527800346364921, 1.510417608499096])
    thresholds = [(a + b) / 2 for a, b in pairwise(levels)]
    for start in range(0, len(row), size):
        group = row[start : start + size]
        mean, std = moments(group)
        codes = by_thresholds((group - mean) / std, thresholds)
        yield codes, (std, mean), mean + std * np.array(levels, dtype=F)[codes]


def oscar_uniform_lloyd(row, ratio, size):
    if size != len(row):
        raise SpecError
    tau = sort_threshold(row, ratio)
    row = np.minimum(np.maximum(row, -tau), tau)
    mean, std = moments(row)
    codes = by_thresholds((row - mean) / std, [-0.9810652732849121, 0, 0.9810652732849121])
    scale = F(2 * 1.5095585584640503 / 3 * 1.16) * std
    zero = F(1.5) - mean / scale
    yield codes, (scale, zero), (codes.astype(F) - zero) * scale


def integer_zero(group, low, high, steps=3, top=3):
    with np.errstate(over="ignore", under="ignore"):
        scale = positive((high - low) / F(steps))
        zero = F(half_even([-low / scale])[0])
        codes = hold([round(float(v)) + int(zero) for v in group / scale], top)
    return codes, (scale, zero), (codes.astype(F) - zero) * scale


def quarot_with_zero(bits):
    """One range a row; of the token-wise setting a row is all heads of a token, one after the other."""

    def quantize(row, ratio, size):
        if size != len(row):
            raise SpecError
        low, high = min(*row, F(0)) * F(ratio), max(*row, F(0)) * F(ratio)
        ends = (low, high) if low or high else (F(-1), F(1))
        yield integer_zero(row, *ends, 2**bits - 1, 2**bits - 1)

    return quantize


def quarot_group(bits):
    def quantize(row, ratio, size):
        for start in range(0, len(row), size):
            group = row[start : start + size]
            low, high = min(group) * F(ratio), max(group) * F(ratio)
            ends = (low, high) if low or high else (F(-1), F(1))
            yield integer_zero(group, *ends, 2**bits - 1, 2**bits - 1)

    return quantize


def rotatekv(row, ratio, size):
    for start in range(0, len(row), size):
        group = row[start : start + size]
        yield integer_zero(group, min(group) * F(ratio), max(group) * F(ratio), 2**2 - 1)


def kivi(row, ratio, size):
    """In half precision throughout, as PyTorch computes on a float16 tensor; read in single precision."""
    if ratio != 1 or len(row) % size:
        raise SpecError
    half, three = np.float16, np.float16(3)
    for start in range(0, len(row), size):
        with np.errstate(all="ignore"):
            group = [half(value) for value in row[start : start + size]]
            low = min(group)
            scale = half(half(max(group) - low) / three)
            above = [half(value - low) for value in group]
            quotients = [half(value / scale) for value in above]
        if not (math.isfinite(scale) and math.isfinite(low)):
            raise DegenerateGroupError
        # An integer of NaN is 0 on a GPU; of infinity, the top code to which it is held.
        codes = [0 if math.isnan(q) else round(float(min(max(q, half(0)), three))) for q in quotients]
        codes = np.array(codes, dtype=np.uint8)
        yield codes, (F(scale), F(low)), codes.astype(F) * F(scale) + F(low)


def kivi_float32(row, ratio, size):
    if ratio != 1 or len(row) % size:
        raise SpecError
    for start in range(0, len(row), size):
        group = row[start : start + size]
        scale, low = stored([(max(group) - min(group)) / F(3), min(group)], "float16")
        codes = hold(half_even((group - low) / scale) if scale else [0] * size, 3)
        yield codes, (scale, low), codes.astype(F) * scale + low


def turboquant_key(row, ratio, size):
    if ratio != 1 or size != len(row):
        raise SpecError
    norm = F(math.sqrt(math.fsum(float(value) ** 2 for value in row)))
    half = [0.24509417894422197, 0.7560052812058772, 1.3439092785050013, 2.151945704536986]
    levels = levels_of(half)
    root = F(math.sqrt(len(row)))
    thresholds = [F((a + b) / 2) / root for a, b in pairwise(levels)]
    codes = by_thresholds(row / (norm + F(1e-8)), thresholds)
    (kept,) = stored([norm], "float16")
    yield codes, (kept,), (np.array(levels, dtype=F) / root)[codes] * kept


def turboquant_value(row, ratio, size):
    if ratio != 1:
        raise SpecError
    for start in range(0, len(row), size):
        group = row[start : start + size]
        scale = max((max(group) - min(group)) / F(7), F(1e-8))
        codes = hold(half_up((group - min(group)) / scale), 7)
        scale, low = stored([scale, min(group)], "float16")
        yield codes, (scale, low), codes.astype(F) * scale + low


def midpoint(zero_point, dtype, last=3):
    def quantize(row, ratio, size):
        for start in range(0, len(row), size):
            group = row[start : start + size]
            bottom, top = min(group) / F(2), max(group) / F(2)
            half = (top - bottom) * F(ratio)
            low = bottom + top - half
            scale = max(half + half, F(1e-8)) / F(last)
            if zero_point == "float":
                zero = -low / scale
                codes = hold(half_up(group / scale + zero), last)
            else:
                zero = F(min(max(half_even([-low / scale])[0], 0), 3))
                codes = hold([round(float(v)) + int(zero) for v in group / scale], 3)
            scale, zero = stored([scale, zero], dtype)
            yield codes, (scale, zero), (codes.astype(F) - zero) * scale

    return quantize


def float8(exponent_bits, mantissa_bits, largest):
    """The nearest of all values of a sign, an exponent and a mantissa: every byte read by the formula."""
    bias = 2 ** (exponent_bits - 1) - 1

    def read(code):
        exponent, mantissa = divmod(code & 127, 2**mantissa_bits)
        whole = mantissa / 2**mantissa_bits + (exponent > 0)
        return (-1) ** (code >> 7) * whole * 2.0 ** (max(exponent, 1) - bias)

    finite = [code for code in range(128) if read(code) <= largest]

    def quantize(row, ratio, size):
        if ratio != 1 or len(row) % size:
            raise SpecError
        for start in range(0, len(row), size):
            codes = []
            for value in map(float, row[start : start + size]):
                near = min(finite, key=lambda code: (abs(read(code) - abs(value)), code % 2))
                codes.append(near + 128 * (math.copysign(1, value) < 0))
            yield np.array(codes, dtype=np.uint8), (), np.array([read(code) for code in codes], dtype=F)

    return quantize


def symmetric(row, ratio, size):
    for start in range(0, len(row), size):
        group = row[start : start + size]
        scale = max(abs(group)) * F(ratio) + F(1e-12)
        codes = hold(half_even((group / scale + F(1)) * F(1.5)), 3)
        yield codes, (scale,), (codes.astype(F) / F(1.5) - F(1)) * scale


REFERENCE = {
    "symmetric-absmax-clip": symmetric,
    "oscar-prefill": oscar(sort_threshold),
    "oscar-prefill-bfloat16": oscar(sort_threshold, "bfloat16"),
    "oscar-flush": oscar(search_threshold),
    "oscar-uniform-lloyd": oscar_uniform_lloyd,
    "lloyd-max": lloyd_max,
    "quarot-head-wise": quarot_with_zero(2),
    "quarot-token-wise": quarot_with_zero(2),
    "quarot-group": quarot_group(2),
    "rotatekv": rotatekv,
    "kivi-key": kivi,
    "kivi-value": kivi,
    "kivi-float32-key": kivi_float32,
    "kivi-float32-value": kivi_float32,
    "turboquant-3bit-key": turboquant_key,
    "turboquant-3bit-value": turboquant_value,
    "affine-midpoint": midpoint("float", "float32"),
    "oscar-transformers": midpoint("integer", "float16"),
    "affine-midpoint-3bit": midpoint("float", "float32", 7),
    "affine-midpoint-4bit": midpoint("float", "float32", 15),
    "affine-midpoint-8bit": midpoint("float", "float32", 255),
    "quarot-head-wise-4bit": quarot_with_zero(4),
    "quarot-group-4bit": quarot_group(4),
    "float8-e4m3": float8(4, 3, 448),
    "float8-e5m2": float8(5, 2, 57344),
}

BITS = {
    "turboquant-3bit-key": 3,
    "turboquant-3bit-value": 3,
    "affine-midpoint-3bit": 3,
    "affine-midpoint-4bit": 4,
    "affine-midpoint-8bit": 8,
    "quarot-head-wise-4bit": 4,
    "quarot-group-4bit": 4,
    "float8-e4m3": 8,
    "float8-e5m2": 8,
}

#: What stands before a fingerprint where groups do not run along the channels of a head.
AXES = {"kivi-key": b"groups along tokens\n", "kivi-float32-key": b"groups along tokens\n"}
AXES["quarot-token-wise"] = b"groups along heads\n"


def packed(codes, bits, order):
    """Codes as a little-endian number, the first in the lowest bits, in their order or by quarters."""
    if order == "quartered":
        quarter = len(codes) // 4
        codes = [codes[start + lane * quarter] for start in range(quarter) for lane in range(4)]
    number = sum(int(code) << bits * place for place, code in enumerate(codes))
    return number.to_bytes(len(codes) * bits // 8, "little")


def golden_rows():
    """The golden inputs from docs/reference/contract-v2.md, exact numbers."""
    word = 6260
    for _ in range(8):
        row = []
        for _ in range(128):
            word = (1664525 * word + 1013904223) % 2**32
            row.append((word // 2**8 - 2**23) / 2**21)
        yield row
    yield [0.0] * 128
    yield [-(c + 1) / 8 for c in range(128)]
    yield [1.5] * 128
    yield [(3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 1.5)[c % 8] for c in range(128)]
    yield [c * 2.0**-149 for c in range(128)]
    yield [100.0 if c == 7 else (-1) ** c / 4 for c in range(128)]


def fingerprint(name):
    """The fingerprint from docs/methods/dialects.md."""
    digest = hashlib.sha256()
    for part in (f"{name}-key", f"{name}-value") if name in {"kivi", "kivi-float32"} else (name,):
        update(digest, part)
    return digest.hexdigest()


def update(digest, name):
    bits = BITS.get(name, 2)
    order = "quartered" if name.startswith("oscar-") and name != "oscar-transformers" else "consecutive"
    digest.update(AXES.get(name, b""))
    for ratio in (1.0, 0.75, 0.5):
        for row in golden_rows():
            try:
                ((codes, scalars, values),) = REFERENCE[name](np.array(row, dtype=F), ratio, 128)
            except (DegenerateGroupError, SpecError) as refusal:
                digest.update(f"refused: {type(refusal).__name__}\n".encode("ascii"))
                continue
            numbers = [*scalars, *values]
            digest.update(packed(codes, bits, order))
            digest.update(b"".join(struct.pack("<f", float(number) or 0.0) for number in numbers))
