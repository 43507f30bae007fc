"""The KV cache of a layer as it is stored: sink, packed codes with metadata, recent window; and what reads it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from producer.errors import SpecError
from producer.numerics.arrays import require_finite
from producer.quantize.base import METADATA_BITS
from producer.quantize.steps import round_to
from producer.quantize.windows import TokenCounts, static_split

if TYPE_CHECKING:
    from producer.numerics.arrays import Float32Array
    from producer.quantize.base import FloatType
    from producer.quantize.storage import StoredGroups
    from producer.scheme.encoder import RowEncoder

__all__ = ["StoredCache", "StoredSide", "WindowFormat", "store_cache", "store_side"]

WindowValues: TypeAlias = Literal["rounded", "exact"]
Leftover: TypeAlias = Literal["refused", "recent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFormat:
    """Which tokens stay unquantized, and how.

    Attributes
    ----------
    sink, recent : int
        First and last tokens that stay unquantized.
    dtype : {"float32", "float16", "bfloat16"}
        Type in which they stay, and in which their bytes are counted.
    values : {"rounded", "exact"}
        Whether a reader sees them rounded to that type, as contract v2 asks, or as they were: then an error is that
        of quantization alone.
    leftover : {"refused", "recent"}
        What becomes of tokens that do not fill a group, where groups run along tokens: an error, as in contract v2,
        whose storage has whole groups between the windows that it states; or they stay in the recent window.
    """

    sink: int
    recent: int
    dtype: FloatType = "bfloat16"
    values: WindowValues = "rounded"
    leftover: Leftover = "refused"

    def split(self, encoder: RowEncoder, seq_len: int) -> TokenCounts:
        """Return how many of `seq_len` tokens are in the sink, quantized, and in the recent window.

        Raises
        ------
        SpecError
            If tokens are left over and that is refused.
        """
        tokens = static_split(seq_len, self.sink, self.recent)
        if encoder.dialect.numerics.group_axis != "tokens":
            return tokens
        left = tokens.quantized % encoder.group_size
        if left and self.leftover == "refused":
            raise SpecError(
                f"{encoder.dialect.name}: group_size {encoder.group_size} is not allowed: a divisor of the "
                f"{tokens.quantized} tokens between the windows, since its groups run along them"
            )
        return TokenCounts(tokens.sink, tokens.quantized - left, tokens.recent + left)


@dataclass(frozen=True, slots=True)
class StoredSide:
    """The keys, or the values, of a layer.

    Attributes
    ----------
    encoder : RowEncoder
    sink, recent : float32, shape (num_kv_heads, tokens, head_dim)
        The windows in the model's own coordinates, as a reader sees them.
    groups : StoredGroups
        Packed codes and metadata of the tokens between the windows.
    window_dtype : {"float32", "float16", "bfloat16"}
        Type in which the windows' bytes are counted.
    """

    encoder: RowEncoder
    sink: Float32Array
    groups: StoredGroups
    recent: Float32Array
    window_dtype: FloatType

    @property
    def tokens(self) -> TokenCounts:
        """Tokens by how they are stored."""
        return TokenCounts(self.sink.shape[1], self._quantized_tokens, self.recent.shape[1])

    @property
    def _quantized_tokens(self) -> int:
        """Tokens of the packed codes."""
        numerics = self.encoder.dialect.numerics
        if numerics.group_axis != "tokens":
            return int(self.groups.codes.shape[-2])
        # Transposed: channels, then the groups' scalars along the tokens.
        groups = self.groups.metadata.shape[-1] // numerics.metadata_scalars
        return int(groups) * self.encoder.group_size

    def coded(self) -> Float32Array:
        """Return the tokens between the windows as they are coded: centred and transformed, float32."""
        return self.encoder.coded(self.encoder.unpack(self.groups))

    def restored(self) -> Float32Array:
        """Return all tokens in the model's own coordinates, float32, shape (num_kv_heads, tokens, head_dim)."""
        middle = self.encoder.decode(self.encoder.unpack(self.groups))
        return np.concatenate([self.sink, middle, self.recent], axis=1)

    @property
    def window_bytes(self) -> int:
        """Bytes of the windows in their type."""
        return (self.sink.size + self.recent.size) * METADATA_BITS[self.window_dtype] // 8

    @property
    def stored_bytes(self) -> int:
        """Bytes of codes, metadata and windows, counted from the arrays."""
        return self.groups.code_bytes + self.groups.metadata_bytes + self.window_bytes

    @property
    def bits_per_element(self) -> Fraction:
        """Bits of an element, the mean over all tokens, exactly; 0 tokens have none."""
        heads, _, head_dim = self.sink.shape
        return Fraction(8 * self.stored_bytes, heads * self.tokens.total * head_dim)


@dataclass(frozen=True, slots=True)
class StoredCache:
    """The cache of a layer.

    Attributes
    ----------
    key, value : StoredSide
    """

    key: StoredSide
    value: StoredSide

    @property
    def code_bytes(self) -> int:
        """Bytes of the packed codes, counted from the arrays."""
        return self.key.groups.code_bytes + self.value.groups.code_bytes

    @property
    def metadata_bytes(self) -> int:
        """Bytes of scales and what stands beside them, counted from the arrays."""
        return self.key.groups.metadata_bytes + self.value.groups.metadata_bytes

    @property
    def window_bytes(self) -> int:
        """Bytes of the windows in their type."""
        return self.key.window_bytes + self.value.window_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of codes, metadata and windows."""
        return self.key.stored_bytes + self.value.stored_bytes

    def restored(self) -> tuple[Float32Array, Float32Array]:
        """Return all keys and all values in the model's own coordinates; see `StoredSide.restored`."""
        return self.key.restored(), self.value.restored()

    def decode(self, q: Float32Array, w_o: Float32Array, scaling: float) -> Float32Array:
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
        key, value = self.key, self.value
        heads, head_dim = key.sink.shape[0], key.sink.shape[2]
        shape = (heads, q.shape[0] // heads, head_dim)
        plain = q.reshape(shape)
        turned = key.encoder.transform.rotate_queries(q[:, None, :]).reshape(shape)
        middle = turned @ key.coded().swapaxes(-1, -2)
        if key.encoder.mean is not None:
            middle += plain @ key.encoder.mean[:, :, None]
        scores = np.concatenate(
            [plain @ key.sink.swapaxes(-1, -2), middle, plain @ key.recent.swapaxes(-1, -2)],
            axis=-1,
        )
        scores *= np.float32(scaling)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        first, last = value.sink.shape[1], scores.shape[-1] - value.recent.shape[1]
        outputs = value.encoder.transform.undo(weights[..., first:last] @ value.coded())
        outputs = outputs + weights[..., :first] @ value.sink + weights[..., last:] @ value.recent
        projected: Float32Array = outputs.reshape(-1) @ w_o.reshape(-1, w_o.shape[-1])
        return projected


def store_cache(
    encoders: tuple[RowEncoder, RowEncoder], windows: WindowFormat, k: Float32Array, v: Float32Array
) -> StoredCache:
    """Return keys and values as they are stored.

    Parameters
    ----------
    encoders : pair of RowEncoder
        Of keys and of values.
    windows : WindowFormat
    k, v : float32, shape (num_kv_heads, tokens, head_dim)
        Keys post-RoPE, and values.

    Raises
    ------
    SpecError
        If a dialect does not take its clip ratio or group size, or its groups along tokens are not filled.
    NonFiniteError
        If a value is not finite, or too large for the windows' type.
    DegenerateGroupError
        See `producer.quantize.base.Dialect.quantize`.
    """
    return StoredCache(store_side(encoders[0], windows, k), store_side(encoders[1], windows, v))


def store_side(encoder: RowEncoder, windows: WindowFormat, rows: Float32Array) -> StoredSide:
    """Return keys, or values, as they are stored; see `store_cache`."""
    tokens = windows.split(encoder, rows.shape[1])
    end = tokens.sink + tokens.quantized
    groups = encoder.pack(encoder.encode(rows[:, tokens.sink : end]))
    sink, recent = rows[:, : tokens.sink], rows[:, end:]
    if windows.values == "rounded":
        sink, recent = (round_to(part, windows.dtype) for part in (sink, recent))
        for part in (sink, recent):
            require_finite(part, f"window in {windows.dtype}")
    return StoredSide(encoder, sink, groups, recent, windows.dtype)
