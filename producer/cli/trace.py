"""`kvint2eval-producer trace`."""

from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import ProgressBar, add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: "Subcommands") -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "trace",
        "Capture queries, keys, values and output weights of a model's attention over texts. The capture is "
        "refused unless it gives the model's own perplexity and attention output.",
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
        "--tokens", default=2048, type=int, metavar="N", help="tokens of a sequence (default: 2048)"
    )
    command.add_argument(
        "--sequences",
        default=1,
        type=int,
        metavar="N",
        help="sequences that are cut from each text (default: 1)",
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder of the trace; must hold none yet",
    )


def run(arguments: "argparse.Namespace") -> int:
    """Capture a trace."""
    from producer.trace.capture import capture_trace
    from producer.trace.model import load_model

    loaded = load_model(arguments.model)
    trace = capture_trace(
        loaded, arguments.text, arguments.tokens, arguments.sequences, arguments.output, ProgressBar()
    )
    print(f"{len(trace.sequences)} sequences of {arguments.tokens} tokens, {trace.model.num_layers} layers")
    print(f"perplexity of the worst sequence {trace.verification['perplexity']:.4g}")
    print(
        f"largest difference from the model: perplexity {trace.verification['perplexity_difference']:.2g}, "
        f"attention output {trace.verification['attention_output_difference']:.2g}, each of itself"
    )
    return 0
