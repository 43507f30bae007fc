"""Models, loaded in full and shown to be ones whose attention is known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer.trace.checkpoint import Checkpoint, load_weights, open_checkpoint
from producer.trace.model import LoadedModel
from producer.trace.model_info import ModelInfo
from producer.trace.probe import probe_attention, require_hidden

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe", "load_model"]

_PROBE_TOKENS = 80


def load_model(
    source: Path | Checkpoint, *, tokens: int = _PROBE_TOKENS, device: str = "cpu", dtype: str = "float32"
) -> LoadedModel:
    """Return a model from a folder of transformers, or from a GGUF file.

    Parameters
    ----------
    source : Path or Checkpoint
    tokens : int
        Length of the sequences that it will read: a layer with a shorter window is refused.
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``.
    dtype : {"float32", "float16", "bfloat16"}

    Raises
    ------
    SpecError
        As `producer.trace.checkpoint.open_checkpoint`, `load_weights` and `producer.trace.probe.probe_attention`.
    ExtraMissingError
        If torch or transformers is not installed.
    BackendUnavailableError
        If the device is not there.
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    model = load_weights(checkpoint, device, dtype)
    info = describe(model, checkpoint.path.name, tokens, dtype, checkpoint.identity)
    loaded = LoadedModel(model, checkpoint.tokenizer, info)
    require_hidden(loaded)
    return loaded


def describe(model: Any, name: str, tokens: int, dtype: str, identity: dict[str, Any]) -> ModelInfo:
    """Return what a trace says of a model of `transformers`: its identity, and the shape that the probe finds.

    Raises
    ------
    SpecError
        As `producer.trace.probe.probe_attention`.
    """
    found = probe_attention(model, tokens, dtype)
    is_same = len(set(found.scalings)) == 1
    return ModelInfo(
        name=name,
        architecture=type(model).__name__,
        num_layers=found.num_layers,
        num_heads=found.num_heads,
        num_kv_heads=found.num_kv_heads,
        head_dim=found.head_dim,
        hidden_size=found.hidden_size,
        scaling=found.scalings[0],
        layer_scaling=() if is_same else found.scalings,
        vocab_size=found.vocab_size,
        dtype=dtype,
        **identity,
    )
