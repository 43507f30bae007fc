"""Arrays for the laws of the numeric half."""

import numpy as np
from hypothesis import strategies as st


def _values(shape, low, high):
    width = float(np.float32(high) - np.float32(low))
    return st.integers(0, 2**32 - 1).map(
        lambda seed: (np.random.default_rng(seed).random(shape) * width + low).astype(np.float32)
    )


@st.composite
def rows(draw, channels=128, groups=1):
    """A few rows of float32: smooth values, some with outliers, zeros, ties and subnormals put in by hypothesis."""
    count = draw(st.integers(1, 4))
    x = draw(_values((count, channels * groups), -1, 1))
    x *= np.float32(10.0 ** draw(st.integers(-10, 10)))
    special = st.sampled_from([0.0, 1.0, -1.0, 1e-40, -1e-38, 1e30, 2 / 3, -1 / 3])
    for place, value in draw(st.dictionaries(st.integers(0, x.size - 1), special, max_size=8)).items():
        x.reshape(-1)[place] = value
    return x


def normal(seed, *shape):
    """Standard normals of a seed, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


seeds = st.integers(0, 2**32 - 1)
clips = st.floats(0.01, 1.0)
powers = st.sampled_from([4, 8, 16, 32, 64, 128])
