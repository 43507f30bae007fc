"""`kvint2eval-producer compare`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cli.common import ProgressBar, add_command, add_quiet

if TYPE_CHECKING:
    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "compare",
        "Compare rotations under one dialect on a trace and write v2 records, one a layer, as JSON Lines. Every arm "
        "is searched over the same clip ratios on the calibration trace and evaluated on the other one, a sequence a "
        "trial; the record claims that the selected arm is better than the baseline where the trials show it.",
        run,
    )
    command.add_argument(
        "--calibration",
        required=True,
        type=Path,
        metavar="DIR",
        help="trace that rotations and clip ratios are chosen on",
    )
    command.add_argument(
        "--trace", required=True, type=Path, metavar="DIR", help="trace that the arms are evaluated on"
    )
    command.add_argument(
        "--dialect",
        required=True,
        metavar="NAME",
        help="a 2-bit dialect of docs/methods/dialects.md, or kivi, for all arms",
    )
    command.add_argument(
        "--arm",
        default=[],
        action="append",
        metavar="NAME",
        help="an arm of docs/methods/schemes.md: a rotation, or the transforms of a balanced scheme; may be repeated",
    )
    command.add_argument(
        "--fitted",
        default=[],
        action="append",
        type=Path,
        metavar="FILE",
        help="an arm whose transforms `fit` wrote, called as the file; its clips by head are not used; may be repeated",
    )
    command.add_argument(
        "--baseline", default="identity", metavar="NAME", help="arm that is the baseline (default: identity)"
    )
    command.add_argument(
        "--grid",
        type=clip_grid,
        metavar="RATIO,…",
        help="clip ratios of keys and values, falling (default: 1 … 0.3 in 16 steps; 1 where the dialect has no clip)",
    )
    command.add_argument(
        "--centred",
        action="store_true",
        help="subtract the calibration's mean key from every key, in all arms",
    )
    command.add_argument(
        "--group-size", default=0, type=int, metavar="N", help="values that share a scale (default: the head)"
    )
    command.add_argument(
        "--sink", default=64, type=int, metavar="N", help="first tokens that stay unquantized (default: 64)"
    )
    command.add_argument(
        "--recent",
        default=256,
        type=int,
        metavar="N",
        help="last tokens that stay unquantized (default: 256)",
    )
    command.add_argument(
        "--window-dtype",
        default="bfloat16",
        choices=("float32", "float16", "bfloat16"),
        help="type in which they stay, to which they are rounded (default: bfloat16)",
    )
    command.add_argument(
        "--layer", action="append", type=int, metavar="N", help="a layer; may be repeated (default: all)"
    )
    command.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="cores to use; changes times and nothing else (default: all)",
    )
    command.add_argument(
        "-o", "--output", required=True, type=Path, metavar="FILE", help="file of the records, .jsonl"
    )
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )
    add_quiet(command)


def clip_grid(text: str) -> tuple[float, ...]:
    """Return the ratios that a text such as 1,0.9,0.8 means."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no grid: numbers with commas between them") from error


def run(arguments: argparse.Namespace) -> int:
    """Compare rotations and write their records."""
    from producer.errors import SpecError
    from producer.experiment.trace.arm_protocol import DEFAULT_GRID, TraceProtocol
    from producer.experiment.trace.compare_arms import compare_arms
    from producer.experiment.trace.fitted_arms import read_arms
    from producer.quantize import get_pair
    from producer.record.reading import verdict_words
    from producer.record.v2_trace import build_trace_record, trace_record_text
    from producer.system.files import require_writable, write_text
    from producer.system.processes import default_workers
    from producer.trace.files import read_trace

    require_writable(arguments.output)
    if arguments.output.suffix != ".jsonl":
        raise SpecError(
            f"output {arguments.output} is not allowed: its ending must be .jsonl, one record a line"
        )
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    has_clip = get_pair(arguments.dialect)[0].numerics.clip_kind != "none"
    evaluation = read_trace(arguments.trace)
    fitted = read_arms(arguments.fitted, evaluation, {arguments.baseline, *arguments.arm} - _stems(arguments))
    protocol = TraceProtocol(
        arms=tuple(dict.fromkeys([arguments.baseline, *arguments.arm, *fitted])),
        dialect=arguments.dialect,
        clip_grid=arguments.grid or (DEFAULT_GRID if has_clip else (1.0,)),
        center_keys=arguments.centred,
        group_size=arguments.group_size,
        sink=arguments.sink,
        recent=arguments.recent,
        window_dtype=arguments.window_dtype,
    )
    calibration = read_trace(arguments.calibration)
    layers = sorted(set(arguments.layer or range(evaluation.model.num_layers)))
    found = compare_arms(
        protocol,
        calibration,
        evaluation,
        layers,
        processes=processes,
        progress=ProgressBar(quiet=arguments.quiet),
        fitted={name: arm.layers for name, arm in fitted.items()},
    )
    digests = {name: arm.sha256 for name, arm in fitted.items()}
    records = [build_trace_record(protocol, one, calibration, evaluation, digests) for one in found]
    lines = [trace_record_text(record) for record in records]
    write_text(arguments.output, "".join(lines))
    rows = [_row(record, *verdict_words(line.encode())) for record, line in zip(records, lines, strict=True)]
    print(json.dumps({"records": rows}) if arguments.format == "json" else _table(rows))
    return 1 if any(row["outcome"] == "unsupported" for row in rows) else 0


def _stems(arguments: argparse.Namespace) -> set[str]:
    """Return the baseline's name where a fitted file has it: the baseline may come from a file."""
    return {arguments.baseline} & {path.stem for path in arguments.fitted} - {*arguments.arm}


def _row(record: dict[str, Any], outcome: str, finding: str) -> dict[str, Any]:
    """Return what is said of one record."""
    measurements, claims = record["measurements"], record["claims"]
    arms = {arm["rotation"]: arm for arm in measurements["arms"]}
    baseline, selected = record["recipe"]["baseline"], measurements["selected"]
    return {
        "layer": record["workload"]["trace"]["layer"],
        "selected": selected,
        "clip_ratios": {name: arm["clip_ratio"] for name, arm in arms.items()},
        "nmse_mean": {name: arm["summary"]["nmse_mean"] for name, arm in arms.items()},
        "baseline": baseline,
        "claim": {name: claims[0][name] for name in ("value", "low", "high")} if claims else None,
        "outcome": outcome,
        "finding": finding,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    """Return the records as a table."""
    names = list(rows[0]["nmse_mean"])
    lines = ["layer  " + "  ".join(f"{name:>16}" for name in names) + "  selected          claim  verdict"]
    for row in rows:
        cells = "  ".join(f"{row['nmse_mean'][name]:8.4f} @{row['clip_ratios'][name]:6g}" for name in names)
        claim = "none" if row["claim"] is None else "shown"
        lines.append(
            f"{row['layer']:5}  {cells}  {row['selected']:16}  {claim:5}  {row['outcome']}: {row['finding']}"
        )
    return "\n".join(
        [*lines, "error of the output, Σ‖Δy‖²/Σ‖y‖², mean over the sequences, @ the chosen clip ratio"]
    )
