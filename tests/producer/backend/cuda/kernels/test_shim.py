"""The shim itself: it must report what would be a fault on a device."""

import numpy as np
import pytest

from producer.backend.cuda.compile import program_source
from producer.backend.cuda.errors import KernelCompileError
from producer.backend.cuda.shim import build_shim, cxx_compiler

HEAD = """
constexpr int THREADS = 64;
"""
KERNELS = """
extern "C" __global__ void __launch_bounds__(THREADS) early(float* x) {
    if (threadIdx.x == 5) { return; }
    __syncthreads();
    x[threadIdx.x] = 1.0f;
}
extern "C" __global__ void __launch_bounds__(THREADS) half_warp(float* x) {
    if (threadIdx.x < 16) { x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1); }
}
extern "C" __global__ void __launch_bounds__(THREADS) part_mask(float* x) {
    x[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1);
}
extern "C" __global__ void __launch_bounds__(THREADS) exchange(float* x) {
    float y = x[threadIdx.x];
    for (int half = 1; half < 32; half *= 2) { y = y + __shfl_xor_sync(0xffffffffu, y, half); }
    x[threadIdx.x] = y;
}
extern "C" __global__ void __launch_bounds__(THREADS) race(float* x) {
    __shared__ float shared[64];
    shared[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = shared[63 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(THREADS) fixed(float* x) {
    __shared__ float shared[64];
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = shared[63 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def program():
    if cxx_compiler() is None:
        pytest.skip("no C++ compiler (g++, clang++) on this machine")
    return build_shim(source=HEAD + KERNELS)


def launch(program, kernel, x, threads=64, seed=0):
    address = np.array(x.ctypes.data, np.uintp)
    program.launch(kernel, (1, 1, 1), threads, [address.ctypes.data], seed)
    return x


def ramp():
    return np.arange(64, dtype=np.float32)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("early", "thread 0 waits for ever at a barrier that not all threads reach"),
        ("half_warp", "thread 0 waits for ever at a warp exchange that not all threads reach"),
        ("part_mask", "a warp exchange with a mask other than all lanes"),
        ("absent", "no such kernel in the program"),
    ],
)
def test_faults_are_reported_and_leave_the_shim_usable(program, kernel, message):
    with pytest.raises(RuntimeError, match=f"kernel {kernel}: {message}"):
        launch(program, kernel, ramp())
    assert launch(program, "fixed", ramp()).tolist() == ramp()[::-1].tolist()


def test_half_a_warp_is_refused(program):
    with pytest.raises(RuntimeError, match="a block of 48 threads: whole warps are needed"):
        launch(program, "fixed", ramp(), threads=48)


def test_exchanges_stay_inside_a_warp(program):
    x = launch(program, "exchange", ramp())
    assert x.tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


def test_a_missing_barrier_shows_when_the_order_of_threads_changes(program):
    results = {launch(program, "race", ramp(), seed=seed).tobytes() for seed in range(4)}
    assert len(results) > 1
    assert {launch(program, "fixed", ramp(), seed=seed).tobytes() for seed in range(4)} == {
        ramp()[::-1].tobytes()
    }


def test_program_that_is_no_cpp_carries_the_log():
    if cxx_compiler() is None:
        pytest.skip("no C++ compiler (g++, clang++) on this machine")
    with pytest.raises(KernelCompileError, match="does not compile the kernels as C") as caught:
        build_shim(source=program_source() + "\nnonsense;")
    assert "nonsense" in caught.value.log
