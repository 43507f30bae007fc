"""Capture of a trace from a model, checked against the model's own attention and perplexity."""

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import SpecError
from producer.trace.attention import last_future, softmax
from producer.trace.files import Trace, read_trace, write_arrays, write_manifest, write_token_ids
from producer.trace.layer import LayerTrace
from producer.trace.model import (
    LoadedModel,
    causal_attention,
    negative_log_likelihoods,
    output_projections,
    output_weights,
    use_attention,
)
from producer.trace.texts import SequenceInfo, passages

if TYPE_CHECKING:
    from pathlib import Path

    from producer.numerics.arrays import Float32Array
    from producer.system.progress import Progress

__all__ = ["VERIFY_QUERIES", "attention_output", "capture_trace", "cut_text"]

#: Last positions whose attention output is compared with the model's.
VERIFY_QUERIES = 64
# Two float32 implementations of one attention differ by rounding alone.
_PERPLEXITY_BOUND = 1e-3
_OUTPUT_BOUND = 1e-3


def attention_output(layer: LayerTrace, num_queries: int) -> "Float32Array":
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


def capture_trace(
    loaded: LoadedModel, texts: "list[Path]", tokens: int, per_text: int, folder: "Path", progress: "Progress"
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
        Made if it is missing; must hold no trace.
    progress : Progress

    Raises
    ------
    SpecError
        If a text is too short or no text, or the attention that was captured does not give the model's own
        perplexity or attention output.
    """
    if tokens <= VERIFY_QUERIES or per_text < 1:
        raise SpecError(
            f"{per_text} sequences of {tokens} tokens are not allowed: at least 1, above {VERIFY_QUERIES}"
        )
    if (folder / "trace.json").exists():
        raise SpecError(f"output {folder} is not allowed: it holds a trace")
    cut = [part for path in texts for part in cut_text(loaded, path, tokens, per_text)]
    folder.mkdir(parents=True, exist_ok=True)
    for layer_idx in range(loaded.info.num_layers):
        write_arrays(folder, layer_idx, None, {"w_o": output_weights(loaded, layer_idx)})
    worst: dict[str, float] = {}
    for index, (_, ids) in enumerate(cut):
        progress(index, len(cut), "capture")
        write_token_ids(folder, index, ids)
        for name, value in _capture_sequence(loaded, ids, index, folder).items():
            worst[name] = max(worst.get(name, 0.0), value)
    progress(len(cut), len(cut), "capture")
    write_manifest(folder, loaded.info, [info for info, _ in cut], worst)
    return read_trace(folder)


def cut_text(loaded: LoadedModel, path: "Path", tokens: int, count: int) -> list[tuple[SequenceInfo, Any]]:
    """Return sequences of a text with what a record says of them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"text {path} cannot be read: {error}") from error
    # A tokenizer takes long over a long text, and no token is shorter than a character.
    head = text[: 16 * tokens * count]
    ids = np.array(loaded.tokenizer(head, verbose=False)["input_ids"], dtype="<i4")
    if ids.size < tokens * count:
        raise SpecError(
            f"text {path} is not allowed: {ids.size} tokens, {count} sequences of {tokens} are needed"
        )
    parts = []
    for first in range(0, tokens * count, tokens):
        own = ids[first : first + tokens]
        info = SequenceInfo(
            name=path.name,
            text_sha256=hashlib.sha256(text.encode()).hexdigest(),
            first_token=first,
            tokens=tokens,
            token_ids_sha256=hashlib.sha256(own.tobytes()).hexdigest(),
            passages=passages(loaded.tokenizer.decode(own.tolist())),
        )
        parts.append((info, own))
    return parts


def _capture_sequence(loaded: LoadedModel, ids: Any, index: int, folder: "Path") -> dict[str, float]:
    """Write the layers of one sequence and return how far they are from the model's own attention."""
    outputs: list[Float32Array] = []

    def keep_output(module: Any, _inputs: Any, output: Any) -> None:
        bias = 0 if module.bias is None else module.bias
        outputs.append((output[0, -VERIFY_QUERIES:] - bias).detach().numpy().copy())

    handles = [module.register_forward_hook(keep_output) for module in output_projections(loaded)]
    try:
        plain = float(negative_log_likelihoods(loaded, ids).mean())
    finally:
        for handle in handles:
            handle.remove()
    worst_output = 0.0

    def record(layer_idx: int, q: Any, k: Any, v: Any, scaling: float) -> Any:
        nonlocal worst_output
        arrays = {name: x[0].detach().numpy().copy() for name, x in (("q", q), ("k", k), ("v", v))}
        write_arrays(folder, layer_idx, index, arrays)
        layer = LayerTrace(
            layer_idx=layer_idx, w_o=output_weights(loaded, layer_idx), scaling=scaling, **arrays
        )
        own = attention_output(layer, VERIFY_QUERIES)
        error = np.linalg.norm(own - outputs[layer_idx]) / np.linalg.norm(outputs[layer_idx])
        worst_output = max(worst_output, float(error))
        return causal_attention(q, k, v, scaling)

    with use_attention(loaded, record):
        ours = float(negative_log_likelihoods(loaded, ids).mean())
    difference = abs(math.expm1(ours - plain))
    if not difference <= _PERPLEXITY_BOUND or not worst_output <= _OUTPUT_BOUND:
        raise SpecError(
            f"the captured attention is not the model's: perplexity differs by {difference:.2g} of itself, attention "
            f"output by {worst_output:.2g}; at most {_PERPLEXITY_BOUND:g} of each is rounding"
        )
    return {
        "perplexity": math.exp(plain),
        "perplexity_difference": difference,
        "attention_output_difference": worst_output,
    }
