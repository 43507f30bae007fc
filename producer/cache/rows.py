"""Sequences of one length in one layer: sink and recent window exact, the body between them packed and append-only.

Position p of a sequence of L tokens is exact while p < sink or p ≥ e(L), and its stored form once p < e(L), with
e(L) = max(sink, F·⌊(L - recent)/F⌋): tokens leave the window in blocks that end at multiples of F, whatever chunks they
came in, and the window holds `recent` to `recent + F - 1` of them. A group along tokens that is not full waits there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.cache.libraries import Tensor, load_libraries
from producer.errors import NonFiniteError, SpecError

if TYPE_CHECKING:
    from producer.cache.encoder import SideEncoder

__all__ = ["SIDES", "Rows", "Windows"]

torch, _ = load_libraries()

SIDES = ("key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Which tokens stay exact, and in which type.

    Attributes
    ----------
    sink, recent : int
    flush : int
        Tokens of a block that leaves the window at once; blocks end at its multiples.
    dtype : torch.dtype or None
        Type in which exact tokens are kept; None for the model's own, which keeps them as they are.
    """

    sink: int
    recent: int
    flush: int
    dtype: Tensor = None

    def end(self, length: int) -> int:
        """Return e(L), the position behind the last token that is stored quantized."""
        return max(self.sink, (length - self.recent) // self.flush * self.flush)


class Rows:
    """Keys and values of sequences of one length.

    Attributes
    ----------
    length : int
        Tokens of each.
    start : int
        Position of the first exact token behind the sink: e(length), or before it while past is recorded.
    stored : int
        Position behind the last token in the body, at least `windows.sink`.
    exact : dict of str to Tensor
        By side: sink, then tokens from `start` on; (rows, num_kv_heads, tokens, head_dim).
    codes, metadata : dict of str to Tensor
        By side: the body in units of its encoder, (rows, num_kv_heads, units, …).
    """

    def __init__(
        self, windows: Windows, encoders: dict[str, SideEncoder], key_states: Tensor, value_states: Tensor
    ) -> None:
        self.windows, self.encoders = windows, encoders
        self.length, self.start, self.stored = 0, windows.sink, windows.sink
        self.exact = {
            side: self._kept(states[:, :, :0])
            for side, states in zip(SIDES, (key_states, value_states), strict=True)
        }
        self.codes: dict[str, Tensor] = {}
        self.metadata: dict[str, Tensor] = {}

    @property
    def body(self) -> int:
        """Tokens of the body."""
        return self.stored - self.windows.sink

    @property
    def sink(self) -> int:
        """Tokens of the sink."""
        return min(self.length, self.windows.sink)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that are held."""
        return [*self.exact.values(), *self.codes.values(), *self.metadata.values()]

    def append(self, key_states: Tensor, value_states: Tensor) -> None:
        """Add tokens to the exact ones.

        Raises
        ------
        NonFiniteError
            If a value does not fit the type of the windows.
        """
        for side, states in zip(SIDES, (key_states, value_states), strict=True):
            self.exact[side] = torch.cat([self.exact[side], self._kept(states)], dim=2)
        self.length += int(key_states.shape[2])

    def _kept(self, states: Tensor) -> Tensor:
        dtype = self.windows.dtype
        if dtype is None or states.dtype == dtype:
            return states
        kept = states.to(dtype)
        if not torch.isfinite(kept).all():
            raise NonFiniteError(f"a key or value does not fit a window in {dtype}: take window_dtype=None")
        return kept

    def encode_to(self, end: int) -> None:
        """Quantize the tokens up to a position, each once; `end` is some e(L)."""
        if end <= self.stored:
            return
        first = self.sink + self.stored - self.start
        place = slice(first, first + end - self.stored)
        for side, encoder in self.encoders.items():
            rows = self.exact[side][:, :, place].float().cpu().numpy()
            device = self.exact[side].device
            for held, part in zip((self.codes, self.metadata), encoder.encode(rows), strict=True):
                new = part.to(device)
                held[side] = torch.cat([held[side], new], dim=2) if side in held else new
        self.stored = end

    def release(self) -> None:
        """Drop the exact form of tokens that are behind the window for good."""
        end = self.windows.end(self.length)
        if end <= self.start:
            return
        left = end - self.start
        for side, held in self.exact.items():
            self.exact[side] = torch.cat([held[:, :, : self.sink], held[:, :, self.sink + left :]], dim=2)
        self.start = end

    def rest(self, side: str, start: int) -> Tensor:
        """Return the exact tokens from a position on, at or after `self.start`; without the sink."""
        return self.exact[side][:, :, self.sink + start - self.start :]

    def restored(self, side: str, end: int) -> Tensor:
        """Return body tokens up to position `end` in the model's coordinates, float32, or float64 as the model is."""
        encoder = self.encoders[side]
        units = (end - self.windows.sink) // encoder.unit
        wide = torch.float64 if self.exact[side].dtype == torch.float64 else torch.float32
        return encoder.restore(self.codes[side][:, :, :units], self.metadata[side][:, :, :units], wide)

    def read(self, side: str, end: int) -> Tensor:
        """Return all tokens: the body up to position `end`, and what is behind it exact, in the windows' type."""
        held = self.exact[side]
        if end == self.windows.sink and self.start == self.windows.sink:
            return held
        middle = self.restored(side, end).to(held.dtype)
        return torch.cat([held[:, :, : self.sink], middle, self.rest(side, end)], dim=2)

    def crop(self, tokens: int) -> None:
        """Remove the last tokens.

        Raises
        ------
        SpecError
            If their exact forms, which are then in the window again, are gone.
        """
        length = max(self.length - tokens, 0)
        end = self.windows.end(length)
        if self.start > end:
            raise SpecError(
                f"crop by {tokens} tokens is not allowed: tokens {end} to {self.start - 1} would be exact again "
                "and are stored quantized; call activate_past_recording() before the tokens that may be taken back"
            )
        if self.stored > end:
            for side, encoder in self.encoders.items():
                units = (end - self.windows.sink) // encoder.unit
                for held in (self.codes, self.metadata):
                    held[side] = held[side][:, :, :units].clone()
            self.stored = end
        left = min(length, self.windows.sink) + max(length - self.start, 0)
        self.exact = {side: held[:, :, :left].clone() for side, held in self.exact.items()}
        self.length = length

    def select(self, indices: Tensor) -> Rows:
        """Return rows by their indices, which may repeat."""
        return self._map(lambda held: held.index_select(0, indices.to(held.device)))

    def to(self, device: Tensor) -> None:
        """Move all tensors to a device."""
        moved = self._map(lambda held: held.to(device, non_blocking=True))
        self.exact, self.codes, self.metadata = moved.exact, moved.codes, moved.metadata

    def _map(self, change: Tensor) -> Rows:
        new = object.__new__(Rows)
        new.windows, new.encoders = self.windows, self.encoders
        new.length, new.start, new.stored = self.length, self.start, self.stored
        new.exact, new.codes, new.metadata = (
            {side: change(held) for side, held in part.items()}
            for part in (self.exact, self.codes, self.metadata)
        )
        return new
