"""One layer's cache as stored: packed codes, metadata and windows, with its readers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import SpecError
from producer.numerics.arrays import require_finite
from producer.quantize.base import METADATA_BITS
from producer.quantize.steps import round_to
from producer.quantize.storage import load_quantized, store_quantized
from producer.quantize.windows import static_split
from producer.transform.centring import center_keys

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import Dialect, FloatType
    from producer.quantize.storage import StoredGroups
    from producer.transform.dense import DenseTransform
    from producer.transform.transform_file import LayerTransforms

__all__ = ["CacheFormat", "StoredLayer", "StoredSide", "store_layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """How keys and values are stored.

    Attributes
    ----------
    key_dialect, value_dialect : Dialect
    group_size : int
        Values that share a scale.
    sink, recent : int
        First and last tokens that stay unquantized.
    window_dtype : {"float32", "float16", "bfloat16"}
        Type in which they stay.
    """

    key_dialect: "Dialect"
    value_dialect: "Dialect"
    group_size: int
    sink: int
    recent: int
    window_dtype: "FloatType"


@dataclass(frozen=True, slots=True)
class StoredSide:
    """The keys, or the values, of a layer.

    Attributes
    ----------
    dialect : Dialect
    transform : DenseTransform
    mean : float32, shape (num_kv_heads, head_dim), or None
        Was subtracted from what is quantized.
    sink, recent : float32, shape (num_kv_heads, tokens, head_dim)
        The windows in the model's own coordinates, rounded to their type.
    groups : StoredGroups
        Packed codes and metadata of the tokens between the windows.
    """

    dialect: "Dialect"
    transform: "DenseTransform"
    mean: "Float32Array | None"
    sink: "Float32Array"
    recent: "Float32Array"
    groups: "StoredGroups"

    def quantized(self) -> "Float32Array":
        """Return the tokens between the windows as they are coded: centred and transformed, float32."""
        return self.dialect.dequantize(load_quantized(self.dialect, self.groups))

    def restored(self) -> "Float32Array":
        """Return all tokens in the model's own coordinates, float32, shape (num_kv_heads, tokens, head_dim)."""
        middle = self.transform.undo(self.quantized())
        if self.mean is not None:
            middle = middle + self.mean[:, None, :]
        return np.concatenate([self.sink, middle, self.recent], axis=1)


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """The cache of a layer.

    Attributes
    ----------
    key, value : StoredSide
    window_dtype : {"float32", "float16", "bfloat16"}
    """

    key: StoredSide
    value: StoredSide
    window_dtype: "FloatType"

    @property
    def code_bytes(self) -> int:
        """Bytes of the packed codes, counted from the arrays."""
        return self.key.groups.code_bytes + self.value.groups.code_bytes

    @property
    def metadata_bytes(self) -> int:
        """Bytes of scales and the other metadata, counted from the arrays."""
        return self.key.groups.metadata_bytes + self.value.groups.metadata_bytes

    @property
    def window_bytes(self) -> int:
        """Bytes of the windows in their type."""
        windows = (self.key.sink, self.key.recent, self.value.sink, self.value.recent)
        return sum(window.size for window in windows) * METADATA_BITS[self.window_dtype] // 8

    def decode(self, q: "Float32Array", w_o: "Float32Array", scaling: float) -> "Float32Array":
        """Return the projected attention output of one query over the stored cache: one decode step.

        Parameters
        ----------
        q : float32, shape (num_heads, head_dim)
            The query of every head, in the model's own coordinates.
        w_o : float32, shape (num_heads, head_dim, hidden_size)
        scaling : float
            What scores are multiplied by.

        Returns
        -------
        float32, shape (hidden_size,)
            Summed over the heads.

        Notes
        -----
        q M⁻ᵀ meets the codes as they are, q the windows; centred keys take q·μ back. Codes are unpacked, weights are
        those of one softmax, and the values' transform is undone on the sum over tokens, not on every token. All in
        float32.
        """
        heads, head_dim = self.key.sink.shape[0], self.key.sink.shape[2]
        shape = (heads, q.shape[0] // heads, head_dim)
        plain = q.reshape(shape)
        turned = self.key.transform.rotate_queries(q[:, None, :]).reshape(shape)
        middle = turned @ self.key.quantized().swapaxes(-1, -2)
        if self.key.mean is not None:
            middle += plain @ self.key.mean[:, :, None]
        scores = np.concatenate(
            [plain @ self.key.sink.swapaxes(-1, -2), middle, plain @ self.key.recent.swapaxes(-1, -2)],
            axis=-1,
        )
        scores *= np.float32(scaling)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        first, last = self.value.sink.shape[1], scores.shape[-1] - self.value.recent.shape[1]
        outputs = self.value.transform.undo(weights[..., first:last] @ self.value.quantized())
        outputs = outputs + weights[..., :first] @ self.value.sink + weights[..., last:] @ self.value.recent
        projected: Float32Array = outputs.reshape(-1) @ w_o.reshape(-1, w_o.shape[-1])
        return projected


def store_layer(
    cache: CacheFormat,
    rotations: "LayerTransforms",
    clip_ratio: float,
    k: "Float32Array",
    v: "Float32Array",
) -> StoredLayer:
    """Return keys and values as they are stored.

    Parameters
    ----------
    cache : CacheFormat
    rotations : LayerTransforms
        Clip ratios by head are not looked at.
    clip_ratio : float
        Of keys and values, in the meaning of their dialects.
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
        Post-RoPE.

    Raises
    ------
    SpecError
        If the dialect does not take the clip ratio or the group size, or its groups along tokens are not filled.
    NonFiniteError
        If a value is not finite, or too large for the windows' type.
    DegenerateGroupError
        See `producer.quantize.base.Dialect.quantize`.
    """
    return StoredLayer(
        _store_side(cache, cache.key_dialect, (rotations.key, rotations.key_mean), clip_ratio, k),
        _store_side(cache, cache.value_dialect, (rotations.value, None), clip_ratio, v),
        cache.window_dtype,
    )


def _store_side(
    cache: CacheFormat,
    dialect: "Dialect",
    transform: "tuple[DenseTransform, Float32Array | None]",
    clip_ratio: float,
    x: "Float32Array",
) -> StoredSide:
    matrix, mean = transform
    tokens = static_split(x.shape[1], cache.sink, cache.recent)
    if dialect.numerics.group_axis == "tokens" and tokens.quantized % cache.group_size:
        raise SpecError(
            f"{dialect.name}: group_size {cache.group_size} is not allowed: a divisor of the {tokens.quantized} "
            "tokens between the windows, since its groups run along them"
        )
    end = tokens.sink + tokens.quantized
    middle = np.ascontiguousarray(x[:, tokens.sink : end])
    centred = middle if mean is None else center_keys(middle, mean)
    quantized = dialect.quantize(matrix.rotate(centred), clip_ratio, cache.group_size)
    sink, recent = (round_to(part, cache.window_dtype) for part in (x[:, : tokens.sink], x[:, end:]))
    for part in (sink, recent):
        require_finite(part, f"window in {cache.window_dtype}")
    return StoredSide(dialect, matrix, mean, sink, recent, store_quantized(dialect, quantized))
