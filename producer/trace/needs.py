"""Disk and memory that a capture needs, counted before it starts: an upper estimate.

SmolLM2 from its GGUF file on 2048 tokens: 2.7 GB by this count, 2.0 GB measured at the peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer.errors import MemoryLimitError
from producer.system.environment import available_bytes
from producer.trace.checkpoint import weights_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.trace.checkpoint import Checkpoint

__all__ = ["CaptureNeeds", "capture_needs", "require_memory"]

# Interpreter, PyTorch and transformers: measured at 0.6 GB, rounded up.
_BASE_BYTES = 700 << 20
# Arrays of tokens by hidden or intermediate channels that a pass holds at once.
_STATES_AT_ONCE = 8
# Arrays of tokens by words: logits, and what the loss makes of them.
_LOGITS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class CaptureNeeds:
    """What a capture needs, in bytes.

    Attributes
    ----------
    disk_bytes : int
        Of the trace.
    memory_bytes : int
        Of the model's device and of this machine together, about.
    """

    disk_bytes: int
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.disk_bytes / 1e9:.3g} GB on disk and about {self.memory_bytes / 1e9:.3g} GB of memory"


def _size(config: Any, *names: str) -> int:
    """Return the first of several sizes that a configuration has."""
    return next((int(value) for name in names if isinstance(value := getattr(config, name, None), int)), 0)


def capture_needs(
    checkpoint: Checkpoint, tokens: int, sequences: Sequence[object], dtype: str
) -> CaptureNeeds:
    """Return what a capture needs, from the model's configuration alone.

    Parameters
    ----------
    checkpoint : Checkpoint
    tokens : int
        Of every sequence.
    sequences : sequence
    dtype : {"float32", "float16", "bfloat16"}

    Raises
    ------
    SpecError
        If the configuration is of no model that is known to transformers.
    """
    config = checkpoint.config.get_text_config()
    heads = _size(config, "num_attention_heads", "n_head")
    kv_heads = _size(config, "num_key_value_heads", "num_kv_heads") or heads
    hidden = _size(config, "hidden_size", "n_embd")
    head_dim = _size(config, "head_dim") or hidden // max(heads, 1)
    layers = _size(config, "num_hidden_layers", "n_layer")
    rows = (heads + 2 * kv_heads) * tokens * len(sequences)
    disk = 4 * layers * head_dim * (rows + heads * hidden)
    weights = weights_bytes(checkpoint, dtype)
    # A GGUF file is taken apart into tensors of its own before they become the model's.
    copies = 2 if checkpoint.is_gguf else 1
    width = max(hidden, _size(config, "intermediate_size"))
    states = 4 * tokens * (_STATES_AT_ONCE * width + _LOGITS_AT_ONCE * _size(config, "vocab_size"))
    return CaptureNeeds(disk, _BASE_BYTES + copies * weights + states)


def require_memory(needs: CaptureNeeds, device: str) -> None:
    """Raise when a capture on a CPU would not fit into the memory that this machine has free.

    Raises
    ------
    MemoryLimitError
        With the bytes it would need.
    """
    limit = available_bytes()
    if device == "cpu" and limit is not None and needs.memory_bytes > limit:
        raise MemoryLimitError(
            f"the model and its pass need about {needs.memory_bytes / 1e9:.3g} GB of memory, {limit / 1e9:.3g} GB are "
            "free: take fewer tokens, --dtype bfloat16, or --device cuda",
            needed_bytes=needs.memory_bytes,
            limit_bytes=limit,
        )
