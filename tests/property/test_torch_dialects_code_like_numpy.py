"""What OptR learns through is what evaluation reads: torch's forward values are NumPy's, bit for bit."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DegenerateGroupError
from producer.quantize import DIALECTS
from producer.scheme.optr.quantizer import TorchQuantizer
from tests.property.strategies import rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: `make slow` installs it"
    ),
]


@pytest.mark.parametrize("group_size", [32, 128])
@pytest.mark.parametrize("name", ["oscar-prefill", "affine-midpoint"])
@given(
    x=rows(),
    offset=st.sampled_from([0.0, 3.0, -7.0, 1e4]),
    ties=st.integers(0, 3),
    clips=st.tuples(*[st.sampled_from([0.0, 0.5, 0.92, 0.96, 1.0])] * 2),
)
def test_torch_dialects_code_like_numpy(name, group_size, x, offset, ties, clips):
    import torch  # noqa: PLC0415 - an extra

    heads = np.stack([x, x[::-1] + np.float32(offset)])
    if ties:
        # Few values, so that many lie on a threshold or on the edge of a code.
        heads = np.round(heads * np.float32(ties)) / np.float32(2)
    if name == "affine-midpoint":
        clips = tuple(clip or 0.25 for clip in clips)
    dialect = DIALECTS[name]
    try:
        found = [
            dialect.dequantize(dialect.quantize(head[None], clip, group_size))
            for head, clip in zip(heads, clips, strict=True)
        ]
    except DegenerateGroupError:
        return
    values, _ = TorchQuantizer(name, group_size, clips).apply(torch.from_numpy(heads))
    # As numbers: the sign of a 0 may differ.
    assert (values.numpy() == np.concatenate(found)).all()
