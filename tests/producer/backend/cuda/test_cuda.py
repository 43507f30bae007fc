"""`CudaDevice` over a stand-in for CuPy: its own code path, and each failure with its message."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from producer.backend import cuda_problem, select_backend
from producer.backend.cpu import NumpyBackend
from producer.backend.cuda import launch
from producer.backend.cuda.backend import DeviceBackend
from producer.backend.cuda.compile import KERNEL_NAME, LIBRARY_VARIABLE, Variant, _nvrtc, compile_program
from producer.backend.cuda.cupy_device import CudaDevice, require_cuda
from producer.backend.cuda.errors import (
    DeviceMemoryError,
    DriverTooOldError,
    NoCudaError,
    UnpinnedKernelError,
)
from producer.cli import main
from producer.errors import BackendUnavailableError, MemoryLimitError
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, SliceSpec
from tests.producer.backend.cuda import stand_in
from tests.producer.backend.cuda.kernels.conftest import cached_compile, require_shim

SMALL = SliceSpec(seq_len=64, num_kv_heads=1, output_dim=8)
SHORT = dataclasses.replace(
    PAIRED, calibration_queries=2, evaluation_queries=2, num_rotations=2, bootstrap_resamples=0
)


@pytest.fixture
def cupy(monkeypatch):
    """A function that puts a stand-in in place of CuPy."""

    def place(**options):
        require_shim()
        module = stand_in.make(**options)
        monkeypatch.setitem(sys.modules, "cupy", module)
        # Compiled once for all tests of this file.
        monkeypatch.setattr("producer.backend.cuda.cupy_device.compile_program", cached_compile)
        monkeypatch.setattr("producer.backend.cuda.pins.compile_program", cached_compile)
        return module

    return place


def test_the_device_runs_a_protocol_and_says_what_it_is(cupy):
    cupy()
    backend = DeviceBackend(CudaDevice, decode_repeats=2)
    result = run_protocol(SMALL, SHORT, backend)
    wanted = run_protocol(SMALL, SHORT, NumpyBackend(1))
    assert [arm.nmse for arm in result.arms] == [pytest.approx(arm.nmse, rel=5e-5) for arm in wanted.arms]
    runtime = backend.runtime
    assert (runtime.name, runtime.version, runtime.kernel) == ("cuda", "12.9", KERNEL_NAME)
    assert runtime.gpu_memory_bytes == 2**31
    described = backend.describe()
    assert described["cubin_sha256"] == runtime.sha256
    assert described["architecture"] == "sm_89"
    assert described["compile_options"][2:4] == ["--fmad=false", "--ftz=false"]
    assert described["decode_repeats"] == 2
    json.dumps(described, allow_nan=False)


def test_auto_takes_the_gpu_where_there_is_one(cupy):
    cupy()
    assert cuda_problem() is None
    assert isinstance(select_backend("auto"), DeviceBackend)
    assert isinstance(select_backend("cupy"), DeviceBackend)
    assert isinstance(select_backend("numpy"), NumpyBackend)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"devices": 0}, NoCudaError, "the driver hides it"),
        ({"count_status": 35, "driver": 0}, NoCudaError, "no NVIDIA driver is loaded"),
        ({"count_status": 100}, NoCudaError, "CuPy finds no CUDA device"),
        (
            {"count_status": 35, "driver": 11040},
            DriverTooOldError,
            r"the driver supports CUDA 11\.4, CuPy needs 12\.9",
        ),
    ],
)
def test_no_usable_device_is_named(cupy, options, error, message):
    cupy(**options)
    with pytest.raises(error, match=message):
        require_cuda()
    assert cuda_problem() is not None
    with pytest.raises(BackendUnavailableError, match="backend cupy cannot run here"):
        select_backend("cupy")
    assert isinstance(select_backend("auto"), NumpyBackend)


def test_a_driver_that_cannot_load_the_program_is_too_old(cupy):
    cupy(load_status=200)
    with pytest.raises(DriverTooOldError, match=r"cannot load a program for sm_89 by NVRTC 12\.9"):
        CudaDevice()


def test_another_fault_of_the_driver_is_not_called_old(cupy):
    cupy(load_status=700)
    with pytest.raises(stand_in.CUDADriverError):
        CudaDevice()


def test_an_architecture_that_was_never_pinned_is_refused(cupy):
    cupy(capability=(8, 6))
    with pytest.raises(UnpinnedKernelError, match="no program for sm_86"):
        CudaDevice()
    assert CudaDevice(require_pin=False).program.architecture == "sm_86"


def test_memory_that_is_too_small_is_refused_with_the_bytes(cupy):
    cupy(free=1000)
    device = CudaDevice()
    with pytest.raises(
        DeviceMemoryError, match="needs 4004 bytes of memory on stand-in, no GPU, free are 1000"
    ) as caught:
        device.empty((1001,), np.float32)
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (4004, 1000)
    assert isinstance(caught.value, MemoryLimitError)
    with pytest.raises(DeviceMemoryError, match="a cache needs 1001 bytes"):
        device.require_free(1001, "a cache")


def test_a_null_pointer_and_scalars_reach_the_kernel(cupy):
    cupy()
    device = CudaDevice(Variant())
    rows = launch.empty_packed(device, (1, 2))
    x = device.upload(np.full((1, 2, 128), 2, np.float32))
    launch.rotate_quantize_pack(device, x, 0.5, rows)
    assert device.download(rows.scales).tolist() == [[[1.0], [1.0]]]
    assert device.time_us(lambda: None, 3) >= 0


RUN = ["run", "--seq-len", "64", "--kv-heads", "1", "--output-dim", "8", "--rotations", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count_status": 35, "driver": 0}, "no NVIDIA driver is loaded"),
        ({"count_status": 35, "driver": 11040}, "the driver supports CUDA 11.4"),
        ({"capability": (8, 6)}, "no program for sm_86"),
        ({"load_status": 209}, "cannot load a program"),
        ({"free": 2**16}, "bytes of memory on stand-in"),
    ],
)
@pytest.mark.parametrize("asked", [["--require-cuda"], ["--backend", "cupy"]])
def test_run_ends_with_the_typed_delegate_result(cupy, tmp_path, capsys, options, message, asked):
    cupy(**options)
    record = tmp_path / "record.json"
    assert main([*RUN, *asked, "--format", "json", "-o", str(record)]) == 3
    result = json.loads(capsys.readouterr().out)
    assert (result["outcome"], result["reason"]) == ("delegate", "KVINT2_RUNTIME_DELEGATION_REQUIRED")
    assert message in result["detail"]
    assert list(tmp_path.iterdir()) == []


def test_run_delegates_when_no_kernel_can_be_compiled(cupy, tmp_path, capsys, monkeypatch):
    cupy()
    monkeypatch.setattr("producer.backend.cuda.pins.compile_program", compile_program)
    monkeypatch.setenv(LIBRARY_VARIABLE, "/nowhere/libnvrtc.so")
    _nvrtc.cache_clear()
    try:
        assert main([*RUN, "--require-cuda", "-o", str(tmp_path / "record.json")]) == 3
    finally:
        _nvrtc.cache_clear()
    assert "no NVRTC library is found" in capsys.readouterr().out


def test_run_writes_record_and_side_file_with_the_program(cupy, tmp_path, capsys):
    cupy()
    record = tmp_path / "record.json"
    assert main([*RUN, "--evaluation-queries", "3", "--require-cuda", "-o", str(record)]) == 0
    written = json.loads(record.read_text())
    trials = json.loads((tmp_path / "record.json.trials").read_text())
    backend = trials["environment"]["backend"]
    assert written["runtime"]["sha256"] == backend["cubin_sha256"]
    assert written["hardware"]["gpu"] == backend["gpu"] == "stand-in, no GPU"
    assert all(len(arm["host_decode_us"]) == 3 for arm in trials["arms"])
    assert "selected rotation" in capsys.readouterr().out
