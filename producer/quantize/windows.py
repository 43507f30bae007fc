"""Windows of unquantized tokens: sinks at the start and recent tokens at the end."""

from __future__ import annotations

from dataclasses import dataclass

from producer.errors import SpecError

__all__ = ["TokenCounts", "static_split"]


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a cache by how they are stored.

    Attributes
    ----------
    sink : int
        First tokens, unquantized.
    quantized : int
    recent : int
        Last tokens, unquantized.
    """

    sink: int
    quantized: int
    recent: int

    @property
    def total(self) -> int:
        """All tokens."""
        return self.sink + self.quantized + self.recent


def _require_tokens(**counts: int) -> None:
    for name, count in counts.items():
        if type(count) is not int or count < 0:
            raise SpecError(f"{name} {count!r} is not allowed: an integer, 0 or above")


def static_split(seq_len: int, sink: int, recent: int) -> TokenCounts:
    """Return the split of a sequence that is known whole: sink = min(L, S), recent = min(max(L - S, 0), R).

    Raises
    ------
    SpecError
        If a number is no integer or below 0.
    """
    _require_tokens(seq_len=seq_len, sink=sink, recent=recent)
    first = min(seq_len, sink)
    last = min(seq_len - first, recent)
    return TokenCounts(first, seq_len - first - last, last)
