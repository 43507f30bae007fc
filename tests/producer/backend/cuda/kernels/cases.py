"""Rows that a quantizer may get wrong, and the CPU's answer to any rows."""

import numpy as np

from producer.quantize.packing import pack
from producer.quantize.symmetric_absmax_clip import quantize

#: The edges t_1, t_2, t_3 of kernels/symmetric_absmax_clip.cuh lie near these multiples of the scale.
EDGES = (-2 / 3, 0.0, 2 / 3)


def edge_rows(head_dim: int) -> dict[str, np.ndarray]:
    """The edge set: name -> one row."""
    rng = np.random.default_rng(7)
    normal = rng.standard_normal(head_dim).astype(np.float32)
    ones = np.ones(head_dim, np.float32)
    ties = np.resize(np.array([1, 2 / 3, 1 / 3, 0, -1 / 3, -2 / 3, -1, -0.0], np.float32), head_dim)
    outlier = normal * np.float32(0.01)
    outlier[3] = 100
    return {
        "zeros": 0 * ones,
        "negative zeros": -0.0 * ones,
        "all negative": -np.abs(normal) - np.float32(0.5),
        "one value": np.float32(0.1) * ones,
        "one negative value": np.float32(-3.7) * ones,
        "ties": ties,
        "subnormal": normal * np.float32(1e-40),
        "smallest subnormal": np.float32(1e-45) * ones,
        "near the floor of the scale": normal * np.float32(1e-12),
        "one outlier": outlier,
        "large": normal * np.float32(1e37),
        "normal": normal,
    }


def around_edges(head_dim: int, clip_ratio: float, seed: int) -> np.ndarray:
    """Rows full of values at and next to the places where the code changes, each row with a scale of its own."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(24):
        top = np.float32(rng.lognormal(0, 4))
        scale = np.float32(top * np.float32(clip_ratio)) + np.float32(1e-12)
        row = np.empty(head_dim, np.float32)
        for i in range(head_dim):
            place = np.float32(EDGES[i % 3]) * scale
            if i % 3 == 1:
                place = -scale * np.float32(2.0**-25)
            bits = np.array([place], np.float32).view(np.int32) + rng.integers(-4, 5)
            row[i] = bits.astype(np.int32).view(np.float32)[0]
        row[rng.integers(head_dim)] = top
        rows.append(row)
    return np.stack(rows)


def packed_twin(x: np.ndarray, clip_ratio: float, group_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Packed codes and scales as the CPU makes them."""
    codes, scale = quantize(x, clip_ratio, group_size)
    return pack(codes), scale
