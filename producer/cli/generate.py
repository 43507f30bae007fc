"""`kvint2eval-producer generate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "generate",
        "Generate text with a packed cache. Greedy decoding of a model whose keys and values are stored as a file of "
        "`fit` says: the text, tokens a second, and the bytes of the cache beside those of an ordinary one in 16 bits.",
        run,
    )
    command.add_argument(
        "--model", required=True, type=Path, metavar="PATH", help="folder of a model, or a .gguf file"
    )
    command.add_argument(
        "--fitted", required=True, type=Path, metavar="FILE", help="scheme that `fit` wrote for this model"
    )
    command.add_argument(
        "--prompt-file", required=True, type=Path, metavar="FILE", help="UTF-8 text that is continued"
    )
    command.add_argument(
        "--max-new-tokens", default=64, type=int, metavar="N", help="tokens at most (default: 64)"
    )
    command.add_argument(
        "--metadata",
        choices=("float32", "float16", "bfloat16"),
        help="type of stored scales and zero points (default: the dialect's)",
    )
    command.add_argument(
        "--windows",
        choices=("float32", "float16", "bfloat16"),
        help="type of sink and recent window (default: the model's)",
    )
    command.add_argument(
        "--attention",
        default="packed",
        choices=("packed", "dequantize"),
        help="read codes, or dequantize them for the model's own attention (default: packed)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Generate text."""
    import time

    from producer.errors import SpecError
    from producer.scheme.fitted_file import read_fitted
    from producer.trace.loading import load_model

    if arguments.max_new_tokens < 1:
        raise SpecError(f"max-new-tokens {arguments.max_new_tokens} is not allowed: at least 1")
    try:
        text = arguments.prompt_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"prompt {arguments.prompt_file} cannot be read: {error}") from error
    if not text:
        raise SpecError(f"prompt {arguments.prompt_file} is not allowed: it is empty")
    from producer.cache import PackedCache

    loaded = load_model(arguments.model)
    # The weights too are compared: the file names their digest.
    read_fitted(arguments.fitted, loaded.info)
    cache = PackedCache.from_file(
        arguments.fitted,
        loaded.model,
        attention=arguments.attention,
        metadata=arguments.metadata,
        window_dtype=arguments.windows,
    )
    inputs = loaded.tokenizer(text, return_tensors="pt")
    start = time.perf_counter()
    found = loaded.model.generate(
        **inputs, max_new_tokens=arguments.max_new_tokens, do_sample=False, past_key_values=cache
    )
    seconds = time.perf_counter() - start
    new = found[0, inputs["input_ids"].shape[1] :]
    tokens, info = cache.get_seq_length(), loaded.info
    ordinary = 2 * 2 * tokens * info.num_layers * info.num_kv_heads * info.head_dim
    print(loaded.tokenizer.decode(new, skip_special_tokens=True))
    print(f"{len(new)} tokens in {seconds:.1f} s, prompt of {inputs['input_ids'].shape[1]} tokens included")
    print(f"cache of {tokens} tokens: {cache.nbytes} bytes, {cache.nbytes / ordinary:.3f} of 16-bit ones")
    return 0
