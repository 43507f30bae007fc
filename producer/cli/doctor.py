"""`kvint2eval-producer doctor`."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

from producer.cli.common import add_command

if TYPE_CHECKING:
    import argparse

    from producer.cli.common import Subcommands

__all__ = ["add"]


def add(commands: Subcommands) -> None:
    """Add the subcommand."""
    command = add_command(
        commands, "doctor", "Print what this machine can run and what is missing. Always ends with 0.", run
    )
    command.add_argument(
        "--format", default="text", choices=("text", "json"), help="form of the output (default: text)"
    )


def _kernel_compiler() -> str:
    from producer.backend.cuda.compile import compiler_version
    from producer.errors import BackendUnavailableError

    try:
        return f"ready: NVRTC {compiler_version()}"
    except BackendUnavailableError as error:
        return f"missing: {error}"


def run(arguments: argparse.Namespace) -> int:
    """Print the machine's abilities."""
    from producer.backend import cuda_problem
    from producer.record.provenance import package_version, source_digest
    from producer.system.environment import available_bytes, collect_environment
    from producer.system.processes import default_workers

    problem = cuda_problem()
    plots = importlib.util.find_spec("matplotlib") is not None
    found: dict[str, object] = {
        "version": package_version(),
        "source_sha256": source_digest(),
        **collect_environment(default_workers()),
        "available_bytes": available_bytes(),
        "numpy_backend": "ready",
        "cupy_backend": "ready" if problem is None else f"missing: {problem}",
        "kernel_compiler": _kernel_compiler(),
        "plots": "ready"
        if plots
        else "missing: matplotlib is not installed (pip install 'kvint2eval[report]')",
    }
    del found["matplotlib"]
    if arguments.format == "json":
        print(json.dumps(found))
        return 0
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {'unknown' if value is None else value}")
    return 0
