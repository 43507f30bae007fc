"""The backend `cupy`: `producer.backend.base.Backend` on a `producer.backend.cuda.device.Device`.

Queries are rotated on the host with the CPU's own code, so that they are the same bits on every backend; caches live
on the device from the first use on.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from producer.backend.base import Decoded
from producer.backend.cuda import launch
from producer.backend.cuda.compile import Variant
from producer.errors import NonFiniteError, SpecError
from producer.numerics.arrays import require_finite
from producer.numerics.nmse import DENOMINATOR_FLOOR
from producer.transform import Identity, SignedHadamard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer.backend.base import PackedCache, RotatedCache, RuntimeInfo
    from producer.backend.cuda.device import Device, DeviceArray
    from producer.backend.cuda.launch import AttentionBuffers, PackedRows
    from producer.backend.kv_blocks import KVSource
    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.transform import Rotation

__all__ = ["DECODE_REPEATS", "DeviceBackend", "DevicePackedCache", "DeviceRotatedCache", "open_cuda_backend"]

#: Steps between two events that one decode time is the mean of.
DECODE_REPEATS = 10


@dataclass(frozen=True, slots=True)
class DeviceRotatedCache:
    """A float cache on the device with the rotation that readers of it apply.

    Attributes
    ----------
    values : float32, shape (2, num_kv_heads, seq_len, head_dim)
        Keys and values, not rotated: the rotation is part of quantization, and costs no pass of its own.
    signs : float32, shape (head_dim,), or None
        Of a signed Hadamard rotation, on the device.
    rotation : Rotation
    """

    values: DeviceArray
    signs: DeviceArray | None
    rotation: Rotation


@dataclass(frozen=True, slots=True)
class DevicePackedCache:
    """A packed cache on the device; see `producer.backend.base.PackedCache`.

    Attributes
    ----------
    rows : PackedRows
        For (2, num_kv_heads, seq_len): keys and values.
    rotation : Rotation
    """

    rows: PackedRows
    rotation: Rotation

    @property
    def code_bytes(self) -> int:
        """Bytes of the packed codes of K and V, counted from the array."""
        return int(self.rows.packed.nbytes)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of K and V, counted from the array."""
        return int(self.rows.scales.nbytes)

    def part(self, index: int) -> PackedRows:
        """Return keys (0) or values (1)."""
        return launch.PackedRows(self.rows.packed[index], self.rows.scales[index], self.rows.nonfinite)


class DeviceBackend:
    """Attention with the kernels of `producer.backend.cuda.kernels`.

    Parameters
    ----------
    open_device : callable
        Variant → Device. Called when the sizes of a cache are first known, once a variant.
    decode_repeats : int
        Steps between two events that one decode time is the mean of.
    """

    #: A process that uses CUDA must not be forked.
    workers = 1

    def __init__(
        self, open_device: Callable[[Variant], Device], *, decode_repeats: int = DECODE_REPEATS
    ) -> None:
        self._open_device = open_device
        self._decode_repeats = decode_repeats
        self._devices: dict[Variant, Device] = {}
        self._current: Device | None = None
        # The last source and output weights with their copies on the device: a run uses one source, and one W_O
        # a candidate. The host objects are kept too, so that no other can take their identity.
        self._source: tuple[KVSource, DeviceArray] | None = None
        self._w_o: tuple[Float32Array, DeviceArray] | None = None
        self._packed: DevicePackedCache | None = None

    def device(self, head_dim: int, group_size: int | None = None) -> Device:
        """Return the device with the program for these sizes, opened on its first use.

        Raises
        ------
        SpecError
            If no kernel has these sizes.
        BackendUnavailableError
            If this machine cannot run it.
        """
        variant = Variant(head_dim, min(128, head_dim) if group_size is None else group_size)
        if variant not in self._devices:
            self._devices[variant] = self._open_device(variant)
        self._current = self._devices[variant]
        return self._current

    def _any_device(self) -> Device:
        return self._current or self.device(128)

    @property
    def runtime(self) -> RuntimeInfo:
        """What the last program ran on."""
        return self._any_device().runtime

    def describe(self) -> dict[str, object]:
        """Return device, driver, compiler and program as names to JSON values, None where unknown."""
        return {**self._any_device().describe(), "decode_repeats": self._decode_repeats}

    def rotate(
        self, source: KVSource, rotation: Rotation, spare: RotatedCache | None = None
    ) -> DeviceRotatedCache:
        """Return the cache with its rotation; see `Backend.rotate`. Nothing is computed before it is read.

        Raises
        ------
        SpecError
            If the rotation has no kernel.
        DeviceMemoryError
            If the cache does not fit.
        """
        del spare  # one copy on the device serves all rotations
        device = self.device(source.head_dim)
        if isinstance(rotation, Identity):
            signs = None
        elif isinstance(rotation, SignedHadamard):
            signs = device.upload(rotation.signs)
        else:
            raise SpecError(
                f"rotation {rotation.kind!r} is not allowed on a GPU: identity or signed-hadamard"
            )
        return DeviceRotatedCache(self._on_device(source, device), signs, rotation)

    def _on_device(self, source: KVSource, device: Device) -> DeviceArray:
        """Return keys and values of a source, float32, shape (2, num_kv_heads, seq_len, head_dim)."""
        if self._source is not None and self._source[0] is source:
            return self._source[1]
        self._source = self._packed = None  # free the last ones first
        shape = (2, source.num_kv_heads, source.seq_len, source.head_dim)
        device.require_free(_run_bytes(*shape[1:]), f"a cache of {source.seq_len} tokens")
        values = device.empty(shape, np.float32)
        first = 0
        for index in range(source.num_blocks):
            block = source.block(index)
            end = first + block.shape[3]
            for head in range(source.num_kv_heads):
                for part in (0, 1):
                    device.store(values[part, head, first:end], np.ascontiguousarray(block[head, part].T))
            first = end
        self._source = (source, values)
        return values

    def attend_float(self, cache: RotatedCache, queries: Float32Array) -> Float32Array:
        """Return head outputs of the unquantized cache; see `Backend.attend_float`."""
        own = cast("DeviceRotatedCache", cache)
        _, heads, seq_len, head_dim = own.values.shape
        device = self.device(head_dim)
        values = own.values
        if own.signs is not None:
            values = device.empty(own.values.shape, np.float32)
            launch.rotate(device, own.values, own.signs, values)
        on_device = device.upload(_scaled_queries(queries, own.rotation))
        buffers = launch.attention_buffers(device, queries.shape[:2], heads, seq_len)
        launch.attend_float(device, on_device, values[0], values[1], buffers)
        result: Float32Array = device.download(buffers.outputs)
        return result

    def search_clips(
        self, cache: RotatedCache, queries: Float32Array, ratios: Sequence[float], group_size: int
    ) -> Float32Array:
        """Return head outputs of the quantized cache by clip ratio; see `Backend.search_clips`.

        The same launches as `quantize_pack` and `attend_packed`, so their results are the same bits. The device
        is waited for once a ratio.
        """
        own = cast("DeviceRotatedCache", cache)
        _, heads, seq_len, head_dim = own.values.shape
        device = self.device(head_dim, group_size)
        on_device = device.upload(_scaled_queries(queries, own.rotation))
        buffers = launch.attention_buffers(device, queries.shape[:2], heads, seq_len)
        packed = self._room(device, own)
        outputs = []
        for ratio in ratios:
            launch.rotate_quantize_pack(
                device, _as_heads(own.values), ratio, _as_rows(packed.rows), signs=own.signs
            )
            launch.attend_packed(device, on_device, packed.part(0), packed.part(1), buffers)
            outputs.append(device.download(buffers.outputs))
        _require_finite_rows(device, packed.rows)
        return np.stack(outputs)

    def quantize_pack(self, cache: RotatedCache, ratio: float, group_size: int) -> DevicePackedCache:
        """Return the cache quantized and packed, in the memory of the last one; see `Backend.quantize_pack`."""
        own = cast("DeviceRotatedCache", cache)
        device = self.device(own.values.shape[3], group_size)
        packed = self._room(device, own)
        launch.rotate_quantize_pack(
            device, _as_heads(own.values), ratio, _as_rows(packed.rows), signs=own.signs
        )
        _require_finite_rows(device, packed.rows)
        return packed

    def _room(self, device: Device, cache: DeviceRotatedCache) -> DevicePackedCache:
        """Return room for the packed cache; the room of the last one is used again where it has the same shape."""
        lead = cache.values.shape[:3]
        groups = device.variant.head_dim // device.variant.group_size
        old = self._packed
        if old is None or old.rows.scales.shape != (*lead, groups):
            old = DevicePackedCache(launch.empty_packed(device, lead), cache.rotation)
        device.store(old.rows.nonfinite, np.zeros(1, dtype=np.int32))
        self._packed = DevicePackedCache(old.rows, cache.rotation)
        return self._packed

    def attend_packed(self, cache: PackedCache, queries: Float32Array) -> Float32Array:
        """Return head outputs that read the packed cache; see `Backend.attend_packed`."""
        own = cast("DevicePackedCache", cache)
        device, buffers, on_device = self._prepare(own, queries)
        launch.attend_packed(device, on_device, own.part(0), own.part(1), buffers)
        result: Float32Array = device.download(buffers.outputs)
        return result

    def _prepare(
        self, cache: DevicePackedCache, queries: Float32Array
    ) -> tuple[Device, AttentionBuffers, DeviceArray]:
        """Return device, buffers, and the rotated queries on the device."""
        _, heads, seq_len, width = cache.rows.packed.shape
        device = self.device(4 * width, 4 * width // cache.rows.scales.shape[3])
        buffers = launch.attention_buffers(device, queries.shape[:2], heads, seq_len)
        return device, buffers, device.upload(_scaled_queries(queries, cache.rotation))

    def decode(self, cache: PackedCache, query: Float32Array, w_o: Float32Array) -> Decoded:
        """Return the output of one decode step and its times; see `Backend.decode`.

        Notes
        -----
        `host_us` is the wall time of the step from the query in host memory to the output in host memory, with
        its single wait for the device. `decode_us` is the device's time: the mean of `decode_repeats` further
        steps between two events, after that first one as warm-up, with one wait at the end. The query's rotation is
        in `host_us` alone.
        """
        own = cast("DevicePackedCache", cache)
        weights = self._weights(self._any_device(), w_o)
        start = time.perf_counter()
        device, buffers, on_device = self._prepare(own, query)
        projected = device.empty((len(query), w_o.shape[2]), np.float32)

        def step() -> None:
            launch.attend_packed(device, on_device, own.part(0), own.part(1), buffers)
            launch.project(device, buffers.outputs, weights, projected)

        step()
        outputs: Float32Array = device.download(projected)
        host_us = 1e6 * (time.perf_counter() - start)
        return Decoded(outputs, device.time_us(step, self._decode_repeats), host_us)

    def _weights(self, device: Device, w_o: Float32Array) -> DeviceArray:
        """Return output weights on the device."""
        if self._w_o is None or self._w_o[0] is not w_o:
            self._w_o = (w_o, device.upload(w_o))
        return self._w_o[1]

    def project(self, heads: Float32Array, w_o: Float32Array) -> Float32Array:
        """Return the outputs after W_O; see `Backend.project`. Float64 sums, rounded once."""
        device = self._any_device()
        out = device.empty((len(heads), w_o.shape[2]), np.float32)
        launch.project(device, device.upload(heads), self._weights(device, w_o), out)
        result: Float32Array = device.download(out)
        return result

    def nmse(self, observed: Float32Array, reference: Float32Array) -> Float64Array:
        """Return the NMSE of every query; see `producer.numerics.nmse.nmse`."""
        device = self._any_device()
        # One copy each way: for a few queries the copies take longer than the sums.
        both = device.upload(np.stack([observed, reference]))
        sums = device.empty((2, len(observed)), np.float64)
        launch.squared_error(device, both[0], both[1], sums[0], sums[1])
        error, power = device.download(sums)
        result: Float64Array = error / (power + DENOMINATOR_FLOOR)
        return result


def _run_bytes(heads: int, seq_len: int, head_dim: int) -> int:
    """Return the device memory of a run, an upper estimate: float cache plain and rotated, codes, scales."""
    elements = 2 * heads * seq_len * head_dim
    return 2 * 4 * elements + elements // 4 + elements // 4


def _as_heads(values: DeviceArray) -> DeviceArray:
    """Return keys and values as one array of 2·heads heads."""
    return values.reshape(-1, *values.shape[2:])


def _as_rows(rows: PackedRows) -> PackedRows:
    """The same of packed rows."""
    return launch.PackedRows(_as_heads(rows.packed), _as_heads(rows.scales), rows.nonfinite)


def _require_finite_rows(device: Device, rows: PackedRows) -> None:
    if device.download(rows.nonfinite)[0]:
        raise NonFiniteError("a row of the cache holds NaN or infinity: every value must be finite")


def _scaled_queries(queries: Float32Array, rotation: Rotation) -> Float32Array:
    """Return rotated queries divided by √head_dim, float32, as the NumPy backend computes them."""
    require_finite(queries, "queries")
    scaled: Float32Array = rotation.rotate(queries) / np.float32(math.sqrt(queries.shape[2]))
    return scaled


def open_cuda_backend() -> DeviceBackend:
    """Return the backend on the current CUDA device; records need pinned programs, so others are refused.

    Raises
    ------
    BackendUnavailableError
        If there is no device that can be used; a program is compiled and compared on its first use.
    """
    from producer.backend.cuda.cupy_device import CudaDevice, require_cuda  # noqa: PLC0415 - imports CuPy

    require_cuda()
    return DeviceBackend(CudaDevice)
