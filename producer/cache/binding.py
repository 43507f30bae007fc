"""Caches and models: the forward of a model hands over its padding mask, and callers that pass no cache get one."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from producer.cache.libraries import load_libraries
from producer.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CACHE_ARGUMENT", "arm_model", "sampled_digest", "use_cache"]

torch, transformers = load_libraries()

_NAMES = ("cache", "past_key_values")
_ARMED = "_kvint2eval_armed"
_SAMPLES = 1024

#: Name of the cache among the arguments of `model.forward`; generate takes both.
CACHE_ARGUMENT = _NAMES[tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24)]


def sampled_digest(model: Any) -> str:
    """Return a SHA-256 over up to 1024 evenly spaced values of every parameter: tells models in memory apart."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        sample = flat[:: max(1, flat.numel() // _SAMPLES)].float().cpu().numpy()
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode() + sample.astype("<f4").tobytes())
    return digest.hexdigest()


def arm_model(model: Any) -> None:
    """Let a model tell a packed cache, at each forward, that it calls and what its padding is; once a model."""
    if getattr(model, _ARMED, False):
        return
    model.register_forward_pre_hook(_before, with_kwargs=True)
    model.register_forward_hook(_after, with_kwargs=True, always_call=True)
    setattr(model, _ARMED, True)


def _cache_of(arguments: dict[str, Any]) -> Any:
    found = next((arguments[name] for name in _NAMES if arguments.get(name) is not None), None)
    return found if hasattr(found, "enter") else None


def _before(model: Any, _args: Any, arguments: dict[str, Any]) -> None:
    cache = _cache_of(arguments)
    if cache is not None:
        cache.enter(model, arguments.get("attention_mask"))


def _after(_model: Any, _args: Any, arguments: dict[str, Any], _output: Any) -> None:
    cache = _cache_of(arguments)
    if cache is not None:
        cache.leave()


@contextlib.contextmanager
def use_cache(model: Any, factory: Callable[[], Any]) -> Iterator[None]:
    """Give every `model.generate` in the block that is handed no cache one of its own.

    For callers that cannot pass one, such as evaluation harnesses.

    Parameters
    ----------
    model : transformers model
    factory : callable
        Returns a fresh cache, such as ``lambda: PackedCache.from_file(path, model)``.

    Raises
    ------
    SpecError
        If the model makes its caches in another way.
    """
    before = getattr(model, "_prepare_cache_for_generation", None)
    if before is None:
        raise SpecError(f"{type(model).__name__} is not allowed: it does not generate with caches")

    def prepare(generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        has_cache = any(model_kwargs.get(name) is not None for name in _NAMES)
        if not has_cache and generation_config.use_cache is not False:
            model_kwargs[CACHE_ARGUMENT] = factory()
        return before(generation_config, model_kwargs, *args, **kwargs)

    model._prepare_cache_for_generation = prepare  # noqa: SLF001 - the one way in, the same since 5.8
    try:
        yield
    finally:
        del model._prepare_cache_for_generation  # noqa: SLF001 - the method of the class again
