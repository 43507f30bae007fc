"""`kvint2eval-producer run`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import ProgressBar, add_backend_options, add_command
from producer.errors import BackendUnavailableError, SpecError

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.experiment.slice.protocol import RunResult
    from producer.experiment.slice.spec import SliceProtocol, SliceSpec

__all__ = ["add"]

# Options that change the protocol itself: (option, member of SliceProtocol, help).
_PROTOCOL_OPTIONS = (
    ("--evaluation-queries", "evaluation_queries", "queries that evaluate each candidate (default: 64)"),
    ("--calibration-queries", "calibration_queries", "queries of the clip search (default: 16)"),
    ("--rotations", "num_rotations", "rotated candidates beside the identity (default: 8)"),
)
_SLICE_OPTIONS = (
    ("--seq-len", "seq_len", "cached tokens (default: 4096)"),
    ("--kv-heads", "num_kv_heads", "KV heads (default: 4)"),
    ("--head-dim", "head_dim", "channels of a head, a power of two (default: 128)"),
    ("--output-dim", "output_dim", "columns of W_O (default: 128)"),
    ("--seed", "seed", "seed word of the random stream (default: 6260)"),
)


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "run",
        "Run a protocol on a synthetic slice and write a record. With a v1 record comes RECORD.trials with "
        "what that contract has no member for: trials, clip curves, null checks and intervals. A v2 record holds "
        "them itself, and splits every trial's error into the part of the keys and that of the values.",
        run,
    )
    command.add_argument(
        "--protocol",
        default="paired",
        choices=("paired", "published"),
        help="paired: the sound comparison; published: the published computation, faults included "
        "(default: paired)",
    )
    command.add_argument(
        "--contract", default="v1", choices=("v1", "v2"), help="contract of the record (default: v1)"
    )
    for option, name, text in (*_SLICE_OPTIONS, *_PROTOCOL_OPTIONS):
        command.add_argument(option, dest=name, type=int, metavar="N", help=text)
    command.add_argument(
        "--group-size",
        type=int,
        metavar="N",
        help="channels that share a scale (default: 128, or head-dim if less)",
    )
    add_backend_options(command)
    command.add_argument(
        "--require-cuda",
        action="store_true",
        help="end with the typed delegate result where no GPU can run this",
    )
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw the run to an .svg or .png file")
    command.add_argument(
        "-o", "--output", type=Path, metavar="RECORD", required=True, help="the record's file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run a protocol, write record and side file, and print a summary."""
    from producer.backend import cuda_problem, select_backend
    from producer.experiment.slice.memory import require_memory
    from producer.experiment.slice.plot import require_plot
    from producer.experiment.slice.protocol import run_protocol
    from producer.system.files import require_writable
    from producer.transform.fast_hadamard import require_power_of_two

    spec, protocol = specifications(arguments)
    require_power_of_two(spec.head_dim)
    require_writable(arguments.output)
    is_v2 = arguments.contract == "v2"
    if is_v2:
        from producer.record.v2_slice import require_v2

        require_v2(protocol)
    else:
        require_writable(trials_path(arguments.output))
    if arguments.plot is not None:
        require_plot(arguments.plot)
        require_writable(arguments.plot)
    if arguments.require_cuda and (problem := cuda_problem()) is not None:
        raise BackendUnavailableError(f"the run needs CUDA: {problem}")
    backend = select_backend("cupy" if arguments.require_cuda else arguments.backend, arguments.threads)
    require_memory(spec, protocol, backend.workers, arguments.memory_limit)
    result = run_protocol(
        spec,
        protocol,
        backend,
        progress=ProgressBar(quiet=arguments.quiet),
        null_check=True if is_v2 else None,
        keeps_errors=is_v2,
    )
    members = json.loads((write_v2 if is_v2 else write)(result, backend, arguments))
    if arguments.format == "json":
        shown = _summary_v2(members) if is_v2 else members["metrics"]
        print(json.dumps({"record": str(arguments.output), **shown}))
    else:
        print_summary(result)
        print_figures(members)
        print(f"record: {arguments.output}" + ("" if is_v2 else f"\ntrials: {trials_path(arguments.output)}"))
    say_unsupported(arguments.output)
    return 0


def print_figures(record: dict[str, Any]) -> None:
    """Print the figures that the record itself holds, as it holds them."""
    if "metrics" in record:
        metrics = record["metrics"]
        print(
            f"the record holds: output NMSE {metrics['baseline_output_nmse']!r} of the baseline, "
            f"{metrics['candidate_output_nmse']!r} of rotation {metrics['selected_rotation']}; cache "
            f"{metrics['cache_bytes']} bytes"
        )
        return
    measurements = record["measurements"]
    means = ", ".join(f"{arm['rotation']} {arm['summary']['nmse_mean']!r}" for arm in measurements["arms"])
    print(
        f"the record holds: mean output NMSE {means}; selected {measurements['selected']}; "
        f"{measurements['storage']['bits_per_element']!r} bits per element"
    )
    for claim in record["claims"]:
        print(
            f"the record claims: {claim['metric']} of {claim['candidate']} below {claim['baseline']} by "
            f"{claim['value']!r}, "
            f"{100 * claim['level']:g} % interval {claim['low']!r} to {claim['high']!r}"
        )


def say_unsupported(path: Path) -> None:
    """Say on standard error why the adjudicator refuses the record that was written, if it does."""
    from producer.record.reading import verdict_words

    outcome, code = verdict_words(path.read_bytes())
    if outcome == "unsupported":
        print(
            f"kvint2eval-producer: the record is unsupported, {code}: kvint2eval adjudicate {path} says why",
            file=sys.stderr,
        )


def _summary_v2(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the JSON output says of a v2 record: summaries by arm, storage and claims."""
    measurements = record["measurements"]
    kept = ("rotation", "clip_ratio", "summary")
    return {
        "selected": measurements["selected"],
        "arms": [{name: arm[name] for name in kept} for arm in measurements["arms"]],
        "storage": measurements["storage"],
        "claims": record["claims"],
    }


def specifications(arguments: argparse.Namespace) -> tuple[SliceSpec, SliceProtocol]:
    """Return slice and protocol of the arguments.

    Raises
    ------
    SpecError
        If an argument is outside what is allowed, or would change the published protocol.
    """
    from producer.experiment.slice.spec import PROTOCOLS, SliceSpec
    from producer.quantize.steps import require_group_size

    given = {name: getattr(arguments, name) for _, name, _ in _SLICE_OPTIONS}
    spec = SliceSpec(**{name: value for name, value in given.items() if value is not None})
    changed: dict[str, Any] = {}
    for option, name, _ in _PROTOCOL_OPTIONS:
        value = getattr(arguments, name)
        if value is None:
            continue
        if arguments.protocol == "published":
            raise SpecError(
                f"{option} {value} is not allowed: the published protocol fixes it; use --protocol paired"
            )
        changed[name] = value
    default = PROTOCOLS[arguments.protocol]
    group_size = arguments.group_size
    changed["group_size"] = min(default.group_size, spec.head_dim) if group_size is None else group_size
    protocol = dataclasses.replace(default, **changed)
    require_group_size(spec.head_dim, protocol.group_size)
    return spec, protocol


def trials_path(record: Path) -> Path:
    """Return the path of a record's side file."""
    return record.with_name(record.name + ".trials")


def write(result: RunResult, backend: Any, arguments: argparse.Namespace) -> str:
    """Write side file, plot and, last, the record; return the record's text."""
    from producer.experiment.slice.plot import plot_run
    from producer.record.side_file import build_trials, trials_text
    from producer.record.v1 import build_record, record_text
    from producer.system.environment import collect_environment
    from producer.system.files import temporary_beside, write_text

    text = record_text(build_record(result, backend.runtime))
    digest = hashlib.sha256(text.encode()).hexdigest()
    environment = {**collect_environment(backend.workers), "backend": backend.describe()}
    trials = build_trials(result, environment, digest)
    if arguments.plot is not None:
        with temporary_beside(arguments.plot) as temporary:
            plot_run(result, temporary, arguments.plot.suffix.lower()[1:])
    write_text(trials_path(arguments.output), trials_text(trials))
    write_text(arguments.output, text)
    return text


def write_v2(result: RunResult, backend: Any, arguments: argparse.Namespace) -> str:
    """Write plot and, last, the v2 record; return the record's text."""
    from producer.experiment.slice.plot import plot_run
    from producer.record.v2 import record_v2_text
    from producer.record.v2_slice import build_record_v2
    from producer.system.files import temporary_beside, write_text

    text = record_v2_text(build_record_v2(result, backend))
    if arguments.plot is not None:
        with temporary_beside(arguments.plot) as temporary:
            plot_run(result, temporary, arguments.plot.suffix.lower()[1:])
    write_text(arguments.output, text)
    return text


def print_summary(result: RunResult) -> None:
    """Print one line a candidate, then what the search and the comparison say."""
    spec, protocol = result.spec, result.protocol
    print(
        f"{protocol.name}: {spec.seq_len} tokens, {spec.num_kv_heads} KV heads, head dimension {spec.head_dim}, "
        f"seed {spec.seed}; {protocol.calibration_queries} calibration and {protocol.evaluation_queries} "
        "evaluation queries"
    )
    print("rotation  clip   calib. NMSE  NMSE mean    NMSE sd      quality  decode us  baseline - this, 95 %")
    for arm in result.arms:
        nmse, quality, difference = arm.nmse_summary, result.quality(arm), result.differences[arm.index]
        interval = "" if difference is None else f"{difference.low:.4g} … {difference.high:.4g}"
        mark = "*" if arm.index == result.selected else " "
        print(
            f"{arm.index:>7}{mark}  {arm.clip_ratio:<5g}  {arm.curve.best_objective:<11.6g}  {nmse.mean:<11.6g}  "
            f"{nmse.stddev:<11.6g}  {quality.mean:<7.3f}  {arm.decode_summary.mean:<9.1f}  {interval}".rstrip()
        )
    if result.grid_extended_by:
        added = ", ".join(f"{ratio:g}" for ratio in result.grid_extended_by)
        print(f"the clip grid was extended until every optimum was inside it, by {added}")
    nulls = [arm.null_nmse for arm in result.arms if arm.null_nmse is not None]
    if nulls:
        print(
            f"null check: without quantization the rotations change the output by NMSE {max(nulls):.2g} at most"
        )
    selected = result.arms[result.selected]
    print(
        f"selected rotation {selected.index}; codes of K and V: {selected.code_bytes} bytes, scales: "
        f"{selected.scale_bytes} bytes"
    )
