"""Masks that models ask their attention for, compared with the causal one."""

from __future__ import annotations

from typing import Any

from producer.errors import SpecError
from producer.trace.libraries import libraries

__all__ = ["MaskRegister", "causal_attention"]

# Rows of a mask that are evaluated at a time.
_ROWS = 1024


class MaskRegister:
    """A mask function for `transformers` that makes no mask of a causal one, and remembers all others.

    Parameters
    ----------
    tokens : int or None
        Length for which masks are evaluated; that of the sequence if None.
    """

    def __init__(self, tokens: int | None) -> None:
        self._tokens = tokens
        self._found: dict[int, tuple[Any, str]] = {}

    def __call__(self, *_args: Any, mask_function: Any, q_length: Any, **options: Any) -> Any:
        """Return None for the causal mask, else a mask by which `require_causal` knows it again."""
        torch, _ = libraries()
        count = self._tokens or int(q_length)
        padding = options.get("attention_mask")
        if padding is not None and not bool(padding.all()):
            fault: str | None = "padding"
        else:
            try:
                fault = self._fault(mask_function, count)
            except Exception as error:  # noqa: BLE001 - a function of any model
                fault = f"a mask that cannot be evaluated ({type(error).__name__}: {error})"
        if fault is None:
            return None
        mark = torch.ones((1, 1, 1, 1), dtype=torch.bool)
        self._found[mark.untyped_storage().data_ptr()] = mark, fault
        return mark

    @staticmethod
    def _fault(mask_function: Any, count: int) -> str | None:
        """Return how a mask of `count` tokens differs from the causal one, and up to which length it is that."""
        torch, _ = libraries()
        columns = torch.arange(count)[None]
        for first in range(0, count, _ROWS):
            rows = torch.arange(first, min(first + _ROWS, count))[:, None]
            is_read = torch.as_tensor(mask_function(0, 0, rows, columns)).expand(rows.shape[0], count)
            wrong = (is_read != (columns <= rows)).any(dim=1)
            if not bool(wrong.any()):
                continue
            row = first + int(wrong.nonzero()[0])
            if bool((is_read[row - first] & (columns[0] > row)).any()):
                return "a mask that reads later tokens"
            return (
                f"a mask that leaves out earlier tokens, as a window of {row} tokens does; take sequences of at most "
                f"{row} tokens"
            )
        return None

    def require_causal(self, mask: Any, count: int, where: str) -> None:
        """Raise unless a mask that a layer hands its attention is the causal one.

        Raises
        ------
        SpecError
            With what it is instead.
        """
        torch, _ = libraries()
        if mask is None:
            return
        known = self._found.get(mask.untyped_storage().data_ptr())
        if known is not None:
            raise SpecError(f"{where} asks its attention for {known[1]}")
        causal = torch.ones((count, count), dtype=torch.bool, device=mask.device).tril()
        if mask.dtype != torch.bool:
            least = torch.finfo(mask.dtype).min
            own = torch.where(mask <= least / 2, least, mask.float())
            expected = torch.where(causal, 0.0, least)
        else:
            own, expected = mask, causal
        if mask.shape[-2:] != causal.shape or not bool((own == expected).all()):
            raise SpecError(f"{where} adds a bias of its own to its scores, which is not known here")


def causal_attention(q: Any, k: Any, v: Any, scaling: float) -> Any:
    """Return causal attention as torch computes it, (1, num_heads, T, head_dim)."""
    torch, _ = libraries()
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scaling, enable_gqa=True
    )
