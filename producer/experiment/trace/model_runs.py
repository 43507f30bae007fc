"""Runs of a model over all sequences of a trace, with the cache of every scheme of a comparison in turn."""

import time
from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.experiment.trace.perplexity import ModelReference
from producer.experiment.trace.run_state import RunState, key_of_run
from producer.trace.model import load_model, weights_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from producer.experiment.trace.perplexity import ModelErrors
    from producer.scheme.fitted_layer import FittedLayer
    from producer.system.progress import Progress
    from producer.trace.files import Trace

__all__ = ["require_model_of", "run_schemes"]


def require_model_of(trace: "Trace", path: "Path") -> None:
    """Raise unless a model is that of a trace and the trace holds its token ids; before any long work.

    Raises
    ------
    SpecError
        If the model is missing, or its weights are others.
    FileFormatError
        If the trace holds no token ids.
    """
    if not path.exists():
        raise SpecError(f"model {path} is not allowed: there is no such file or folder")
    found, expected = weights_digest(path), trace.model.weights_sha256
    if found != expected:
        raise SpecError(
            f"model {path} with weights {found[:12]}… is not allowed: the trace is of {trace.model.name!r} with "
            f"weights {expected[:12]}…"
        )
    for sequence in range(len(trace.sequences)):
        trace.token_ids(sequence)


def run_schemes(
    path: "Path",
    trace: "Trace",
    schemes: "Mapping[str, Sequence[FittedLayer]]",
    first: int,
    state: RunState,
    progress: "Progress",
    decode_flush: int | None = None,
) -> "dict[str, list[ModelErrors]]":
    """Return what every scheme does to the model, one entry a sequence of the trace.

    Parameters
    ----------
    path : Path
        The trace's model (`require_model_of`).
    trace : Trace
    schemes : mapping of str to sequence of FittedLayer
        By name, fitted to all layers.
    first : int
        First token that is scored.
    state : RunState
        Runs that it holds are not made again; new ones are kept in it as they end.
    progress : Progress
    decode_flush : int, optional
        Decode token by token with a packed cache from which so many tokens leave the recent window at once.

    Raises
    ------
    SpecError
        As `producer.experiment.trace.perplexity.ModelReference`.

    Notes
    -----
    One plain pass a sequence is shared by all schemes, and one model in memory by all.
    """
    found: dict[str, list[ModelErrors]] = {name: [] for name in schemes}
    loaded = None
    total, done, timed = len(schemes) * len(trace.sequences), 0, 0
    start = time.monotonic()
    for index, sequence in enumerate(trace.sequences):
        reference = None
        for name, layers in schemes.items():
            key = key_of_run(trace.model.weights_sha256, sequence.token_ids_sha256, first, layers)
            if decode_flush is not None:
                key += f"-decode-{decode_flush}"
            errors = state.get(key)
            if errors is None:
                left = f", {_left(start, timed, total - done)} left" if timed else ""
                progress(done, total, f"model on {sequence.name} with {name}{left}")
                loaded = load_model(path) if loaded is None else loaded
                if reference is None:
                    reference = ModelReference(loaded, trace.token_ids(index), first)
                flush = 1 if decode_flush is None else decode_flush
                errors = reference.errors(layers, flush, is_decoded=decode_flush is not None)
                state.add(key, name, sequence.name, errors)
                timed += 1
            found[name].append(errors)
            done += 1
    progress(total, total, "model")
    return found


def _left(start: float, timed: int, left: int) -> str:
    """Return an estimate of the time that runs will still take, from those that were made."""
    seconds = round((time.monotonic() - start) / timed * left)
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
