"""`kvint2eval-producer trace`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import ProgressBar, add_command, add_model_options, add_quiet, note

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "trace",
        "Capture queries, keys, values and output weights of a model's attention over texts. The capture is "
        "refused unless it gives the model's own perplexity and attention output. What it needs on disk and in memory "
        "is said first, and an interrupted one goes on where it ended.",
        run,
    )
    command.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="PATH",
        help="folder of a model of transformers, or a GGUF file",
    )
    command.add_argument(
        "--text",
        required=True,
        action="append",
        type=Path,
        metavar="FILE",
        help="a UTF-8 text; may be repeated",
    )
    command.add_argument(
        "--tokens",
        default=2048,
        type=int,
        metavar="N",
        help="tokens of a sequence, with those that the tokenizer puts before a text (default: 2048)",
    )
    command.add_argument(
        "--sequences",
        default=1,
        type=int,
        metavar="N",
        help="sequences that are cut from each text (default: 1)",
    )
    command.add_argument(
        "--beyond-positions",
        action="store_true",
        help="allow more tokens than the model has positions",
    )
    add_model_options(
        command, dtype_help="of weights and activations: float32, float16 or bfloat16 (default: float32)"
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder of the trace; must hold none yet, but may hold an unfinished one of the same model and texts",
    )
    add_quiet(command)
    # A device that is not there ends as a delegation, which is printed as text.
    command.set_defaults(format="text")


def run(arguments: argparse.Namespace) -> int:
    """Capture a trace."""
    from producer.trace.capture import capture_sequences, require_disk, require_lengths
    from producer.trace.checkpoint import open_checkpoint
    from producer.trace.libraries import require_device
    from producer.trace.loading import load_model
    from producer.trace.needs import capture_needs, require_memory
    from producer.trace.text_tokens import cut_texts

    dtype = arguments.dtype or "float32"
    require_lengths(arguments.tokens, arguments.sequences)
    _require_folder(arguments.output)
    for path in arguments.text:
        _require_text(path)
    require_device(arguments.device, dtype)
    checkpoint = open_checkpoint(arguments.model)
    checkpoint.require_positions(arguments.tokens, beyond=arguments.beyond_positions)
    cut, notes = cut_texts(checkpoint.tokenizer, arguments.text, arguments.tokens, arguments.sequences)
    for each in (*checkpoint.notes, *notes):
        note(each)
    needs = capture_needs(checkpoint, arguments.tokens, cut, dtype)
    print(f"needs {needs}", flush=True)
    held = sum(file.stat().st_size for file in arguments.output.glob("*.safetensors"))
    require_disk(arguments.output, needs.disk_bytes - held)
    require_memory(needs, arguments.device)
    loaded = load_model(checkpoint, tokens=arguments.tokens, device=arguments.device, dtype=dtype)
    trace = capture_sequences(loaded, cut, arguments.output, ProgressBar(quiet=arguments.quiet))
    found = trace.verification
    print(f"{len(trace.sequences)} sequences of {arguments.tokens} tokens, {trace.model.num_layers} layers")
    print(f"perplexity of the worst sequence {found['perplexity']:.4g}")
    if found["perplexity"] > trace.model.vocab_size:
        note(
            f"a perplexity of {found['perplexity']:.4g} is above the {trace.model.vocab_size} words of the vocabulary: "
            "worse than guessing; `evaluate --model` will refuse it unless it is asked for"
        )
    print(
        f"largest difference from the model: perplexity {found['perplexity_difference']:.2g}, "
        f"attention output {found['attention_output_difference']:.2g}, each of itself"
    )
    print(
        "that compares the capture with the model as it was loaded, and cannot see a wrong load: the load itself was "
        "checked for missing, left-over and misshapen weights" + _gguf_words(is_gguf=checkpoint.is_gguf)
    )
    return 0


def _gguf_words(*, is_gguf: bool) -> str:
    return ", and its configuration against the file's metadata" if is_gguf else ""


def _require_folder(folder: Path) -> None:
    """Raise unless a trace can be written to a folder."""
    import os

    from producer.errors import SpecError

    if (folder / "trace.json").exists():
        raise SpecError(f"output {folder} is not allowed: it holds a trace")
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"output {folder} is not allowed: it is no folder")
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise SpecError(f"output {folder} is not allowed: {place} cannot be written")


def _require_text(path: Path) -> None:
    """Raise unless a text can be opened."""
    from producer.errors import SpecError

    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SpecError(f"text {path} cannot be read: {error.strerror}") from error
