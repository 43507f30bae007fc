"""`kvint2eval-producer evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import ProgressBar, add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.comparison import Comparison
    from producer.schemes import Scheme

__all__ = ["add"]


def add(commands: "Subcommands") -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "evaluate",
        "Compare schemes on a trace, by layer and KV head: the error of the attention output, its key and value "
        "parts, divergence of attention, stored bytes. Schemes are fitted to the calibration trace, whose texts must "
        "be others. With the model, also perplexity with the quantized cache in use.",
        run,
    )
    command.add_argument(
        "--calibration", required=True, type=Path, metavar="DIR", help="trace that the schemes are fitted to"
    )
    command.add_argument(
        "--trace", required=True, type=Path, metavar="DIR", help="trace that they are judged on"
    )
    command.add_argument(
        "--scheme",
        action="append",
        metavar="NAME",
        help="a scheme of docs/schemes.md; may be repeated; int2, the baseline, is always there (default: all)",
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write all figures as JSON to this file"
    )
    command.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw error by layer, and heat maps by layer and head: .svg or .png",
    )
    command.add_argument(
        "--model", type=Path, metavar="PATH", help="the traces' model, to run it with each scheme's cache"
    )
    command.add_argument(
        "--text", type=Path, metavar="FILE", help="with --model: the text of the trace's first sequence"
    )
    command.add_argument(
        "--first-token",
        default=512,
        type=int,
        metavar="N",
        help="with --model: first token that is scored; those before read little of the cache (default: 512)",
    )
    command.add_argument("--processes", type=int, metavar="N", help="cores to use (default: all)")
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )


def run(arguments: "argparse.Namespace") -> int:
    """Compare schemes."""
    from producer.backend.cpu import default_workers  # noqa: PLC0415
    from producer.comparison import compare_schemes  # noqa: PLC0415
    from producer.errors import SpecError  # noqa: PLC0415
    from producer.files import require_writable, write_text  # noqa: PLC0415
    from producer.plot import require_plot  # noqa: PLC0415
    from producer.schemes import SCHEMES, get_scheme  # noqa: PLC0415
    from producer.trace.files import read_trace  # noqa: PLC0415

    if arguments.output is not None:
        require_writable(arguments.output)
    if arguments.plot is not None:
        require_plot(arguments.plot)
    if (arguments.model is None) != (arguments.text is None):
        raise SpecError("--model and --text are not allowed without each other: a run needs both")
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    names = list(SCHEMES) if arguments.scheme is None else ["int2", *arguments.scheme]
    schemes = [get_scheme(name) for name in dict.fromkeys(names)]
    calibration, evaluation = read_trace(arguments.calibration), read_trace(arguments.trace)
    comparison = compare_schemes(schemes, calibration, evaluation, processes, ProgressBar())
    if arguments.model is not None:
        comparison.perplexity.update(_perplexity(arguments, comparison, schemes))
    content = comparison.to_json()
    if arguments.output is not None:
        write_text(arguments.output, json.dumps(content) + "\n")
    if arguments.plot is not None:
        from producer.plot_schemes import plot_comparison  # noqa: PLC0415

        plot_comparison(comparison, arguments.plot)
    print(json.dumps(content) if arguments.format == "json" else _table(content["schemes"]))
    return 0


def _perplexity(
    arguments: "argparse.Namespace", comparison: "Comparison", schemes: "list[Scheme]"
) -> dict[str, dict[str, Any]]:
    """Return what a run of the model with each scheme's cache gives, by scheme."""
    from producer.errors import SpecError  # noqa: PLC0415
    from producer.schemes import fit_layer  # noqa: PLC0415
    from producer.trace.capture import cut_text  # noqa: PLC0415
    from producer.trace.model import load_model  # noqa: PLC0415
    from producer.trace.perplexity import model_errors  # noqa: PLC0415

    loaded = load_model(arguments.model)
    calibration, sequence = comparison.calibration, comparison.evaluation.sequences[0]
    info, ids = cut_text(loaded, arguments.text, sequence.tokens, 1)[0]
    if loaded.info != comparison.evaluation.model or info.token_ids_sha256 != sequence.token_ids_sha256:
        raise SpecError(
            "--model and --text are not allowed: they are not those of the trace's first sequence"
        )
    bar = ProgressBar()
    found = {}
    for index, scheme in enumerate(schemes):
        bar(index, len(schemes), f"model with {scheme.name}")
        fitted = [
            fit_layer(scheme, [calibration.layer(layer, part) for part in range(len(calibration.sequences))])
            for layer in range(loaded.info.num_layers)
        ]
        (errors,) = model_errors(loaded, ids, [fitted], arguments.first_token)
        found[scheme.name] = {
            "perplexity": errors.perplexity,
            "reference_perplexity": errors.reference_perplexity,
            "divergence_nats": errors.divergence,
            "residual_by_layer": errors.residual.tolist(),
            "first_token": errors.first,
            "tokens": errors.tokens,
        }
    bar(len(schemes), len(schemes), "model")
    return found


def _table(schemes: list[dict[str, Any]]) -> str:
    """Return the summaries as a table."""
    has_model = any(scheme["perplexity"] for scheme in schemes)
    head = f"{'scheme':26} {'error':>8} {'% int2':>8} {'key':>8} {'value':>8} {'KL':>8} {'bits':>6}"
    lines = [head + (f" {'perplexity':>10} {'KL model':>8}" if has_model else "")]
    for scheme in schemes:
        summary, model = scheme["summary"], scheme["perplexity"]
        line = (
            f"{scheme['name']:26} {summary['relative_error']:8.4f} {summary['percent_of_int2']:8.2f} "
            f"{summary['key_part']:8.4f} {summary['value_part']:8.4f} {summary['divergence_nats']:8.4f} "
            f"{summary['bits_per_element']:6.3f}"
        )
        lines.append(
            line + (f" {model['perplexity']:10.3f} {model['divergence_nats']:8.4f}" if model else "")
        )
    return "\n".join(lines)
