"""`kvint2eval-producer fit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import ProgressBar, add_command, add_quiet
from producer.cli.refine import add_refine_options, check_refine_options, refine_fitted, require_refinement

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands
    from producer.scheme.registry import Scheme
    from producer.trace.files import Trace
    from producer.trace.oscar_dump import DumpTrace

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands,
        "fit",
        "Fit a scheme to a calibration trace and write its transforms to a file. The file holds the matrices with "
        "their inverses, key means, clip ratios and factors of error feedback of all layers, the scheme with the "
        "fingerprints of its quantizers, and the digests of the model and of the calibration texts.",
        run,
    )
    command.add_argument(
        "--calibration",
        required=True,
        type=Path,
        metavar="DIR",
        help="trace that the scheme is fitted to, or a dump of OSCAR's server, with --trace",
    )
    command.add_argument(
        "--trace",
        type=Path,
        metavar="DIR",
        help="with a dump, which does not name its model: a trace of that model",
    )
    command.add_argument(
        "--scheme",
        metavar="NAME|FILE|TABLE",
        help="a scheme of docs/methods/schemes.md, or one of your own: a .toml file or an inline TOML table, the "
        "same for all layers (default: balanced, or that of --start)",
    )
    command.add_argument("--processes", type=int, metavar="N", help="cores to use (default: all)")
    command.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="file to write")
    add_refine_options(command)
    add_quiet(command)
    # A device that is not there ends as a delegation, which is printed as text.
    command.set_defaults(format="text")


def run(arguments: argparse.Namespace) -> int:
    """Fit a scheme."""
    from producer.errors import SpecError
    from producer.scheme.fit_trace import fit_trace, notes
    from producer.scheme.fitted_file import read_fitted_file, require_model, write_fitted
    from producer.system.files import require_writable
    from producer.system.processes import default_workers

    require_writable(arguments.output)
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    options = check_refine_options(arguments)
    if arguments.start is not None and arguments.scheme is not None:
        raise SpecError("--scheme is not allowed with --start: the file has its own")
    start = None if arguments.start is None else read_fitted_file(arguments.start)
    scheme = _scheme(arguments.scheme or "balanced") if start is None else start.scheme
    if options is not None:
        require_refinement(arguments, scheme, options)
    calibration = _calibration(arguments, scheme)
    if start is not None:
        require_model(arguments.start, start.model, calibration.model)
    fitted = start or fit_trace(scheme, calibration, processes, ProgressBar(quiet=arguments.quiet))
    if options is not None:
        fitted = refine_fitted(arguments, options, fitted, calibration, processes)  # type: ignore[arg-type]
    write_fitted(arguments.output, fitted)
    for note in notes(fitted):
        print(f"note: {note}", file=sys.stderr)
    model = fitted.model
    print(f"{fitted.scheme.name} for {model.name}: {model.num_layers} layers, {model.num_kv_heads} KV heads")
    return 0


def _scheme(text: str) -> Scheme:
    """Return the one scheme that an argument names or holds.

    Raises
    ------
    SpecError
        If it holds several, or one that differs between layers, which a fitted file cannot say.
    """
    from producer.cli.evaluate import asked_schemes
    from producer.errors import SpecError

    found = asked_schemes(text)
    if len(found) > 1 or found[0].layers:
        raise SpecError(
            f"--scheme {text} is not allowed: one scheme for all layers, which is what a file holds; `evaluate` "
            f"takes others"
        )
    return found[0].scheme


def _calibration(arguments: argparse.Namespace, scheme: Scheme) -> Trace | DumpTrace:
    """Return what the scheme is fitted to, once it is known that it can be.

    Raises
    ------
    SpecError
        If the scheme and the model or the dump do not fit, or a dump has no trace that names its model.
    """
    from producer.errors import SpecError
    from producer.experiment.trace.candidates import DumpCalibration, TraceCalibration, misfit
    from producer.trace.files import read_trace
    from producer.trace.oscar_dump import DumpTrace, is_dump

    folder: Path = arguments.calibration
    if not is_dump(folder):
        trace = read_trace(folder)
        fault = misfit(scheme, TraceCalibration(trace), trace.model)
        if fault is not None:
            raise SpecError(f"scheme {scheme.name!r} is not allowed: {fault}")
        return trace
    if arguments.trace is None:
        raise SpecError(
            f"dump {folder} is not allowed without --trace: a dump does not name its model, a trace of it does"
        )
    if arguments.refine is not None:
        raise SpecError(
            f"dump {folder} is not allowed with --refine: it needs output weights, which a trace holds"
        )
    model = read_trace(arguments.trace).model
    fault = misfit(scheme, DumpCalibration(folder, model), model)
    if fault is not None:
        raise SpecError(f"scheme {scheme.name!r} is not allowed: {fault}")
    print(
        f"note: the dump {folder.name} names no texts: nothing tells whether an evaluation has seen them",
        file=sys.stderr,
    )
    return DumpTrace(folder, model)
