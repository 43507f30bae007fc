"""The refinement step of `fit`: `fit --refine`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from producer.cli.common import ProgressBar, memory_size

if TYPE_CHECKING:
    import argparse

    from producer.scheme.fitted_file import Fitted
    from producer.scheme.optr.learn import OptrResult
    from producer.scheme.optr.options import OptrOptions
    from producer.scheme.registry import Scheme
    from producer.trace.files import Trace

__all__ = ["add_refine_options", "check_refine_options", "refine_fitted", "require_refinement"]

_TUNING = ("learning_rate", "steps", "key_weight", "objective", "selection")
_PLACES = ("seed", "chunk_bytes")


def add_refine_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a refinement."""
    group = command.add_argument_group(
        "refinement by OptR (docs/methods/optr.md; needs torch, of the extra trace)"
    )
    group.add_argument(
        "--refine",
        choices=("optr-paper", "optr", "optr-general"),
        help="learn corrections by the error of the attention output: the paper's recipe as published; rotations "
        "with any option; any invertible transform",
    )
    group.add_argument(
        "--start",
        type=Path,
        metavar="FILE",
        help="fitted file to begin from, with its scheme (default: --scheme, fitted to --calibration)",
    )
    group.add_argument(
        "--held-out",
        type=Path,
        metavar="DIR",
        help="trace whose losses choose each head's step; other tokens",
    )
    group.add_argument("--learning-rate", type=float, metavar="X", help="of Adam (default: the paper's 0.02)")
    group.add_argument("--steps", type=int, metavar="N", help="of keys and of values each (default: 80)")
    group.add_argument(
        "--key-weight", type=float, metavar="X", help="of the error beside the divergence, λ_K (default: 1)"
    )
    group.add_argument(
        "--objective",
        choices=("output", "readout", "cache"),
        help="what the error is of: after W_O, before it, of the cache (default: output)",
    )
    group.add_argument(
        "--selection",
        choices=("held-out", "last"),
        help="the step that each head takes (default: held-out)",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="draw the first corrections, of standard deviation 0.001 (default: 0, none are drawn)",
    )
    group.add_argument(
        "--chunk-bytes",
        type=memory_size,
        metavar="BYTES",
        help="layers are learned together while their arrays fit in about this, for example 128M (the default)",
    )
    group.add_argument(
        "--device", default="cpu", metavar="NAME", help="of torch: cpu, cuda, cuda:N (default: cpu)"
    )
    group.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="keep the state here; an interrupted run is continued from it",
    )
    group.add_argument("--losses", type=Path, metavar="FILE", help="write losses and chosen steps as JSON")


def check_refine_options(arguments: argparse.Namespace) -> OptrOptions | None:
    """Return the options of a refinement, or None without one.

    Raises
    ------
    SpecError
        If options do not fit each other.
    """
    from producer.errors import SpecError
    from producer.scheme.optr.options import OptrOptions
    from producer.system.files import require_writable

    given = {name: getattr(arguments, name) for name in _TUNING if getattr(arguments, name) is not None}
    placed = {name: getattr(arguments, name) for name in _PLACES if getattr(arguments, name) is not None}
    files = ("start", "held_out", "state", "losses")
    others = [*placed, *(name for name in files if getattr(arguments, name) is not None)]
    if arguments.refine is None:
        if given or others:
            name = next(iter([*given, *others])).replace("_", "-")
            raise SpecError(f"--{name} is not allowed without --refine")
        return None
    if arguments.refine == "optr-paper" and given:
        name = next(iter(given)).replace("_", "-")
        raise SpecError(f"--{name} is not allowed with --refine optr-paper: take --refine optr")
    if arguments.losses is not None:
        require_writable(arguments.losses)
    return OptrOptions(
        **given,
        **placed,
        transform="general" if arguments.refine == "optr-general" else "orthogonal",
        device=arguments.device,
    )


def require_refinement(arguments: argparse.Namespace, scheme: Scheme, options: OptrOptions) -> None:
    """Raise before any work when a refinement cannot be done.

    Raises
    ------
    SpecError
        If the scheme is none of the paper's with its recipe, or the choice by held-out losses has no trace.
    BackendUnavailableError, ExtraMissingError
        If torch cannot use the device, or is not installed.
    """
    from producer.errors import SpecError
    from producer.scheme.optr.refine import require_papers_scheme
    from producer.scheme.optr.torch_loader import require_device

    if arguments.refine == "optr-paper":
        require_papers_scheme(scheme)
    if options.selection == "held-out" and arguments.held_out is None:
        raise SpecError("--refine needs --held-out DIR, or --selection last")
    require_device(options.device)


def refine_fitted(
    arguments: argparse.Namespace,
    options: OptrOptions,
    fitted: Fitted,
    calibration: Trace,
    processes: int,
) -> Fitted:
    """Return a refined scheme, its own clips chosen again where it has any, after writing its losses and its notes."""
    from producer.scheme.fit_trace import tune_again
    from producer.scheme.optr.refine import refine
    from producer.system.files import write_text
    from producer.trace.files import read_trace

    held_out = None if arguments.held_out is None else read_trace(arguments.held_out)
    refined, result = refine(
        fitted, (calibration, held_out), options, ProgressBar(quiet=arguments.quiet), arguments.state
    )
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)
    for line in _summary(result):
        print(line)
    if arguments.losses is not None:
        content = {side: getattr(result, side).to_json() for side in ("key", "value")}
        write_text(arguments.losses, json.dumps(content) + "\n")
    if refined.scheme.clips == "tuned":
        traces = [calibration] if held_out is None else [calibration, held_out]
        refined = tune_again(refined, traces, processes, ProgressBar(quiet=arguments.quiet))
    return refined


def _summary(result: OptrResult) -> list[str]:
    """Return a line a stage: how many heads moved, and losses of the start and of what came of it."""
    import numpy as np

    lines = []
    for side in ("key", "value"):
        stage = getattr(result, side)
        moved = int((stage.chosen > 0).sum())
        first, last = (stage.training[..., place].mean() for place in (0, -1))
        losses = f"training loss {first:.6g}, {last:.6g} after the last step"
        if np.isfinite(stage.held_out).all():
            before, least = stage.held_out[..., 0].mean(), stage.held_out.min(axis=-1).mean()
            losses += f"; held out {before:.6g}, {least:.6g} at each head's best step"
        lines.append(f"{side}s: {moved} of {stage.chosen.size} heads moved; {losses}")
    return lines
