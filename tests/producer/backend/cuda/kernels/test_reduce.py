import numpy as np
import pytest

from producer.backend.cuda import launch
from producer.numerics.nmse import nmse


@pytest.mark.parametrize(("count", "heads", "output_dim"), [(1, 4, 128), (3, 2, 300), (2, 1, 1)])
def test_project_is_the_correctly_rounded_product(device_of, count, heads, output_dim):
    device = device_of(128, 128)
    rng = np.random.default_rng(41)
    x = rng.standard_normal((count, heads, 128)).astype(np.float32)
    w_o = rng.standard_normal((heads, 128, output_dim)).astype(np.float32)
    out = device.empty((count, output_dim), np.float32)
    launch.project(device, device.upload(x), device.upload(w_o), out)
    wanted = np.einsum("qhd,hdo->qo", x, w_o, dtype=np.float64)
    # float64 sums differ by far less than a float32 rounding: one ulp covers a tie that falls the other way.
    np.testing.assert_array_max_ulp(device.download(out), wanted.astype(np.float32), maxulp=1)


@pytest.mark.parametrize("width", [1, 128, 1000])
def test_squared_error_sums_are_those_of_the_nmse(device_of, width):
    device = device_of(128, 128)
    rng = np.random.default_rng(42)
    a, b = rng.standard_normal((2, 5, width)).astype(np.float32)
    b[4] = 0
    error, power = (device.empty((5,), np.float64) for _ in "ep")
    launch.squared_error(device, device.upload(a), device.upload(b), error, power)
    found = device.download(error) / (device.download(power) + 1e-30)
    np.testing.assert_allclose(found, nmse(a, b), rtol=1e-14)
