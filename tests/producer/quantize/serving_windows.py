"""Windows of caches while they are served: OSCAR's prefill and decode, and KIVI's residuals."""

from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.quantize.windows import TokenCounts, static_split

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    if chunk is not None and (type(chunk) is not int or chunk < 1):
        raise SpecError(f"chunk {chunk!r} is not allowed: an integer, 1 or above")
    last_chunk = prompt if chunk is None or prompt == 0 else (prompt - 1) % chunk + 1
    return static_split(prompt, sink, min(last_chunk, recent))


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
    if residual == 0:
        raise SpecError("residual 0 is not allowed: 1 or above")
    return static_split(seq_len, 0, seq_len % residual)


def kivi_value_split(seq_len: int, residual: int) -> TokenCounts:
    """Return KIVI's split of values: all but the last `residual` tokens quantized."""
    return static_split(seq_len, 0, residual)
