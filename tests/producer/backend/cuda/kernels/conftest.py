"""One test body for the shim and for a GPU: the fixture `device_of`."""

import functools
import importlib.util
import os

import pytest

from producer.backend.cuda.compile import Variant, compile_program
from producer.backend.cuda.cupy_device import CudaDevice
from producer.backend.cuda.shim import ShimDevice, cxx_compiler
from producer.errors import BackendUnavailableError

#: NVRTC takes some seconds a program.
cached_compile = functools.cache(compile_program)


@functools.cache
def shim_device(head_dim: int, group_size: int) -> ShimDevice:
    return ShimDevice(Variant(head_dim, group_size))


@functools.cache
def cuda_device(head_dim: int, group_size: int) -> CudaDevice:
    # Only the sizes of records are pinned; the others are tested all the same.
    return CudaDevice(Variant(head_dim, group_size), require_pin=False)


def require_shim():
    """Skip where no C++ compiler is; in CI one is required."""
    if cxx_compiler() is None and not os.environ.get("CI"):
        pytest.skip("no C++ compiler (g++, clang++) on this machine")


def require_gpu():
    """Skip where no GPU is; on a GPU node, which sets the variable, one is required."""
    try:
        cuda_device(128, 128)
    except BackendUnavailableError as error:
        if os.environ.get("KVINT2EVAL_REQUIRE_GPU"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=["shim", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_of(request):
    """A function (head_dim, group_size) -> device."""
    if request.param == "cuda":
        require_gpu()
        return cuda_device
    require_shim()
    return shim_device


def pytest_collection_modifyitems(config, items):
    """Leave out what needs a GPU where CuPy is not even installed, unless it is asked for with -m gpu."""
    if importlib.util.find_spec("cupy") is not None or "gpu" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
