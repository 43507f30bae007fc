"""Whatever the rows: the kernel's codes, scales and bytes are those of NumPy, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from producer.backend.cuda import launch
from producer.backend.cuda.compile import Variant
from producer.backend.cuda.shim import ShimDevice, cxx_compiler
from tests.producer.backend.cuda.kernels.cases import packed_twin

pytestmark = pytest.mark.skipif(
    cxx_compiler() is None, reason="no C++ compiler (g++, clang++) on this machine"
)

# All finite float32 numbers; their quotient by a scale of up to 3e38 is finite too.
ROWS = hnp.arrays(np.float32, (1, 3, 16), elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
RATIOS = st.floats(1 / 256, 1, width=32)


@given(ROWS, RATIOS)
def test_kernels_code_like_numpy(x, ratio):
    device = ShimDevice(Variant(16, 16))
    out = launch.empty_packed(device, x.shape[:-1])
    launch.rotate_quantize_pack(device, device.upload(x), ratio, out)
    with np.errstate(over="ignore"):
        packed, scales = packed_twin(x, ratio, 16)
    assert device.download(out.packed).tobytes() == packed.tobytes()
    assert device.download(out.scales).tobytes() == scales.tobytes()


@given(hnp.arrays(np.uint16, (1, 3, 16), elements=st.integers(0, 0xFFFF)), RATIOS)
def test_16_bit_rows_are_their_float32_values(bits, ratio):
    x = bits.view(np.float16)
    if not np.isfinite(x).all():
        x = np.where(np.isfinite(x), x, np.float16(1))
    device = ShimDevice(Variant(16, 16))
    out = launch.empty_packed(device, x.shape[:-1])
    launch.rotate_quantize_pack(device, device.upload(x), ratio, out)
    packed, scales = packed_twin(x.astype(np.float32), ratio, 16)
    assert device.download(out.packed).tobytes() == packed.tobytes()
    assert device.download(out.scales).tobytes() == scales.tobytes()
