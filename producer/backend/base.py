"""The interface of a backend: the seam between the protocols and the machine.

A protocol (`producer.experiment.slice.protocol`) calls nothing but these methods for work that grows with the tokens.
A GPU backend has the same methods over device arrays; queries and outputs cross the seam as NumPy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.backend.kv_blocks import KVSource
    from producer.numerics.arrays import Float32Array, Float64Array
    from producer.transform import Rotation

__all__ = ["Backend", "Decoded", "PackedCache", "RotatedCache", "RuntimeInfo", "SplittingBackend"]


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What a record says of the machine a backend runs on: v1's `runtime` and GPU.

    Attributes
    ----------
    name, version : str
        Runtime and its version.
    driver : str
        Version of the driver, or "none".
    kernel : str
        Name of the implementation.
    gpu : str
        Name of the GPU, empty without one.
    gpu_memory_bytes : int
        0 without a GPU.
    sha256 : str
        Digest of the compiled program; empty where the producer's source is what runs.
    """

    name: str
    version: str
    driver: str
    kernel: str
    gpu: str
    gpu_memory_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decode step.

    Attributes
    ----------
    outputs : float32, shape (Q, output_dim)
    decode_us : float
        Time of the step where it runs: on a GPU between two events, on a CPU wall time.
    host_us : float
        Wall time of the step, the query and the output in host memory.
    """

    outputs: Float32Array
    decode_us: float
    host_us: float


class PackedCache(Protocol):
    """A quantized cache as it is stored.

    Attributes
    ----------
    code_bytes, scale_bytes : int
        Bytes of the packed codes and of the scales, counted from the stored arrays.
    """

    @property
    def code_bytes(self) -> int: ...  # noqa: D102 - described on the class

    @property
    def scale_bytes(self) -> int: ...  # noqa: D102 - described on the class


class RotatedCache(Protocol):
    """A float cache after a rotation, as a backend holds or reads it.

    Attributes
    ----------
    rotation : Rotation
        What was done to keys and values; queries must follow.
    """

    @property
    def rotation(self) -> Rotation: ...  # noqa: D102 - described on the class


class Backend(Protocol):
    """Attention over float and packed caches.

    Q queries have shape (Q, num_kv_heads, head_dim) and are not rotated: every method rotates them as its
    cache is rotated. Head outputs have the shape of their queries and stay rotated as the values are.
    """

    @property
    def runtime(self) -> RuntimeInfo:
        """What this backend runs on."""
        ...

    @property
    def workers(self) -> int:
        """Processes over which a protocol may spread its candidates; 1 where a process cannot be forked."""
        ...

    def describe(self) -> dict[str, object]:
        """Return what else a side file says of it: names to JSON values, None where unknown."""
        ...

    def rotate(self, source: KVSource, rotation: Rotation, spare: RotatedCache | None = None) -> RotatedCache:
        """Return the cache with keys and values rotated.

        `spare` is an earlier result for the same source that is no longer needed: its memory is reused.
        """
        ...

    def attend_float(self, cache: RotatedCache, queries: Float32Array) -> Float32Array:
        """Return head outputs of the unquantized cache, float32, shape of `queries`."""
        ...

    def search_clips(
        self, cache: RotatedCache, queries: Float32Array, ratios: Sequence[float], group_size: int
    ) -> Float32Array:
        """Return head outputs of the quantized cache by clip ratio, (ratios, *queries.shape), float32."""
        ...

    def quantize_pack(self, cache: RotatedCache, ratio: float, group_size: int) -> PackedCache:
        """Return the cache quantized and packed."""
        ...

    def attend_packed(self, cache: PackedCache, queries: Float32Array) -> Float32Array:
        """Return head outputs that read the packed cache, float32, shape of `queries`."""
        ...

    def decode(self, cache: PackedCache, query: Float32Array, w_o: Float32Array) -> Decoded:
        """Return the output of one decode step, attention and W_O, with its times."""
        ...

    def project(self, heads: Float32Array, w_o: Float32Array) -> Float32Array:
        """Return the outputs after W_O, float32, shape (Q, output_dim)."""
        ...

    def nmse(self, observed: Float32Array, reference: Float32Array) -> Float64Array:
        """Return the NMSE of every query, float64, shape (Q,)."""
        ...


@runtime_checkable
class SplittingBackend(Protocol):
    """A backend that can read keys and values from different caches."""

    def attend_packed_keys(
        self, cache: PackedCache, values: RotatedCache, queries: Float32Array
    ) -> Float32Array:
        """Return head outputs that read packed keys and float values, float32, shape of `queries`.

        Both caches have one rotation, and the heads are rotated as the values are.
        """
        ...
