"""Capture of a trace from a model, checked against the model's own attention and perplexity."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.trace.attention import last_future, softmax
from producer.trace.capture_state import CaptureState
from producer.trace.files import (
    Trace,
    file_bytes,
    read_trace,
    write_arrays,
    write_manifest,
    write_token_ids,
)
from producer.trace.layer import LayerTrace
from producer.trace.model import (
    LoadedModel,
    causal_attention,
    negative_log_likelihoods,
    output_projections,
    output_weights,
    to_numpy,
    use_attention,
)
from producer.trace.probe import OUTPUT_BOUND, probe_attention, require_hidden
from producer.trace.text_tokens import cut_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from producer.numerics.arrays import Float32Array
    from producer.system.progress import Progress
    from producer.trace.texts import SequenceInfo

__all__ = [
    "VERIFY_QUERIES",
    "attention_output",
    "capture_sequences",
    "capture_trace",
    "require_disk",
    "require_lengths",
]

#: Last positions whose attention output is compared with the model's.
VERIFY_QUERIES = 64
# In the place of the norm of an output of zeros.
_TINY = 1e-30


def attention_output(layer: LayerTrace, num_queries: int) -> Float32Array:
    """Return the attention output after W_O of the last positions, float32, shape (queries, hidden_size).

    Scores, softmax and sums in float64; the sum over all query heads, without a bias.
    """
    if layer.w_o is None:
        raise SpecError(f"layer {layer.layer_idx}: there are no output weights")
    total = 0
    first = layer.seq_len - num_queries
    future = last_future(layer.seq_len, num_queries)
    for head in range(layer.q.shape[0]):
        kv = head // layer.group
        scores = layer.q[head, first:].astype(np.float64) @ layer.k[kv].T * layer.scaling
        scores[future] = -np.inf
        total = total + softmax(scores) @ layer.v[kv] @ layer.w_o[head]
    return np.asarray(total, dtype=np.float32)


def require_lengths(tokens: int, per_text: int) -> None:
    """Raise `SpecError` unless sequences can have so many tokens, and a text so many sequences."""
    if tokens <= VERIFY_QUERIES or per_text < 1:
        raise SpecError(
            f"{per_text} sequences of {tokens} tokens are not allowed: at least 1, above {VERIFY_QUERIES}"
        )


def require_disk(folder: Path, needed: int) -> None:
    """Raise `SpecError` unless a folder, or the nearest above it that exists, has so many bytes left."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise SpecError(
            f"output {folder} is not allowed: a trace of {needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free; take "
            "fewer tokens or sequences, or another disk"
        )


def capture_trace(
    loaded: LoadedModel, texts: list[Path], tokens: int, per_text: int, folder: Path, progress: Progress
) -> Trace:
    """Write a trace of a model's attention over texts, and return it.

    Parameters
    ----------
    loaded : LoadedModel
    texts : list of Path
        UTF-8 files.
    tokens : int
        Tokens of a sequence, above 64.
    per_text : int
        Sequences that are cut from each text, one after the other.
    folder : Path
    progress : Progress

    Raises
    ------
    SpecError
        As `producer.trace.text_tokens.cut_texts` and `capture_sequences`.
    """
    require_lengths(tokens, per_text)
    cut, _ = cut_texts(loaded.tokenizer, texts, tokens, per_text)
    return capture_sequences(loaded, cut, folder, progress)


def capture_sequences(
    loaded: LoadedModel,
    cut: Sequence[tuple[SequenceInfo, npt.NDArray[np.int32]]],
    folder: Path,
    progress: Progress,
) -> Trace:
    """Write a trace of a model's attention over sequences, and return it.

    Parameters
    ----------
    loaded : LoadedModel
    cut : sequence of (SequenceInfo, int32 array of shape (tokens,))
        Of `producer.trace.text_tokens.cut_texts`.
    folder : Path
        Made if it is missing; must hold no trace. Sequences of an unfinished capture that it holds are not captured
        again.
    progress : Progress

    Raises
    ------
    SpecError
        If a layer's attention is not known here at that length, the folder or its disk does not do, or the attention
        that was captured does not give the model's own perplexity or attention output.
    """
    sequences = [info for info, _ in cut]
    probe_attention(loaded.model, max(info.tokens for info in sequences), loaded.info.dtype)
    require_hidden(loaded)
    for info, ids in cut:
        if not 0 <= ids.min() <= ids.max() < loaded.info.vocab_size:
            raise SpecError(
                f"text {info.name!r} is not allowed: token {ids.max()} is none of the {loaded.info.vocab_size} words "
                "of the model: the tokenizer is another model's"
            )
    held = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    require_disk(folder, file_bytes(loaded.info, [info.tokens for info in sequences]) - held)
    state = CaptureState(folder, loaded.info, sequences)
    for layer_idx in range(loaded.info.num_layers):
        write_arrays(folder, layer_idx, None, {"w_o": output_weights(loaded, layer_idx)})
    worst: dict[str, float] = {}
    layers = loaded.info.num_layers
    for index, (info, ids) in enumerate(cut):
        found = state.get(index)
        if found is None:

            def captured(layer_idx: int, place: int = index, name: str = info.name) -> None:
                progress(place * layers + layer_idx, len(cut) * layers, f"layer {layer_idx} on {name}")

            found = _capture_sequence(loaded, ids, index, folder, captured)
            write_token_ids(folder, index, ids)
            state.add(index, found)
        for name, value in found.items():
            worst[name] = max(worst.get(name, 0.0), value)
    progress(len(cut) * layers, len(cut) * layers, "capture")
    write_manifest(folder, loaded.info, sequences, worst)
    state.close()
    return read_trace(folder)


def _capture_sequence(
    loaded: LoadedModel, ids: Any, index: int, folder: Path, captured: Callable[[int], None]
) -> dict[str, float]:
    """Write the layers of one sequence and return how far they are from the model's own attention."""
    outputs: list[Float32Array] = []

    def keep_output(module: Any, _inputs: Any, output: Any) -> None:
        bias = 0 if module.bias is None else module.bias
        outputs.append(to_numpy(output[0, -VERIFY_QUERIES:] - bias).copy())

    handles = [module.register_forward_hook(keep_output) for module in output_projections(loaded)]
    try:
        plain = float(negative_log_likelihoods(loaded, ids).mean())
    finally:
        for handle in handles:
            handle.remove()
    worst_output = 0.0

    def record(layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        nonlocal worst_output
        captured(layer_idx)
        arrays = {name: to_numpy(x[0]).copy() for name, x in (("q", q), ("k", k), ("v", v))}
        write_arrays(folder, layer_idx, index, arrays)
        layer = LayerTrace(
            layer_idx=layer_idx, w_o=output_weights(loaded, layer_idx), scaling=scaling, **arrays
        )
        own = attention_output(layer, VERIFY_QUERIES)
        norm = max(float(np.linalg.norm(outputs[layer_idx])), _TINY)
        error = np.linalg.norm(own - outputs[layer_idx]) / norm
        worst_output = max(worst_output, float(error))
        return causal_attention(q, k, v, scaling)

    with use_attention(loaded, record):
        ours = float(negative_log_likelihoods(loaded, ids).mean())
    difference = abs(math.expm1(ours - plain))
    bound = OUTPUT_BOUND[loaded.info.dtype]
    if not difference <= bound or not worst_output <= bound:
        raise SpecError(
            f"the captured attention is not the model's: perplexity differs by {difference:.2g} of itself, attention "
            f"output by {worst_output:.2g}; at most {bound:g} of each is rounding"
        )
    return {
        "perplexity": math.exp(plain),
        "perplexity_difference": difference,
        "attention_output_difference": worst_output,
    }
