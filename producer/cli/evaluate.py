"""`kvint2eval-producer evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import ProgressBar, add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.experiment.trace.candidates import Calibration, Candidate
    from producer.trace.files import Trace

__all__ = ["add"]


#: Tokens that leave the packed cache's recent window at once; `producer.cache.container.FLUSH`, which needs torch.
_FLUSH = 32


def add(commands: "Subcommands") -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "evaluate",
        "Compare schemes on a trace, by layer and KV head: the error of the attention output, its key and value "
        "parts, divergence of attention, stored bytes. Schemes are fitted to the calibration trace, whose texts must "
        "be others, or come from files that `fit` wrote. With the model, also perplexity, divergence and the error of "
        "the residual stream on every sequence, with the quantized cache in use.",
        run,
    )
    command.add_argument(
        "--calibration",
        type=Path,
        metavar="DIR",
        help="trace that the schemes are fitted to, or a dump of OSCAR's server for those that need no output weights; "
        "not needed when all but int2 come from files",
    )
    command.add_argument(
        "--trace", required=True, type=Path, metavar="DIR", help="trace that they are judged on"
    )
    command.add_argument(
        "--scheme",
        action="append",
        metavar="NAME",
        help="a scheme of docs/schemes.md; may be repeated; int2, the baseline, is always there (default: all, or "
        "none beside --fitted)",
    )
    command.add_argument(
        "--fitted",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a file that `fit` wrote, under the name of its scheme or another; may be repeated",
    )
    command.add_argument(
        "--rival",
        action="append",
        default=[],
        metavar="NAME",
        help="a scheme that all are compared with, text by text, as they are with int2; may be repeated",
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
        "--model", type=Path, metavar="PATH", help="the trace's model, to run it with each scheme's cache"
    )
    command.add_argument(
        "--decode",
        action="store_true",
        help="with --model: decode token by token with the packed cache of docs/transformers.md, from which 32 tokens "
        "leave the recent window at once, in place of one pass that simulates a window of exact length",
    )
    command.add_argument(
        "--first-token",
        default=512,
        type=int,
        metavar="N",
        help="with --model: first token that is scored; those before read little of the cache (default: 512)",
    )
    command.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="with --model: keep every run that is done in this file, and make none again that it holds",
    )
    command.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="a published output: say which of its figures these are not; exit code 1 if there are any",
    )
    command.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="with --against: allowed difference of a figure, relative (default: 0.002)",
    )
    command.add_argument("--processes", type=int, metavar="N", help="cores to use (default: all)")
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )


def run(arguments: "argparse.Namespace") -> int:
    """Compare schemes."""
    from producer.experiment.trace.check_comparison import read_comparison
    from producer.experiment.trace.compare_schemes import compare_schemes
    from producer.experiment.trace.model_runs import require_model_of, run_schemes
    from producer.experiment.trace.run_state import RunState
    from producer.system.files import write_text
    from producer.trace.files import read_trace

    processes, tolerance = _require_arguments(arguments)
    published = None if arguments.against is None else read_comparison(arguments.against)
    evaluation = read_trace(arguments.trace)
    state = RunState(arguments.state)
    if arguments.model is not None:
        require_model_of(evaluation, arguments.model)
    candidates = _candidates(arguments, evaluation)
    comparison = compare_schemes(candidates, evaluation, processes, ProgressBar(), arguments.rival)
    if arguments.model is not None:
        layers = dict(zip([scheme.name for scheme in comparison.schemes], comparison.fitted, strict=True))
        flush = _FLUSH if arguments.decode else None
        runs = run_schemes(
            arguments.model, evaluation, layers, arguments.first_token, state, ProgressBar(), flush
        )
        comparison.runs.update(runs)
    content = comparison.to_json()
    if arguments.decode:
        content["model_run"] = {"way": "decode", "flush": _FLUSH}
    if arguments.output is not None:
        write_text(arguments.output, json.dumps(content) + "\n")
    if arguments.plot is not None:
        from producer.experiment.trace.plot import plot_comparison

        plot_comparison(comparison, arguments.plot)
    if published is not None:
        return _print_against(content, published, tolerance, is_json=arguments.format == "json")
    print(json.dumps(content) if arguments.format == "json" else _table(content["schemes"]))
    return 0


def _require_arguments(arguments: "argparse.Namespace") -> tuple[int, float]:
    """Return processes and tolerance, once the arguments are known to be allowed."""
    from producer.errors import SpecError
    from producer.experiment.slice.plot import require_plot
    from producer.experiment.trace.check_comparison import TOLERANCE
    from producer.system.files import require_writable
    from producer.system.processes import default_workers

    for path in (arguments.output, arguments.state):
        if path is not None:
            require_writable(path)
    if arguments.plot is not None:
        require_plot(arguments.plot)
    if arguments.decode and arguments.model is None:
        raise SpecError("--decode without --model is not allowed: it is a way to run the model")
    if arguments.state is not None and arguments.model is None:
        raise SpecError("--state without --model is not allowed: it keeps runs of the model")
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    tolerance = TOLERANCE if arguments.tolerance is None else arguments.tolerance
    if not 0 <= tolerance < 1:
        raise SpecError(f"tolerance {tolerance} is not allowed: 0 or more, below 1")
    return processes, tolerance


def _calibration(folder: Path | None, evaluation: "Trace") -> "Calibration | None":
    """Return what schemes are fitted to.

    Raises
    ------
    SpecError
        If it is of another model.
    FileFormatError
        If the folder holds neither a trace nor a dump.
    """
    from producer.errors import SpecError
    from producer.experiment.trace.candidates import DumpCalibration, TraceCalibration
    from producer.trace.files import read_trace

    if folder is None:
        return None
    if not (folder / "trace.json").exists() and any(folder.glob("layer_*")):
        return DumpCalibration(folder, evaluation.model)
    calibration = read_trace(folder)
    ours, theirs = evaluation.model, calibration.model
    if ours != theirs:
        raise SpecError(
            f"calibration of {theirs.name!r} ({theirs.weights_sha256[:12]}) and evaluation of {ours.name!r} "
            f"({ours.weights_sha256[:12]}) are not allowed: one model"
        )
    return TraceCalibration(calibration)


def _candidates(arguments: "argparse.Namespace", evaluation: "Trace") -> "list[Candidate]":
    """Return the schemes that were asked for, the baseline first."""
    from producer.experiment.trace.candidates import from_calibration, from_file
    from producer.scheme.registry import SCHEMES, get_scheme

    names = arguments.scheme
    if names is None:
        names = [] if arguments.fitted else list(SCHEMES)
    schemes = [get_scheme(name) for name in dict.fromkeys(["int2", *names])]
    calibration = _calibration(arguments.calibration, evaluation)
    found = [from_calibration(scheme, calibration, evaluation.model) for scheme in schemes]
    for entry in arguments.fitted:
        name, is_named, path = entry.rpartition("=")
        found.append(from_file(name if is_named else None, Path(path), evaluation.model))
    return found


def _print_against(
    content: dict[str, Any], published: dict[str, Any], tolerance: float, *, is_json: bool
) -> int:
    """Print where a published comparison differs, and return the exit code."""
    from producer.cli.check import print_findings
    from producer.experiment.trace.check_comparison import compare_comparisons

    findings = compare_comparisons(content, published, tolerance)
    print_findings({"agrees": not findings, "tolerance": tolerance}, findings, is_json=is_json)
    return 1 if findings else 0


def _table(schemes: list[dict[str, Any]]) -> str:
    """Return the summaries as a table."""
    has_model = any(scheme["runs"] for scheme in schemes)
    width = max(26, *(len(scheme["name"]) for scheme in schemes))
    head = f"{'scheme':{width}} {'error':>8} {'% int2':>8} {'key':>8} {'value':>8} {'KL':>8} {'bits':>6}"
    model_head = f" {'perplexity':>10} {'KL model':>8} {'top-1':>7} {'residual':>8}"
    lines = [head + (model_head if has_model else "")]
    for scheme in schemes:
        summary = scheme["summary"]
        line = (
            f"{scheme['name']:{width}} {summary['relative_error']:8.4f} {summary['percent_of_int2']:8.2f} "
            f"{summary['key_part']:8.4f} {summary['value_part']:8.4f} {summary['divergence_nats']:8.4f} "
            f"{summary['bits_per_element']:6.3f}"
        )
        model = summary["model"]
        if model:
            line += (
                f" {model['perplexity']:10.3f} {model['divergence_nats']:8.4f} {100 * model['top1_agreement']:6.2f}%"
                f" {model['residual_last']:8.4f}"
            )
        lines.append(line)
    return "\n".join(lines)
