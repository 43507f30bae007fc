"""The kernels, compiled as C++ once a session and size."""

import functools
import os

import pytest

from producer.gpu.compile import Variant
from producer.gpu.shim import ShimDevice, cxx_compiler


@functools.cache
def _device(head_dim: int, group_size: int) -> ShimDevice:
    return ShimDevice(Variant(head_dim, group_size))


@pytest.fixture(scope="session")
def shim():
    """A function (head_dim, group_size) -> device. Never skipped in CI: a compiler is required there."""
    if cxx_compiler() is None and not os.environ.get("CI"):
        pytest.skip("no C++ compiler (g++, clang++) on this machine")
    return _device
