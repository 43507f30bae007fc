"""Windows of unquantized tokens: OSCAR's sink and recent windows, and KIVI's residuals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "TokenCounts",
    "decode_windows",
    "kivi_key_split",
    "kivi_value_split",
    "prefill_windows",
    "static_split",
]


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


def prefill_windows(prompt: int, sink: int, recent: int, chunk: int | None = None) -> TokenCounts:
    """Return what OSCAR stores of a prompt.

    Parameters
    ----------
    prompt, sink, recent : int
        Tokens.
    chunk : int, optional
        Tokens of a prefill chunk; the whole prompt by default.

    Notes
    -----
    A chunk that is not the last stores everything past the sink quantized, so after a chunked prefill the recent
    window holds tokens of the last chunk only.

    Raises
    ------
    SpecError
        If a number is no integer or below 0, or the chunk is empty.
    """
    _require_tokens(prompt=prompt, sink=sink, recent=recent)
    if chunk is not None and (type(chunk) is not int or chunk < 1):
        raise SpecError(f"chunk {chunk!r} is not allowed: an integer, 1 or above")
    first = min(prompt, sink)
    last_chunk = prompt if chunk is None or prompt == 0 else (prompt - 1) % chunk + 1
    last = min(prompt - first, last_chunk, recent)
    return TokenCounts(first, prompt - first - last, last)


def decode_windows(start: TokenCounts, recent: int, page: int = 8) -> "Iterator[TokenCounts]":
    """Yield OSCAR's window sizes after each decoded token, indefinitely.

    Parameters
    ----------
    start : TokenCounts
        After the prefill.
    recent : int
        Size R that the window is configured to; a multiple of `page`.
    page : int
        Tokens that one flush quantizes: four times the bytes of an unquantized element, 8 for bfloat16.

    Notes
    -----
    A counter starts at max(0, R + page - 1 - H), H the recent tokens after the prefill. A step that finds it at 0
    quantizes the oldest `page` tokens of the window and sets it to page - 1; then the new token enters. So the
    window is a saw-tooth from R to R + page - 1, 259.5 tokens on average for 256 and 8.

    Raises
    ------
    SpecError
        If `recent` is no multiple of `page`.
    """
    if page < 1 or recent % page:
        raise SpecError(f"recent window {recent} is not allowed: a multiple of the page of {page} tokens")
    sink, quantized, window = start.sink, start.quantized, start.recent
    counter = max(0, recent + page - 1 - window)
    while True:
        if counter == 0:
            quantized += page
            window -= page
            counter = page
        counter -= 1
        window += 1
        yield TokenCounts(sink, quantized, window)


def kivi_key_split(seq_len: int, residual: int) -> TokenCounts:
    """Return KIVI's split of keys: whole blocks of `residual` tokens quantized, the rest in float16.

    Raises
    ------
    SpecError
        If a number is no integer or below 0, or the residual is 0.
    """
    _require_tokens(seq_len=seq_len, residual=residual)
    if residual == 0:
        raise SpecError("residual 0 is not allowed: 1 or above")
    return TokenCounts(0, seq_len - seq_len % residual, seq_len % residual)


def kivi_value_split(seq_len: int, residual: int) -> TokenCounts:
    """Return KIVI's split of values: all but the last `residual` tokens quantized."""
    return static_split(seq_len, 0, residual)
