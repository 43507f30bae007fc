"""Refinement of a fitted scheme by OptR, and the check that the paper's recipe is used as published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.scheme.fitted_file import Fitted
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.optr.learn import learn_optr

if TYPE_CHECKING:
    from pathlib import Path

    from producer.scheme.optr.learn import OptrResult
    from producer.scheme.optr.options import OptrOptions
    from producer.scheme.registry import Scheme
    from producer.system.progress import Progress
    from producer.trace.files import Trace

__all__ = ["PAPER_SCHEME", "refine", "require_papers_scheme"]

#: What the paper's recipe asks of a scheme (table A and section 4.1).
PAPER_SCHEME = {
    "center_keys": True,
    "key_dialect": "oscar-prefill",
    "value_dialect": "oscar-prefill",
    "key_clip": 0.96,
    "value_clip": 0.92,
    "clips": "fixed",
    "sink": 64,
    "recent": 256,
}


def require_papers_scheme(scheme: Scheme) -> None:
    """Raise `SpecError` unless a scheme is one that the paper's recipe was published with."""
    wrong = [
        f"{name} {getattr(scheme, name)!r}, not {value!r}"
        for name, value in PAPER_SCHEME.items()
        if getattr(scheme, name) != value
    ]
    rotations = {scheme.key_rotation, scheme.value_rotation}
    if not rotations <= {"quarot", "oscar", "oscar-layer"}:
        wrong.append(f"rotations {', '.join(sorted(rotations))}, not quarot or oscar")
    if wrong:
        raise SpecError(
            f"scheme {scheme.name!r} is not allowed with optr-paper: {'; '.join(wrong)}; optr takes every scheme"
        )


def refine(
    fitted: Fitted,
    traces: tuple[Trace, Trace | None],
    options: OptrOptions,
    progress: Progress,
    state: Path | None = None,
) -> tuple[Fitted, OptrResult]:
    """Return a fitted scheme with learned corrections, and what was learned.

    Parameters
    ----------
    fitted : Fitted
        The start.
    traces : tuple of Trace
        Training and held out; the latter may be None (`producer.scheme.optr.learn.learn_optr`).
    options : OptrOptions
    progress : Progress
    state : Path, optional

    Raises
    ------
    SpecError, NonFiniteError, FileFormatError, ExtraMissingError, BackendUnavailableError
        As `learn_optr`.

    Notes
    -----
    The scheme's name ends in ``+optr`` or ``+optr-general``. What was trained on and what was chosen by count as
    calibration, so that no evaluation takes them for texts that were not seen.
    """
    training, held_out = traces
    start = {index: layer.rotations for index, layer in fitted.layers.items()}
    result = learn_optr(start, fitted.scheme, training, held_out, options, progress, state)
    suffix = "optr" if options.transform == "orthogonal" else "optr-general"
    scheme = replace(fitted.scheme, name=f"{fitted.scheme.name}+{suffix}")
    layers = {index: FittedLayer(scheme, rotations) for index, rotations in result.layers.items()}
    seen = [*fitted.calibration, *training.sequences, *(() if held_out is None else held_out.sequences)]
    return Fitted(scheme, fitted.model, layers, tuple(dict.fromkeys(seen))), result
