"""One test body for the backends that have to agree: NumPy, the kernels on the shim, the kernels on a GPU."""

import pytest

from producer.backend.cpu import NumpyBackend
from producer.backend.cuda.backend import DeviceBackend
from tests.producer.backend.cuda.kernels.conftest import cuda_device, require_gpu, require_shim, shim_device


def on_shim():
    require_shim()
    return DeviceBackend(lambda variant: shim_device(variant.head_dim, variant.group_size), decode_repeats=1)


def on_gpu():
    require_gpu()
    return DeviceBackend(lambda variant: cuda_device(variant.head_dim, variant.group_size))


BACKENDS = {"numpy": lambda: NumpyBackend(1), "shim": on_shim, "cupy": on_gpu}


@pytest.fixture(params=["numpy", "shim", pytest.param("cupy", marks=pytest.mark.gpu)])
def backend(request):
    return BACKENDS[request.param]()


@pytest.fixture(params=["shim", pytest.param("cupy", marks=pytest.mark.gpu)])
def kernel_backend(request):
    """The backends that run the kernels."""
    return BACKENDS[request.param]()
