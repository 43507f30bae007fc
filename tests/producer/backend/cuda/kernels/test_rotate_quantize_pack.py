import numpy as np
import pytest

from producer.backend.cuda import launch
from producer.errors import SpecError
from producer.numerics.bfloat16 import bfloat16_bits, widen_bfloat16
from producer.transform import SignedHadamard
from tests.producer.backend.cuda.kernels.cases import around_edges, edge_rows, packed_twin
from tests.producer.backend.cuda.kernels.reference import rotate_dense

VARIANTS = [(128, 128), (128, 32), (16, 16), (512, 128)]
RATIOS = [1.0, 0.95, 0.8, 0.3]


def run(device, x, ratio, **options):
    """Packed codes and scales as the kernel makes them."""
    out = launch.empty_packed(device, x.shape[:-1])
    on_device = {name: device.upload(array) for name, array in options.items()}
    if "matrix" in on_device:
        matrix = on_device.pop("matrix")
        launch.rotate_quantize_pack_dense(device, device.upload(x), matrix, ratio, out, **on_device)
    else:
        launch.rotate_quantize_pack(device, device.upload(x), ratio, out, **on_device)
    assert device.download(out.nonfinite)[0] == 0
    return device.download(out.packed), device.download(out.scales)


def same(found, wanted):
    for name, a, b in zip(("packed", "scales"), found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), err_msg=name)


def signs_of(head_dim, seed=3):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.float32), head_dim)


@pytest.mark.parametrize(("head_dim", "group_size"), VARIANTS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_edge_set_is_bit_equal(device_of, head_dim, group_size, ratio):
    x = np.stack(list(edge_rows(head_dim).values()))[None]
    same(run(device_of(head_dim, group_size), x, ratio), packed_twin(x, ratio, group_size))


@pytest.mark.parametrize("ratio", RATIOS)
def test_codes_change_at_the_same_float(device_of, ratio):
    x = around_edges(128, ratio, seed=round(100 * ratio))[None]
    found, wanted = run(device_of(128, 128), x, ratio), packed_twin(x, ratio, 128)
    same(found, wanted)
    # The case must reach both sides of every edge.
    assert set(np.unique(wanted[0].ravel() & 3)) == {0, 1, 2, 3}


@pytest.mark.parametrize(("head_dim", "group_size"), VARIANTS)
def test_signed_hadamard_is_bit_equal(device_of, head_dim, group_size):
    rng = np.random.default_rng(11)
    x = rng.standard_normal((2, 37, head_dim)).astype(np.float32)
    # "large" would overflow in the transform, on both sides.
    x[0, :11] = np.stack([row for name, row in edge_rows(head_dim).items() if name != "large"])
    signs = signs_of(head_dim)
    wanted = packed_twin(SignedHadamard(signs).rotate(x), 0.8, group_size)
    same(run(device_of(head_dim, group_size), x, 0.8, signs=signs), wanted)


def test_mean_is_taken_off_before_the_rotation(device_of):
    rng = np.random.default_rng(12)
    x = (rng.standard_normal((3, 21, 128)) + 5).astype(np.float32)
    mean = x.mean(axis=1)
    signs = signs_of(128)
    wanted = packed_twin(SignedHadamard(signs).rotate(x - mean[:, None]), 0.9, 128)
    same(run(device_of(128, 128), x, 0.9, signs=signs, mean=mean), wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_inputs_are_widened_exactly(device_of, dtype):
    rng = np.random.default_rng(13)
    values = (rng.standard_normal((1, 40, 128)) * np.exp(3 * rng.standard_normal((1, 40, 1)))).astype(
        np.float32
    )
    if dtype == "float16":
        x = values.astype(np.float16)
        # Every float16 subnormal class, and the largest value.
        x[0, 0] = np.resize(np.array([1, 2, 0x3FF, 0x400, 0x8001, 0x7BFF, 0, 0x8000], np.uint16), 128).view(
            np.float16
        )
        wide = x.astype(np.float32)
    else:
        x = bfloat16_bits(values)
        wide = widen_bfloat16(x)
    signs = signs_of(128)
    same(
        run(device_of(128, 128), x, 0.85, signs=signs),
        packed_twin(SignedHadamard(signs).rotate(wide), 0.85, 128),
    )


@pytest.mark.parametrize(("head_dim", "group_size"), [(128, 128), (16, 16), (512, 128)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dense_matrix_is_bit_equal(device_of, head_dim, group_size, dtype):
    rng = np.random.default_rng(14)
    x = rng.standard_normal((2, 19, head_dim)).astype(dtype)
    mean = rng.standard_normal((2, head_dim)).astype(np.float32)
    matrix = np.stack([np.linalg.qr(rng.standard_normal((head_dim, head_dim)))[0] for _ in "ab"]).astype(
        np.float32
    )
    wanted = packed_twin(rotate_dense(x.astype(np.float32) - mean[:, None], matrix), 0.9, group_size)
    same(run(device_of(head_dim, group_size), x, 0.9, matrix=matrix, mean=mean), wanted)


def test_dense_twin_multiplies_by_the_matrix():
    rng = np.random.default_rng(15)
    x, matrix = rng.standard_normal((2, 9, 32)), rng.standard_normal((2, 32, 32))
    found = rotate_dense(x.astype(np.float32), matrix.astype(np.float32))
    np.testing.assert_allclose(found, x @ matrix, rtol=0, atol=2e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rotated", [False, True])
def test_infinite_and_nan_rows_are_reported(device_of, bad, rotated):
    device = device_of(128, 128)
    x = np.ones((1, 300, 128), np.float32)
    x[0, 299, 127] = bad
    out = launch.empty_packed(device, (1, 300))
    signs = device.upload(signs_of(128)) if rotated else None
    launch.rotate_quantize_pack(device, device.upload(x), 1.0, out, signs=signs)
    assert device.download(out.nonfinite)[0] == 1


def test_rotate_is_bit_equal_and_may_work_in_place(device_of):
    device = device_of(128, 128)
    x = np.random.default_rng(16).standard_normal((2, 33, 128)).astype(np.float32)
    signs = signs_of(128)
    on_device = device.upload(x)
    launch.rotate(device, on_device, device.upload(signs), on_device)
    np.testing.assert_array_equal(device.download(on_device), SignedHadamard(signs).rotate(x))


@pytest.mark.parametrize("seed", range(3))
def test_order_of_threads_changes_nothing(device_of, seed):
    device = device_of(128, 32)
    x = np.random.default_rng(17).standard_normal((2, 50, 128)).astype(np.float32)
    signs = signs_of(128)
    wanted = run(device, x, 0.9, signs=signs)
    device.seed = seed + 1
    try:
        same(run(device, x, 0.9, signs=signs), wanted)
    finally:
        device.seed = 0


@pytest.mark.parametrize(
    ("x", "ratio", "message"),
    [
        (np.ones((1, 4, 64), np.float32), 1.0, r"shape \(1, 4, 64\) is not allowed: \(…, 128\)"),
        (np.ones((1, 0, 128), np.float32), 1.0, "nothing empty"),
        (np.ones((1, 4, 128), np.float64), 1.0, "dtype float64 is not allowed: float32, float16"),
        (np.ones((1, 4, 128), np.float32), 0.0, "clip ratio 0.0 is not allowed"),
        (np.ones((1, 4, 128), np.float32), float("nan"), "clip ratio nan is not allowed"),
    ],
)
def test_wrong_arguments_are_refused_before_a_launch(device_of, x, ratio, message):
    device = device_of(128, 128)
    with pytest.raises(SpecError, match=message):
        launch.rotate_quantize_pack(device, x, ratio, launch.empty_packed(device, (1, 4)))
