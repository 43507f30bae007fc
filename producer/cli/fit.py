"""`kvint2eval-producer fit`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import ProgressBar, add_command, add_quiet
from producer.cli.refine import add_refine_options, check_refine_options, refine_fitted, require_refinement

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: "Subcommands") -> None:
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
        "--calibration", required=True, type=Path, metavar="DIR", help="trace that the scheme is fitted to"
    )
    command.add_argument(
        "--scheme", metavar="NAME", help="a scheme of docs/schemes.md (default: balanced, or that of --start)"
    )
    command.add_argument("--processes", type=int, metavar="N", help="cores to use (default: all)")
    command.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="file to write")
    add_refine_options(command)
    add_quiet(command)
    # A device that is not there ends as a delegation, which is printed as text.
    command.set_defaults(format="text")


def run(arguments: "argparse.Namespace") -> int:
    """Fit a scheme."""
    from producer.errors import SpecError
    from producer.scheme.fit_trace import fit_trace, notes
    from producer.scheme.fitted_file import read_fitted_file, require_model, write_fitted
    from producer.scheme.registry import get_scheme
    from producer.system.files import require_writable
    from producer.system.processes import default_workers
    from producer.trace.files import read_trace

    require_writable(arguments.output)
    processes = default_workers() if arguments.processes is None else arguments.processes
    if processes < 1:
        raise SpecError(f"processes {processes} is not allowed: at least 1")
    options = check_refine_options(arguments)
    if arguments.start is not None and arguments.scheme is not None:
        raise SpecError("--scheme is not allowed with --start: the file has its own")
    start = None if arguments.start is None else read_fitted_file(arguments.start)
    scheme = get_scheme(arguments.scheme or "balanced") if start is None else start.scheme
    if options is not None:
        require_refinement(arguments, scheme, options)
    calibration = read_trace(arguments.calibration)
    if start is not None:
        require_model(arguments.start, start.model, calibration.model)
    fitted = start or fit_trace(scheme, calibration, processes, ProgressBar(quiet=arguments.quiet))
    if options is not None:
        fitted = refine_fitted(arguments, options, fitted, calibration, processes)
    write_fitted(arguments.output, fitted)
    for note in notes(fitted):
        print(f"note: {note}", file=sys.stderr)
    model = fitted.model
    print(f"{fitted.scheme.name} for {model.name}: {model.num_layers} layers, {model.num_kv_heads} KV heads")
    return 0
