"""A scheme fitted to one layer: its transforms, key mean and clips, and the cache that it stores."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from producer.quantize import get_dialect, lasting_name
from producer.scheme.encoder import RowEncoder
from producer.scheme.registry import ADDED_FIELDS, Scheme
from producer.scheme.stored_cache import StoredCache, StoredSide, WindowFormat, store_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producer.numerics.arrays import Float32Array
    from producer.transform.base import Side
    from producer.transform.dense import DenseTransform
    from producer.transform.transform_file import LayerTransforms

__all__ = ["FittedLayer", "digest_of_layers"]


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

    @property
    def windows(self) -> WindowFormat:
        """The scheme's windows: their values exact, their bytes those of 16 bits; leftover tokens stay in them."""
        return WindowFormat(
            sink=self.scheme.sink, recent=self.scheme.recent, values="exact", leftover="recent"
        )

    def encoder(self, side: Side) -> RowEncoder:
        """Return what codes the keys, or the values."""
        scheme, rotations = self.scheme, self.rotations
        transform = getattr(rotations, side)
        return RowEncoder(
            dialect=get_dialect(getattr(scheme, f"{side}_dialect")),
            transform=transform,
            mean=rotations.key_mean if side == "key" else None,
            clips=getattr(rotations, f"{side}_clips") or (getattr(scheme, f"{side}_clip"),),
            feedback=getattr(rotations, f"{side}_feedback"),
            group_size=scheme.group_of(side) or transform.head_dim,
        )

    def store(self, k: Float32Array, v: Float32Array, windows: WindowFormat | None = None) -> StoredCache:
        """Return keys and values as they are stored.

        Parameters
        ----------
        k, v : float32, shape (num_kv_heads, tokens, head_dim)
            Keys post-RoPE, and values.
        windows : WindowFormat, optional
            The scheme's by default.

        Raises
        ------
        SpecError, NonFiniteError, DegenerateGroupError
            See `producer.scheme.stored_cache.store_cache`.
        """
        return StoredCache(self.store_side("key", k, windows), self.store_side("value", v, windows))

    def store_side(self, side: Side, rows: Float32Array, windows: WindowFormat | None = None) -> StoredSide:
        """Return keys, or values, as they are stored; see `store`."""
        return store_side(self.encoder(side), windows or self.windows, rows)

    def quantize_all(self, k: Float32Array, v: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Return all keys and values as if none were in a window: what a token becomes once it has left it."""
        return self.store(k, v, replace(self.windows, sink=0, recent=0)).restored()


def digest_of_layers(layers: Sequence[FittedLayer] | Mapping[int, FittedLayer]) -> str:
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
