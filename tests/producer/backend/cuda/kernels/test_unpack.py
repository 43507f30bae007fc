import numpy as np
import pytest

from producer.backend.cuda import launch
from producer.quantize.packing import pack, unpack
from producer.quantize.symmetric_absmax_clip import dequantize


@pytest.mark.parametrize(("head_dim", "group_size"), [(128, 128), (128, 32), (16, 16)])
def test_unpack_and_dequantize_equal_the_cpu(device_of, head_dim, group_size):
    device = device_of(head_dim, group_size)
    rng = np.random.default_rng(21)
    codes = rng.integers(0, 4, (2, 77, head_dim), dtype=np.uint8)
    scales = rng.lognormal(0, 3, (2, 77, head_dim // group_size)).astype(np.float32)
    packed = device.upload(pack(codes))
    bytes_out = device.empty(codes.shape, np.uint8)
    launch.unpack(device, packed, bytes_out)
    np.testing.assert_array_equal(device.download(bytes_out), codes)
    values = device.empty(codes.shape, np.float32)
    launch.dequantize(device, launch.PackedRows(packed, device.upload(scales), None), values)
    wanted = dequantize(unpack(pack(codes)), scales)
    np.testing.assert_array_equal(device.download(values).view(np.uint32), wanted.view(np.uint32))


def test_every_byte_is_unpacked_low_bits_first(device_of):
    device = device_of(128, 128)
    packed = np.arange(256, dtype=np.uint8)
    out = device.empty((1024,), np.uint8)
    launch.unpack(device, device.upload(packed), out)
    for byte in range(256):
        wanted = [byte & 3, byte >> 2 & 3, byte >> 4 & 3, byte >> 6]
        assert device.download(out)[4 * byte : 4 * byte + 4].tolist() == wanted
