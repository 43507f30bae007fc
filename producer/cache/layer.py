"""A full-attention layer of the packed cache, with the interface of transformers' cache layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer.cache.libraries import Tensor, load_libraries
from producer.cache.rows import SIDES, Rows, Windows
from producer.errors import SpecError

if TYPE_CHECKING:
    from producer.cache.encoder import SideEncoder

__all__ = ["HANDLE", "PackedLayer"]

torch, transformers = load_libraries()

#: Under this name the attention function finds the layer: in the arguments of attention, or on the keys before 5.24.
HANDLE = "kvint2eval_layer"
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class PackedLayer(transformers.cache_utils.CacheLayerMixin):  # type: ignore[misc, name-defined]
    """One layer's keys and values, packed outside the windows.

    Parameters
    ----------
    encoders : dict of str to SideEncoder
        "key" and "value".
    windows : Windows
    num_kv_heads, head_dim : int
    config : transformers configuration
        Its attention implementation says, at each call, whether attention reads the packed form.

    Attributes
    ----------
    groups : list of (Tensor or None, int, Rows)
        Rows of the batch, their left padding, and their sequences; None for all rows.
    """

    is_compileable = False
    is_croppable = True
    is_sliding = False
    supports_early_init = True

    def __init__(
        self,
        encoders: dict[str, SideEncoder],
        windows: Windows,
        num_kv_heads: int,
        head_dim: int,
        config: Any,
    ) -> None:
        self.groups: list[tuple[Tensor, int, Rows]] = []
        super().__init__()
        self.encoders, self.windows, self.config = encoders, windows, config
        self.num_kv_heads, self.head_dim = num_kv_heads, head_dim
        self.cumulative_length, self.record_past = 0, False
        self.padding: tuple[int, ...] | None = None
        self.batch: int | None = None
        self.dtype: Any = None
        self.device: Any = None

    # What callers slice: dequantized copies, (batch, num_kv_heads, tokens, head_dim), zeros where a row has padding.
    @property
    def keys(self) -> Tensor:
        """All keys, dequantized."""
        return self._whole("key") if self.is_initialized else None

    @keys.setter
    def keys(self, value: Tensor) -> None:
        self._require_none(value)

    @property
    def values(self) -> Tensor:
        """All values, dequantized."""
        return self._whole("value") if self.is_initialized else None

    @values.setter
    def values(self, value: Tensor) -> None:
        self._require_none(value)

    @staticmethod
    def _require_none(value: Tensor) -> None:
        if value is not None:
            raise SpecError("keys and values of a packed layer cannot be set: they are dequantized copies")

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that exist."""
        self.settle()
        return sum(held.untyped_storage().nbytes() for _, _, rows in self.groups for held in rows.tensors())

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take batch size, type and device from the first states, which may hold no token.

        Raises
        ------
        SpecError
            If heads, head dimension, type or padding do not fit.
        """
        for states in (key_states, value_states):
            if states.ndim != 4 or states.shape[1] != self.num_kv_heads or states.shape[3] != self.head_dim:
                raise SpecError(
                    f"states of shape {tuple(states.shape)} are not allowed: (batch, {self.num_kv_heads}, tokens, "
                    f"{self.head_dim}), as in the model that this cache is for"
                )
            if states.dtype not in {getattr(torch, name) for name in _FLOATS}:
                raise SpecError(f"states of {states.dtype} are not allowed: one of {', '.join(_FLOATS)}")
        self.batch, self.dtype, self.device = key_states.shape[0], key_states.dtype, key_states.device
        padding = self.padding or (0,) * self.batch
        if len(padding) != self.batch:
            raise SpecError(
                f"a batch of {self.batch} is not allowed: the padding mask has {len(padding)} rows"
            )
        self.groups = []
        for pads in sorted(set(padding)):
            chosen = [row for row, own in enumerate(padding) if own == pads]
            index = None if len(chosen) == self.batch else torch.tensor(chosen, device=self.device)
            parts = [_rows(states, index) for states in (key_states, value_states)]
            self.groups.append((index, pads, Rows(self.windows, self.encoders, *parts)))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Add tokens and return what attention reads: all keys and values, or for packed attention a handle.

        Notes
        -----
        Of several tokens at once any attention implementation but the packed one reads one form of every earlier
        token: the one that is right for the first of them.
        """
        self.settle()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[0] != self.batch or key_states.dtype != self.dtype:
            raise SpecError(
                f"{key_states.shape[0]} rows of {key_states.dtype} are not allowed: this cache holds {self.batch} of "
                f"{self.dtype}"
            )
        before, count = self.cumulative_length, int(key_states.shape[2])
        views = []
        for index, pads, rows in self.groups:
            first = min(max(pads - before, 0), count)
            view = self.windows.end(rows.length + 1) if count > first else self.windows.end(rows.length)
            rows.append(*(_rows(states, index)[:, :, first:] for states in (key_states, value_states)))
            views.append(view)
        self.cumulative_length += count
        if self._is_packed():
            return self._handle(key_states, kwargs.get("kwargs")), value_states
        read = []
        for side in SIDES:
            for (_, _, rows), view in zip(self.groups, views, strict=True):
                rows.encode_to(view)
            read.append(self._whole(side, views).to(self.dtype))
        self.settle()
        return read[0], read[1]

    def _is_packed(self) -> bool:
        from producer.cache.attention import PACKED  # noqa: PLC0415 - it reads layers

        return bool(self.config._attn_implementation == PACKED)  # noqa: SLF001 - there is no public name for it

    def _handle(self, key_states: Tensor, arguments: dict[str, Any] | None) -> Tensor:
        """Return keys that lead the attention function to this layer."""
        if arguments is not None:
            arguments[HANDLE] = self
            return key_states
        keys = key_states.view(key_states.shape)
        setattr(keys, HANDLE, self)
        return keys

    def settle(self) -> None:
        """Quantize what has left the windows and, unless past is recorded, drop its exact form."""
        for _, _, rows in self.groups:
            rows.encode_to(self.windows.end(rows.length))
            if not self.record_past:
                rows.release()

    def _whole(self, side: str, views: list[int] | None = None) -> Tensor:
        if views is None:
            self.settle()
            views = [self.windows.end(rows.length) for _, _, rows in self.groups]
        first = self.groups[0]
        if first[0] is None and first[1] == 0:
            return first[2].read(side, views[0])
        shape = (self.batch, self.num_kv_heads, self.cumulative_length, self.head_dim)
        whole = torch.zeros(shape, dtype=first[2].exact[side].dtype, device=first[2].exact[side].device)
        for (index, pads, rows), view in zip(self.groups, views, strict=True):
            place = slice(None) if index is None else index.to(whole.device)
            whole[place, :, pads : pads + rows.length] = rows.read(side, view)
        return whole

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length and the offset of what the mask is for."""
        return self.cumulative_length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the tokens that were seen, padding included."""
        return self.cumulative_length

    def get_max_length(self) -> int:
        """Return -1: there is none."""
        return -1

    def offload(self) -> None:
        """Move all tensors to the CPU."""
        self._move("cpu")

    def prefetch(self) -> None:
        """Move all tensors back to the layer's device."""
        self._move(self.device)

    def _move(self, device: Any) -> None:
        for _, _, rows in self.groups:
            rows.to(device)

    def reset(self) -> None:
        """Forget all tokens and the padding."""
        self.groups, self.is_initialized = [], False
        self.cumulative_length, self.record_past = 0, False
        self.padding = self.batch = None

    def activate_past_recording(self) -> None:
        """Keep exact tokens until the next `crop`, so that it can take tokens back."""
        self.settle()
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens, `tokens_to_remove` being their negative number or 0.

        Raises
        ------
        SpecError
            If the number is above 0, or the exact forms of tokens that come back into a window are gone.
        """
        if tokens_to_remove > 0:
            raise SpecError(
                f"crop by {tokens_to_remove} is not allowed: minus the number of tokens to remove, 0 or below"
            )
        if not self.is_initialized:
            return
        removed = min(-tokens_to_remove, self.cumulative_length)
        length = self.cumulative_length - removed
        for _, pads, rows in self.groups if removed else []:
            rows.crop(rows.length - max(length - pads, 0))
        self.cumulative_length = length
        for _, _, rows in self.groups:
            rows.encode_to(self.windows.end(rows.length))
            rows.release()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Put rows into another order; a row may come more than once."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        if self.is_initialized:
            self.batch_select_indices(torch.arange(self.batch).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep rows by their indices, in that order, or by a mask."""
        if not self.is_initialized:
            return
        self.settle()
        if indices.dtype == torch.bool:
            indices = indices.nonzero()[:, 0]
        wanted = [int(row) for row in indices.tolist()]
        count = len(wanted)
        if count == self.batch and wanted == list(range(count)):
            return
        chosen = [row % self.batch for row in wanted] if self.batch else wanted
        groups = []
        for index, pads, rows in self.groups:
            held = list(range(self.batch or 0)) if index is None else index.tolist()
            places = {row: place for place, row in enumerate(held)}
            new = [row for row, old in enumerate(chosen) if old in places]
            if not new:
                continue
            taken = rows.select(torch.tensor([places[chosen[row]] for row in new]))
            whole = None if len(new) == count else torch.tensor(new, device=self.device)
            groups.append((whole, pads, taken))
        if self.padding is not None:
            self.padding = tuple(self.padding[row] for row in chosen)
        self.groups, self.batch = groups, count


def _rows(states: Tensor, index: Tensor) -> Tensor:
    return states if index is None else states.index_select(0, index)
