"""OptR on a CUDA device beside the CPU; `make gpu-optr` runs it where there is one."""

import dataclasses

import numpy as np
import pytest

from producer.scheme.optr import OptrOptions, learn_optr
from tests.producer.scheme.optr import made_optr

pytestmark = pytest.mark.gpu

OPTIONS = OptrOptions(queries=made_optr.QUERIES, steps=7, checkpoint_every=3, learning_rate=0.01)


@pytest.fixture
def cuda(torch):
    """The library, with a device."""
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device here")
    return torch


@pytest.fixture
def traces(cuda, tmp_path):  # noqa: ARG001 - the device first
    return made_optr.trace(tmp_path / "training", 1, (60, 45)), made_optr.trace(tmp_path / "held", 500, (70,))


def learn(traces, **changes):
    options = dataclasses.replace(OPTIONS, **changes)
    return learn_optr(made_optr.start(), made_optr.SCHEME, *traces, options, made_optr.silent)


def test_losses_of_the_start_are_those_of_the_cpu(traces):
    """Later ones follow another path from the first other bit on, by little in so few steps."""
    cpu, gpu = learn(traces), learn(traces, device="cuda")
    for side in ("key", "value"):
        one, other = getattr(cpu, side), getattr(gpu, side)
        assert np.allclose(one.training[..., 0], other.training[..., 0], rtol=1e-4)
        assert np.allclose(one.held_out[..., 0], other.held_out[..., 0], rtol=1e-4)
        assert np.isfinite(other.training).all()
        assert (other.held_out.min(axis=-1) <= other.held_out[..., 0]).all()


def test_what_is_learned_are_rotations(traces):
    for rotations in learn(traces, device="cuda").layers.values():
        for transform in (rotations.key, rotations.value):
            product = transform.matrices.astype(np.float64) @ transform.matrices.swapaxes(1, 2)
            assert np.abs(product - np.eye(transform.head_dim)).max() < 1e-5


def test_a_chunk_that_is_done_leaves_nothing_on_the_device(cuda, traces):
    """The most that is held does not grow with the number of chunks."""
    peaks = []
    for chunk_bytes in (1 << 27, 1):
        cuda.cuda.synchronize()
        cuda.cuda.empty_cache()
        cuda.cuda.reset_peak_memory_stats()
        before = cuda.cuda.memory_allocated()
        learn(traces, device="cuda", chunk_bytes=chunk_bytes)
        peaks.append(cuda.cuda.max_memory_allocated() - before)
        assert cuda.cuda.memory_allocated() == before
    assert peaks[1] < peaks[0]
