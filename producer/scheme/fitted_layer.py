"""A scheme fitted to one layer: its transforms, key mean and clips, and the cache that it stores."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from producer.quantize import get_dialect, lasting_name
from producer.quantize.heads import quantize_heads
from producer.quantize.storage import bits_per_element_of, store_quantized
from producer.quantize.windows import TokenCounts, static_split
from producer.scheme.registry import ADDED_FIELDS, Scheme
from producer.transform.centring import center_keys
from producer.transform.transform_file import LayerTransforms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from producer.numerics.arrays import Float32Array
    from producer.quantize import Dialect
    from producer.transform.dense import DenseTransform

__all__ = ["CacheSide", "FittedLayer", "digest_of_layers"]


@dataclass(frozen=True, slots=True)
class CacheSide:
    """The keys, or the values, of a layer as attention sees them.

    Attributes
    ----------
    values : float32, shape (num_kv_heads, tokens, head_dim)
        In the model's own coordinates: rotated back, and with the mean key added again.
    tokens : TokenCounts
    bits_per_element : Fraction
        With metadata and windows as the dialect stores them, windows in 16 bits.
    stored_bytes : int
        Counted from the packed codes, the metadata and the windows in 16 bits.
    """

    values: "Float32Array"
    tokens: TokenCounts
    bits_per_element: "Fraction"
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class FittedLayer:
    """A scheme with the rotations and the key mean of one layer.

    Attributes
    ----------
    scheme : Scheme
    rotations : LayerTransforms
    """

    scheme: Scheme
    rotations: LayerTransforms

    def keys(self, k: "Float32Array") -> CacheSide:
        """Return keys as attention sees them; `k` is post-RoPE, (num_kv_heads, tokens, head_dim)."""
        mean, rotation = self.rotations.key_mean, self.rotations.key
        centred = k if mean is None else center_keys(k, mean)
        clips = self.rotations.key_clips or (self.scheme.key_clip,)
        dialect = get_dialect(self.scheme.key_dialect)
        size = self.scheme.group_of("key")
        side = self._side(centred, rotation, (dialect, size), clips, self.rotations.key_feedback)
        if mean is None:
            return side
        middle = slice(side.tokens.sink, side.tokens.sink + side.tokens.quantized)
        values = k.copy()
        values[:, middle] = side.values[:, middle] + mean[:, None, :]
        return CacheSide(values, side.tokens, side.bits_per_element, side.stored_bytes)

    def values(self, v: "Float32Array") -> CacheSide:
        """Return values as attention sees them; `v` is (num_kv_heads, tokens, head_dim)."""
        dialect = get_dialect(self.scheme.value_dialect)
        clips = self.rotations.value_clips or (self.scheme.value_clip,)
        size = self.scheme.group_of("value")
        return self._side(v, self.rotations.value, (dialect, size), clips, self.rotations.value_feedback)

    def quantize_all(self, k: "Float32Array", v: "Float32Array") -> "tuple[Float32Array, Float32Array]":
        """Return all keys and values as if none were in a window: what a token becomes once it has left it."""
        whole = FittedLayer(_without_windows(self.scheme), self.rotations)
        return whole.keys(k).values, whole.values(v).values

    def _side(
        self,
        x: "Float32Array",
        rotation: "DenseTransform",
        grouped: "tuple[Dialect, int]",
        clips: tuple[float, ...],
        factors: "Float32Array | None",
    ) -> CacheSide:
        dialect, size = grouped[0], grouped[1] or x.shape[-1]
        tokens = static_split(x.shape[1], self.scheme.sink, self.scheme.recent)
        if dialect.numerics.group_axis == "heads":
            size = x.shape[0] * x.shape[2]
        if dialect.numerics.group_axis == "tokens":
            # What does not fill a group stays in the residual window.
            left = tokens.quantized % size
            tokens = TokenCounts(tokens.sink, tokens.quantized - left, tokens.recent + left)
        middle = slice(tokens.sink, tokens.sink + tokens.quantized)
        rows = rotation.rotate(np.ascontiguousarray(x[:, middle]))
        quantized = quantize_heads(dialect, rows, clips, size, factors)
        values = x.copy()
        values[:, middle] = rotation.undo(dialect.dequantize(quantized))
        stored = store_quantized(dialect, quantized)
        windows = 2 * (tokens.sink + tokens.recent) * x.shape[0] * x.shape[2]
        bits = bits_per_element_of(dialect.numerics, size, tokens)
        return CacheSide(values, tokens, bits, stored.code_bytes + stored.metadata_bytes + windows)


def _without_windows(scheme: Scheme) -> Scheme:
    return replace(scheme, sink=0, recent=0)


def digest_of_layers(layers: "Sequence[FittedLayer] | Mapping[int, FittedLayer]") -> str:
    """Return a SHA-256 of all that a fitted scheme does to a cache, whatever its name."""
    digest = hashlib.sha256()
    for index in range(len(layers)):
        layer = layers[index]
        rotations = layer.rotations
        fields = {name: value for name, value in asdict(layer.scheme).items() if name != "name"}
        # As it was before there were these, so that states of earlier runs are found again; two came together.
        for together in (("balance", "rounding"), ("value_group_size",)):
            if all(fields[name] == ADDED_FIELDS[name] for name in together):
                fields = {name: value for name, value in fields.items() if name not in together}
        fields |= {name: lasting_name(fields[name]) for name in ("key_dialect", "value_dialect")}
        clips = [rotations.key_clips, rotations.value_clips]
        digest.update(json.dumps([fields, clips, rotations.key_mean is not None], sort_keys=True).encode())
        transforms: tuple[DenseTransform, ...] = (rotations.key, rotations.value)
        arrays = [array for transform in transforms for array in (transform.matrices, transform.inverses)]
        if rotations.key_mean is not None:
            arrays.append(rotations.key_mean)
        arrays += [array for array in (rotations.key_feedback, rotations.value_feedback) if array is not None]
        for array in arrays:
            digest.update(f"{array.shape}".encode() + array.astype("<f4").tobytes())
    return digest.hexdigest()
