"""A second implementation of the published computation: plain, float64, explicit matrices.

It shares no line with the producer: the random words come from `random.Random`, normals from a loop,
rotations from a Kronecker product, attention from the textbook formula.
"""

import math
import random
import struct

import numpy as np


def single(value):
    """A float rounded to float32, without NumPy."""
    return struct.unpack("f", struct.pack("f", value))[0]


def words(seed):
    """MT19937 words of a single seed word, from Python's own generator."""
    state = [seed]
    for index in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    while True:
        yield generator.getrandbits(32)


def normals(seed):
    """The polar stream, one value at a time, every step rounded to float32."""
    source = words(seed)

    def uniform():
        value = single(single(next(source)) / 2.0**32)
        return value if value < 1 else 1 - 2.0**-24

    while True:
        x, y = (single(single(2 * uniform()) - 1) for _ in range(2))
        r2 = single(single(x * x) + single(y * y))
        if r2 > 1 or r2 == 0:
            continue
        scale = single(math.sqrt(single(single(-2 * single(math.log(r2))) / r2)))
        yield single(y * scale)
        yield single(x * scale)


def sylvester(d):
    """The Sylvester-Hadamard matrix, entries +1 and -1."""
    matrix = np.ones((1, 1))
    while len(matrix) < d:
        matrix = np.kron([[1, 1], [1, -1]], matrix)
    return matrix


def published_signs(index, d):
    """Signs of rotation `index`, channel by channel."""
    return np.array([-1.0 if (((c + 1) * 2654435761) ^ (index * 2246822519)) & 1 else 1.0 for c in range(d)])


def quantized(x, clip):
    """x (…, d) through the quantizer and back; the codes are decided in float32, as the contract says."""
    x = x.astype(np.float32)
    scale = np.abs(x).max(axis=-1, keepdims=True) * np.float32(clip) + np.float32(1e-12)
    z = np.clip(x / scale, np.float32(-1), np.float32(1))
    codes = np.round((z + np.float32(1)) * np.float32(1.5)).astype(np.float64)
    return (codes / 1.5 - 1) * scale.astype(np.float64)


def attention(q, k, v, w):
    """Output of one query: q (H, d), k and v (T, H, d), w (H, d, O)."""
    scores = np.einsum("hd,thd->ht", q, k) / math.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("hd,hdo->o", np.einsum("ht,thd->hd", weights, v), w)


def nmse(a, b):
    return ((a - b) ** 2).sum() / ((b**2).sum() + 1e-30)


def published(seq_len, heads, d, out, seed, rotations=8, trials=10):
    """Rows (clip, calibration NMSEs, list of trial NMSEs) of the published protocol."""
    stream = normals(seed)

    def draw(*shape):
        count = math.prod(shape)
        return np.array([next(stream) for _ in range(count)], dtype=np.float32).reshape(shape)

    k, v = draw(seq_len, heads, d), draw(seq_len, heads, d)
    w = draw(heads, d, out) / np.float32(math.sqrt(heads * d))
    calibration = draw(heads, d)
    for flat in (k.reshape(-1), v.reshape(-1)):
        flat[::9973] *= np.float32(30)
    k, v, w = k.astype(float), v.astype(float), w.astype(float)
    hadamard = sylvester(d) / math.sqrt(d)
    rows = []
    for rotation in range(rotations + 1):
        signs = published_signs(rotation, d)
        turn = np.eye(d) if rotation == 0 else hadamard * signs
        last = np.eye(d) if rotation == 0 else hadamard * signs[:, None]
        rk, rv, rw = k @ turn.T, v @ turn.T, np.einsum("cd,hdo->hco", last, w)

        def error(query, clip, turn=turn, rk=rk, rv=rv, rw=rw):
            return nmse(
                attention(query @ turn.T, quantized(rk, clip), quantized(rv, clip), rw),
                attention(query.astype(float), k, v, w),
            )

        clips = (1.0, 0.95, 0.9, 0.85, 0.8)
        curve = [error(calibration, clip) for clip in clips]
        clip = clips[int(np.argmin(curve))]
        rows.append((clip, curve, [error(draw(heads, d), clip) for _ in range(trials)]))
    return rows
