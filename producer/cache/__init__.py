"""A packed KV cache for transformers: what a scheme says, stored byte for byte and read by `model.generate`."""

from __future__ import annotations

from typing import Any

__all__ = ["PackedCache", "use_cache"]


def __getattr__(name: str) -> Any:
    # torch and transformers are an extra: they are imported when the cache is, not with the package.
    if name == "PackedCache":
        from producer.cache.container import PackedCache  # noqa: PLC0415

        return PackedCache
    if name == "use_cache":
        from producer.cache.binding import use_cache  # noqa: PLC0415

        return use_cache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
