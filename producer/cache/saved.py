"""Packed caches in files: safetensors with a JSON header, an identity and a digest of the content.

A file holds tokens, not the scheme: it is read into a cache that was made in the same way, told by the identity.
"""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer.cache.identity import FORMAT
from producer.cache.layer import PackedLayer
from producer.cache.libraries import Tensor, load_libraries
from producer.cache.rows import SIDES, Rows
from producer.errors import ExtraMissingError, FileFormatError, SpecError
from producer.system.files import require_writable, temporary_beside

if TYPE_CHECKING:
    from producer.cache.container import PackedCache

__all__ = ["read_state", "write_state"]

torch, transformers = load_libraries()

_PARTS = ("exact", "codes", "metadata")


def _safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissingError("saved caches need safetensors: pip install 'kvint2eval[trace]'") from error
    return safetensors


def write_state(path: Path | str, cache: PackedCache) -> None:
    """Write all tokens of a cache to a temporary name that is renamed.

    Raises
    ------
    SpecError
        If the path cannot be written, or a layer is of a kind that is not saved.
    OSError
        If the file cannot be written in full; nothing is left of it.
    """
    path, library = Path(path), _safetensors()
    require_writable(path)
    tensors: dict[str, Tensor] = {}
    layers = [_state_of(index, layer, tensors) for index, layer in enumerate(cache.layers)]
    state = json.dumps(layers, sort_keys=True)
    tensors = {name: held.detach().cpu().contiguous() for name, held in tensors.items()}
    header = {
        "format": FORMAT,
        "identity": cache.identity,
        "state": state,
        "content_sha256": _content_digest(state, tensors),
    }
    try:
        with temporary_beside(path) as temporary:
            library.torch.save_file(tensors, temporary, header)
    except (OSError, library.SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
        raise OSError(
            number,
            f"the cache cannot be saved to {path}: {error}; nothing is written: free space, or take another folder",
        ) from error


def _state_of(index: int, layer: Any, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """Return what is to know of a layer beside its tensors, which are put into `tensors`."""
    name = f"layer-{index:03d}"
    if isinstance(layer, PackedLayer):
        layer.settle()
        groups = []
        for number, (rows_of, pads, rows) in enumerate(layer.groups):
            for part in _PARTS:
                for side, held in getattr(rows, part).items():
                    tensors[f"{name}.group-{number}.{part}.{side}"] = held
            place = None if rows_of is None else rows_of.tolist()
            groups.append([place, pads, rows.length, rows.start, rows.stored])
        return {
            "groups": groups,
            "length": layer.cumulative_length,
            "padding": layer.padding,
            "batch": layer.batch,
            "dtype": None if layer.dtype is None else str(layer.dtype).removeprefix("torch."),
            "past": layer.record_past,
        }
    if isinstance(layer, transformers.cache_utils.DynamicSlidingWindowLayer):
        if layer.is_initialized:
            tensors |= {f"{name}.key": layer.keys, f"{name}.value": layer.values}
        return {"length": layer.cumulative_length, "past": layer.record_past}
    if isinstance(layer, transformers.cache_utils.CacheLayerMixin) or hasattr(layer, "conv_states"):
        raise SpecError(f"layer {index} of kind {type(layer).__name__} is not allowed: it is not saved")
    return None


def _content_digest(state: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        held = tensors[name].contiguous()
        digest.update(f"{name} {held.dtype} {tuple(held.shape)}\n".encode())
        digest.update(held.view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    return digest.hexdigest()


def read_state(path: Path | str, cache: PackedCache) -> None:
    """Take the tokens of a saved cache.

    Parameters
    ----------
    path : Path or str
    cache : PackedCache
        Empty, and of the identity that saved the file: the same scheme, transforms, windows, metadata and model.

    Raises
    ------
    SpecError
        If the cache holds tokens.
    FileFormatError
        If the file is no saved cache, was truncated or edited, or is of another identity.
    OSError
        If it cannot be read.
    """
    path, library = Path(path), _safetensors()
    if cache.get_seq_length():
        raise SpecError(f"{path} is not allowed here: the cache holds tokens; call reset() first")
    path.open("rb").close()
    try:
        with library.safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (library.SafetensorError, ValueError) as error:
        raise FileFormatError(f"{path}: no whole safetensors file: {error}") from error
    if header.get("format") != FORMAT:
        raise FileFormatError(f"{path}: format {header.get('format')!r} is not allowed: {FORMAT}")
    state = header.get("state", "")
    if header.get("content_sha256") != _content_digest(state, tensors):
        raise FileFormatError(
            f"{path}: the content is not that of its digest: the file was edited or damaged"
        )
    if header.get("identity") != cache.identity:
        raise FileFormatError(
            f"{path}: saved under the identity {str(header.get('identity'))[:12]}, not {cache.identity[:12]}: another "
            "scheme, transform, window, metadata type or model"
        )
    try:
        layers = json.loads(state)
        for index, (layer, held) in enumerate(zip(cache.layers, layers, strict=True)):
            _restore(
                layer, held, {name: part for name, part in tensors.items() if _is_of(index, name)}, cache
            )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        cache.reset()
        raise FileFormatError(f"{path}: its state does not fit its tensors: {error!r}") from error


def _is_of(index: int, name: str) -> bool:
    return name.startswith(f"layer-{index:03d}.")


def _restore(
    layer: Any, state: dict[str, Any] | None, tensors: dict[str, Tensor], cache: PackedCache
) -> None:
    if state is None:
        return
    device = cache.device
    tensors = {name.partition(".")[2]: held.to(device) for name, held in tensors.items()}
    if isinstance(layer, PackedLayer):
        layer.cumulative_length, layer.batch = state["length"], state["batch"]
        layer.padding = None if state["padding"] is None else tuple(state["padding"])
        layer.record_past, layer.is_initialized = state["past"], state["dtype"] is not None
        layer.dtype = None if state["dtype"] is None else getattr(torch, state["dtype"])
        layer.device, layer.groups = device, []
        for number, (place, pads, length, start, stored) in enumerate(state["groups"]):
            parts = {
                part: {
                    side: tensors[f"group-{number}.{part}.{side}"]
                    for side in SIDES
                    if f"group-{number}.{part}.{side}" in tensors
                }
                for part in _PARTS
            }
            exact = parts["exact"]
            rows = Rows(layer.windows, layer.encoders, exact["key"], exact["value"])
            rows.length, rows.start, rows.stored = length, start, stored
            rows.exact, rows.codes, rows.metadata = exact, parts["codes"], parts["metadata"]
            layer.groups.append((None if place is None else torch.tensor(place, device=device), pads, rows))
    elif tensors:
        layer.lazy_initialization(tensors["key"], tensors["value"])
        layer.keys, layer.values = tensors["key"], tensors["value"]
        layer.cumulative_length, layer.record_past = state["length"], state["past"]
