"""Head outputs of quantized keys and float values, on any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.backend.base import SplittingBackend
from producer.backend.cpu import NumpyBackend

if TYPE_CHECKING:
    from producer.backend.base import Backend, PackedCache, RotatedCache
    from producer.backend.kv_blocks import KVSource
    from producer.numerics.arrays import Float32Array
    from producer.transform.base import Rotation

__all__ = ["key_outputs"]


def key_outputs(
    backend: Backend,
    packed: PackedCache,
    cache: RotatedCache,
    queries: Float32Array,
    source: tuple[KVSource, Rotation],
    coding: tuple[float, int],
) -> Float32Array:
    """Return head outputs that read packed keys and float values: only the keys are quantized.

    Parameters
    ----------
    backend : Backend
    packed, cache : PackedCache, RotatedCache
        Of this backend.
    queries : float32, shape (queries, num_kv_heads, head_dim)
    source : pair of KVSource and Rotation
        What the cache is made from.
    coding : pair of float and int
        Clip ratio and group size of the packed codes.

    Notes
    -----
    A backend that cannot split has its outputs from NumPy: the parts of an error and their cross part add up whatever
    output lies between them.
    """
    if isinstance(backend, SplittingBackend):
        return backend.attend_packed_keys(packed, cache, queries)
    numpy = NumpyBackend(1)
    own = numpy.rotate(*source)
    return numpy.attend_packed_keys(numpy.quantize_pack(own, *coding), own, queries)
