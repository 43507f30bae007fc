"""Model runs over all sequences of a trace, once with the cache of every scheme of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.errors import SpecError
from producer.experiment.trace.perplexity import ModelReference
from producer.experiment.trace.run_state import RunState, key_of_run
from producer.trace.checkpoint import Checkpoint, open_checkpoint
from producer.trace.libraries import require_device
from producer.trace.loading import load_model
from producer.trace.model_info import require_same_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from producer.experiment.trace.perplexity import ModelErrors
    from producer.scheme.fitted_layer import FittedLayer
    from producer.scheme.registry import Scheme
    from producer.system.progress import Progress
    from producer.trace.files import Trace

__all__ = ["require_first_token", "require_model_of", "require_trained", "run_schemes"]


def require_first_token(trace: Trace, schemes: Iterable[Scheme], first: int) -> None:
    """Raise unless runs can be scored from a token on, with the cache of every scheme in use.

    Raises
    ------
    SpecError
    """
    shortest = min(sequence.tokens for sequence in trace.sequences)
    if not 1 <= first < shortest:
        raise SpecError(f"first scored token {first} is not allowed: 1 … {shortest - 1}")
    for scheme in schemes:
        if not scheme.sink + scheme.recent < first:
            raise SpecError(
                f"first scored token {first} is not allowed with {scheme.name!r}: cache not exercised before token "
                f"{scheme.sink + scheme.recent + 1}, the windows hold {scheme.sink} + {scheme.recent}"
            )


def require_trained(perplexity: float, vocab_size: int, where: str, *, untrained: bool) -> None:
    """Raise when a model is worse than guessing, unless that is asked for.

    Raises
    ------
    SpecError
    """
    if 0 < vocab_size < perplexity and not untrained:
        raise SpecError(
            f"{where}: a 16-bit perplexity of {perplexity:.4g} is not allowed: the vocabulary has {vocab_size} words, "
            "so the model is worse than guessing and tells nothing of a scheme; ask for it with --untrained"
        )


def require_model_of(
    trace: Trace, path: Path, *, device: str = "cpu", dtype: str | None = None, untrained: bool = False
) -> Checkpoint:
    """Return a model's checkpoint, which is that of a trace; before any long work.

    Parameters
    ----------
    trace : Trace
    path : Path
    device : str
    dtype : str, optional
        That of the trace by default, and no other is allowed.
    untrained : bool
        Allow a model that the capture found worse than guessing.

    Raises
    ------
    SpecError
        If the model is missing, or is another: its weights, configuration, tokenizer, dtype or versions.
    FileFormatError
        If the trace holds no token ids.
    BackendUnavailableError
        If the device is not there.
    """
    if not path.exists():
        raise SpecError(f"model {path} is not allowed: there is no such file or folder")
    if dtype not in (None, trace.model.dtype):
        raise SpecError(f"dtype {dtype} is not allowed: the trace was captured in {trace.model.dtype}")
    require_device(device, trace.model.dtype)
    for sequence in range(len(trace.sequences)):
        trace.token_ids(sequence)
    found = trace.verification.get("perplexity", 0.0)
    require_trained(found, trace.model.vocab_size, f"trace {trace.folder}", untrained=untrained)
    checkpoint = open_checkpoint(path)
    checkpoint.require_model_of(trace.model, f"the trace {trace.folder}")
    return checkpoint


def run_schemes(  # noqa: PLR0913 - one argument an option of the command
    checkpoint: Checkpoint,
    trace: Trace,
    schemes: Mapping[str, Sequence[FittedLayer]],
    first: int,
    state: RunState,
    progress: Progress,
    *,
    device: str = "cpu",
    untrained: bool = False,
    decode_flush: int | None = None,
) -> dict[str, list[ModelErrors]]:
    """Return what every scheme does to the model, one entry a sequence of the trace.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of the trace's model (`require_model_of`).
    trace : Trace
    schemes : mapping of str to sequence of FittedLayer
        By name, fitted to all layers.
    first : int
        First token that is scored.
    state : RunState
        Runs that it holds are skipped; new ones are added as they end.
    progress : Progress
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``.
    untrained : bool
        Allow a 16-bit perplexity above the vocabulary's.

    Raises
    ------
    SpecError
        As `producer.trace.loading.load_model` and `producer.experiment.trace.perplexity.ModelReference`; if the model
        as loaded is not that of the trace, or is worse than guessing.

    Notes
    -----
    One plain pass a sequence is shared by all schemes, and one model in memory by all.
    """
    way = "" if decode_flush is None else f"-decode-{decode_flush}"
    keys = {
        (index, name): key_of_run(trace.model, device, sequence.token_ids_sha256, first, layers) + way
        for index, sequence in enumerate(trace.sequences)
        for name, layers in schemes.items()
    }
    layers_each = trace.model.num_layers
    missing = sum(state.get(key) is None for key in keys.values())
    loaded, done = None, 0
    found: dict[str, list[ModelErrors]] = {name: [] for name in schemes}
    for index, sequence in enumerate(trace.sequences):
        reference = None
        for name, layers in schemes.items():
            key = keys[index, name]
            errors = state.get(key)
            if errors is None:
                what = f"model on {sequence.name} with {name}"

                def passed(layer_idx: int, before: int = done, what: str = what) -> None:
                    progress(before * layers_each + layer_idx, missing * layers_each, what)

                passed(0)
                if loaded is None:
                    tokens = max(one.tokens for one in trace.sequences)
                    loaded = load_model(checkpoint, tokens=tokens, device=device, dtype=trace.model.dtype)
                    require_same_model(trace.model, loaded.info, f"model {checkpoint.path}")
                if reference is None:
                    reference = ModelReference(loaded, trace.token_ids(index), first)
                    require_trained(
                        reference.perplexity, trace.model.vocab_size, sequence.name, untrained=untrained
                    )
                errors = reference.errors(layers, passed)
                state.add(key, name, sequence.name, errors)
                done += 1
            require_trained(
                errors.reference_perplexity, trace.model.vocab_size, sequence.name, untrained=untrained
            )
            found[name].append(errors)
    progress(missing * layers_each, missing * layers_each, "model")
    return found
