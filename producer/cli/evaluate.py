"""`kvint2eval-producer evaluate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import ProgressBar, add_command, add_model_options, add_quiet, note

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.experiment.trace.candidates import Calibration, Candidate
    from producer.experiment.trace.compare_schemes import SchemeComparison
    from producer.experiment.trace.perplexity import ModelErrors
    from producer.experiment.trace.run_state import RunState
    from producer.scheme.own_scheme import OwnScheme
    from producer.trace.checkpoint import Checkpoint
    from producer.trace.files import Trace
    from producer.transform.base import Side

__all__ = ["add", "asked_schemes"]


#: Tokens that leave the packed cache's recent window at once; `producer.cache.container.FLUSH`, which needs torch.
_FLUSH = 32


def add(commands: Subcommands) -> None:
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
        metavar="NAME|FILE|TABLE",
        help="a scheme of docs/methods/schemes.md by its name, or of your own: a .toml file or an inline TOML "
        "table; may be repeated; int2, the baseline, is always there (default: all that the model and the "
        "calibration can have, or none beside --fitted and --rotations)",
    )
    command.add_argument(
        "--fitted",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a file that `fit` wrote, under the name of its scheme or another; may be repeated; "
        "./a=b.safetensors is a file "
        "with = in its name",
    )
    command.add_argument(
        "--rotations",
        action="append",
        default=[],
        metavar="[SIDE=]FILE",
        help="a rotation file of OSCAR, of keys or of values, as a server reads it; up to one a side; SIDE is "
        "key or value, "
        "needed for files of version 2, which do not say it",
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
        help="with --model: decode token by token with the packed cache of docs/guides/transformers.md, from which 32 "
        "tokens leave the recent window at once, in place of one pass that simulates a window of exact length",
    )
    command.add_argument(
        "--first-token",
        default=512,
        type=int,
        metavar="N",
        help="with --model: first token that is scored; those before read little of the cache (default: 512)",
    )
    add_model_options(
        command,
        dtype_help="with --model: of weights and activations; must be that of the trace (default: that)",
    )
    command.add_argument(
        "--untrained",
        action="store_true",
        help="with --model: allow a 16-bit perplexity above the number of words of the vocabulary",
    )
    command.add_argument(
        "--overlap",
        default=0.0,
        type=float,
        metavar="X",
        help="allowed share of a text of the trace, 0 ... 1, that a text of the calibration may have too (default: 0)",
    )
    command.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="with --model: keep every finished run in this file, and skip the runs that it holds",
    )
    command.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="a published output: list the figures that differ from it; exit code 1 if any does",
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
    add_quiet(command)


def run(arguments: argparse.Namespace) -> int:
    """Compare schemes."""
    from producer.cli.check import print_renamed
    from producer.experiment.trace.check_comparison import read_comparison
    from producer.experiment.trace.compare_schemes import compare_schemes
    from producer.experiment.trace.run_state import RunState
    from producer.experiment.trace.sanity import non_discriminating
    from producer.system.files import write_text
    from producer.trace.files import read_trace

    processes, tolerance = _require_arguments(arguments)
    published = None if arguments.against is None else read_comparison(arguments.against)
    if published is not None:
        print_renamed(published)
    evaluation = read_trace(arguments.trace)
    state = RunState(arguments.state)
    candidates, left_out = _candidates(arguments, evaluation)
    for reason in dict.fromkeys(left_out.values()):
        names = ", ".join(name for name, other in left_out.items() if other == reason)
        note(f"left out: {names}: {reason}")
    checkpoint = _require_runs(arguments, evaluation, candidates)
    progress = ProgressBar(quiet=arguments.quiet)
    comparison = compare_schemes(
        candidates, evaluation, processes, progress, arguments.rival, arguments.overlap
    )
    if checkpoint is not None:
        if arguments.output is not None:
            # Whatever ends the runs of the model early, what is known by now is kept.
            write_text(arguments.output, json.dumps(comparison.to_json()) + "\n")
        comparison = replace(comparison, runs=_runs(arguments, checkpoint, comparison, state))
    content = comparison.to_json() | ({"left_out": left_out} if left_out else {})
    if arguments.decode:
        content["model_run"] = {"way": "decode", "flush": _FLUSH}
    if arguments.output is not None:
        write_text(arguments.output, json.dumps(content) + "\n")
    if arguments.plot is not None:
        from producer.experiment.trace.plot import plot_comparison

        plot_comparison(content, arguments.plot)
    for message in non_discriminating(content):
        note(message)
    if published is not None:
        return _print_against(content, published, tolerance, is_json=arguments.format == "json")
    print(json.dumps(content) if arguments.format == "json" else _table(content["schemes"]))
    return 0


def _require_runs(
    arguments: argparse.Namespace, evaluation: Trace, candidates: list[Candidate]
) -> Checkpoint | None:
    """Return the model that will be run, or None; raise before any work where the runs or the texts do not do."""
    from producer.experiment.trace.model_runs import require_first_token, require_model_of
    from producer.trace.texts import require_disjoint

    seen = [sequence for candidate in candidates for sequence in candidate.sequences]
    overlap = require_disjoint(dict.fromkeys(seen), evaluation.sequences, arguments.overlap)
    if seen:
        note(f"largest overlap of a text of the calibration with one of the trace: {overlap}")
    if arguments.model is None:
        return None
    require_first_token(evaluation, [candidate.scheme for candidate in candidates], arguments.first_token)
    checkpoint = require_model_of(
        evaluation,
        arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        untrained=arguments.untrained,
    )
    for each in checkpoint.notes:
        note(each)
    return checkpoint


def _runs(
    arguments: argparse.Namespace,
    checkpoint: Checkpoint,
    comparison: SchemeComparison,
    state: RunState,
) -> dict[str, list[ModelErrors]]:
    """Return the runs of the model with every scheme's cache."""
    from producer.experiment.trace.model_runs import run_schemes

    names = [scheme.name for scheme in comparison.schemes]
    return run_schemes(
        checkpoint,
        comparison.evaluation,
        dict(zip(names, comparison.fitted, strict=True)),
        arguments.first_token,
        state,
        ProgressBar(quiet=arguments.quiet),
        device=arguments.device,
        untrained=arguments.untrained,
        decode_flush=_FLUSH if arguments.decode else None,
    )


def _require_arguments(arguments: argparse.Namespace) -> tuple[int, float]:
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
    for name, is_given in (
        ("--state", arguments.state is not None),
        ("--decode", arguments.decode),
        ("--dtype", arguments.dtype is not None),
        ("--device", arguments.device != "cpu"),
        ("--untrained", arguments.untrained),
    ):
        if is_given and arguments.model is None:
            raise SpecError(f"{name} without --model is not allowed: it is for runs of the model")
    if arguments.model is not None and not arguments.model.exists():
        raise SpecError(f"model {arguments.model} is not allowed: there is no such file or folder")
    if not 0 <= arguments.overlap <= 1:
        raise SpecError(f"overlap {arguments.overlap} is not allowed: a share, 0 … 1")
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    tolerance = TOLERANCE if arguments.tolerance is None else arguments.tolerance
    if not 0 <= tolerance < 1:
        raise SpecError(f"tolerance {tolerance} is not allowed: 0 or more, below 1")
    return processes, tolerance


def _calibration(folder: Path | None, evaluation: Trace) -> Calibration | None:
    """Return what schemes are fitted to.

    Raises
    ------
    SpecError
        If it is of another model.
    FileFormatError
        If the folder holds neither a trace nor a dump.
    """
    from producer.experiment.trace.candidates import DumpCalibration, TraceCalibration
    from producer.trace.files import read_trace
    from producer.trace.model_info import require_same_model
    from producer.trace.oscar_dump import is_dump

    if folder is None:
        return None
    if is_dump(folder):
        return DumpCalibration(folder, evaluation.model)
    calibration = read_trace(folder)
    require_same_model(evaluation.model, calibration.model, f"calibration {folder}")
    return TraceCalibration(calibration)


def _candidates(arguments: argparse.Namespace, evaluation: Trace) -> tuple[list[Candidate], dict[str, str]]:
    """Return the schemes that were asked for, the baseline first, and those that are left out with the reason."""
    from producer.experiment.trace.candidates import from_calibration, from_file, from_rotations, misfit
    from producer.scheme.own_scheme import OwnScheme
    from producer.scheme.registry import SCHEMES, get_scheme

    model, calibration = evaluation.model, _calibration(arguments.calibration, evaluation)
    left_out: dict[str, str] = {}
    asked: list[OwnScheme] = [OwnScheme(get_scheme("int2"))]
    if arguments.scheme is not None:
        asked += [scheme for text in dict.fromkeys(arguments.scheme) for scheme in asked_schemes(text)]
    elif not arguments.fitted and not arguments.rotations:
        reasons = {name: misfit(scheme, calibration, model) for name, scheme in SCHEMES.items()}
        left_out = {name: reason for name, reason in reasons.items() if reason is not None and name != "int2"}
        asked += [OwnScheme(SCHEMES[name]) for name in SCHEMES if name not in left_out]
    found = [from_calibration(scheme, calibration, model) for scheme in dict.fromkeys(asked)]
    for entry in arguments.fitted:
        name, path = _named(entry)
        found.append(from_file(name, path, model))
    if arguments.rotations:
        found.append(from_rotations(_sides(arguments.rotations), model, evaluation))
    return found, left_out


def asked_schemes(text: str) -> list[OwnScheme]:
    """Return the schemes that an argument of --scheme names or holds."""
    from producer.scheme.own_scheme import OwnScheme, parse_schemes, read_schemes
    from producer.scheme.registry import get_scheme

    if text.lstrip().startswith("{"):
        return parse_schemes(text)
    if text.endswith(".toml"):
        return read_schemes(Path(text))
    return [OwnScheme(get_scheme(text))]


def _named(entry: str) -> tuple[str | None, Path]:
    """Return name and path of an argument NAME=FILE, or None and the path where it has no name.

    A name holds no slash, so run=3/o.safetensors is a file where there is one, and else `3/o.safetensors` called `run`.
    """
    from producer.errors import SpecError

    name, is_named, rest = entry.partition("=")
    if not is_named or "/" in name:
        return None, Path(entry)
    if Path(entry).is_file():
        if Path(rest).is_file():
            raise SpecError(
                f"--fitted {entry} is not allowed: there are the files {entry} and {rest}; write ./{entry} or "
                f"{name}=./{rest}"
            )
        return None, Path(entry)
    if not name:
        raise SpecError(f"--fitted {entry} is not allowed: NAME=FILE with a name, or FILE")
    return name, Path(rest)


def _sides(entries: list[str]) -> dict[Side, Path]:
    """Return the files of --rotations by side.

    Raises
    ------
    SpecError
        If a side stands twice.
    FileFormatError
        If a file does not say its side and the argument neither.
    """
    from producer.errors import SpecError
    from producer.transform.oscar_file import side_of

    found: dict[Side, Path] = {}
    for entry in entries:
        given, _, rest = entry.partition("=")
        side: Side
        if given in {"key", "value"} and rest:
            side, path = ("key" if given == "key" else "value"), Path(rest)
        else:
            path = Path(entry)
            side = side_of(path)
        if side in found:
            raise SpecError(
                f"--rotations {path} is not allowed: {found[side]} holds the {side} rotations already"
            )
        found[side] = path
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
    (baseline,) = (each["summary"]["relative_error"] for each in schemes if each["name"] == "int2")
    if has_model:
        # The model without a scheme: what all others are beside.
        reference = schemes[0]["summary"]["model"]["reference_perplexity"]
        zeros = f"{0:8.4f} {0:8.2f} {0:8.4f} {0:8.4f} {0:8.4f}"
        lines.append(f"{'16-bit':{width}} {zeros} {16:6.3f} {reference:10.3f} {0:8.4f} {100:6.2f}% {0:8.4f}")
    for scheme in schemes:
        summary = scheme["summary"]
        # Of the column beside it; `percent_of_int2` of the JSON is the quotient of means over texts.
        percent = 100 * summary["relative_error"] / baseline if baseline else float("nan")
        line = (
            f"{scheme['name']:{width}} {summary['relative_error']:8.4f} {percent:8.2f} "
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
