"""The packed cache of a model: packed layers where attention is full, transformers' own elsewhere."""

from __future__ import annotations

import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from producer.cache.attention import PACKED, register
from producer.cache.binding import arm_model, sampled_digest
from producer.cache.encoder import side_encoder
from producer.cache.identity import identity_digest
from producer.cache.layer import PackedLayer
from producer.cache.libraries import Tensor, load_libraries
from producer.cache.rows import Windows
from producer.cache.saved import read_state, write_state
from producer.cache.unfitted import unfitted_layers
from producer.errors import FileFormatError, SpecError
from producer.scheme.fitted_file import Fitted, read_fitted_file
from producer.scheme.registry import Scheme, get_scheme
from producer.trace.checkpoint import weights_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from producer.quantize.base import FloatType
    from producer.scheme.fitted_layer import FittedLayer

__all__ = ["FLUSH", "PackedCache"]

torch, transformers = load_libraries()

#: Tokens of a block that leaves the recent window at once.
FLUSH = 32


class PackedCache(transformers.Cache):  # type: ignore[misc, name-defined]
    """A KV cache for `model.generate` and `model.forward` whose full-attention layers are packed.

    Parameters
    ----------
    config : transformers configuration
        Of the model.
    scheme : str, Scheme, Fitted, or mapping of int to FittedLayer
        A scheme that needs no calibration, or one that was fitted to the model.
    flush : int
        Tokens leave the recent window in blocks that end at multiples of it: the window holds `recent` to
        `recent + flush - 1` tokens. A multiple of the group size where groups run along tokens.
    metadata : {"float32", "float16", "bfloat16"}, optional
        Type of stored scales and zero points in place of the dialect's.
    window_dtype : {"float32", "float16", "bfloat16"}, optional
        Type of sink and recent window; by default the model's own, which keeps their tokens as they are.

    Raises
    ------
    SpecError
        If the scheme needs a calibration, was fitted to other sizes, or cannot be packed for the model.
    """

    def __init__(
        self,
        config: Any,
        scheme: str | Scheme | Fitted | Mapping[int, FittedLayer],
        *,
        flush: int = FLUSH,
        metadata: FloatType | None = None,
        window_dtype: FloatType | None = None,
    ) -> None:
        register()
        config = config.get_text_config(decoder=True)
        _require_plain(config)
        layers = transformers.DynamicCache(config=config).layers
        heads, head_dim = _sizes(config)
        fitted = _fitted_layers(scheme, len(layers), heads, head_dim)
        self._windows = _windows(fitted[0].scheme, flush, window_dtype)
        self._identity = {
            "model": {
                "class": type(config).__name__,
                "layers": len(layers),
                "num_kv_heads": heads,
                "head_dim": head_dim,
            },
            "windows": {
                "sink": self._windows.sink,
                "recent": self._windows.recent,
                "flush": flush,
                "dtype": window_dtype,
            },
            "metadata": metadata,
            "fitted_model": asdict(scheme.model) if isinstance(scheme, Fitted) else None,
        }
        self._fitted, self._metadata = fitted, metadata
        for index, layer in enumerate(layers):
            if type(layer) is transformers.cache_utils.DynamicLayer:
                encoders = {
                    "key": side_encoder(fitted[index], "key", head_dim, metadata),
                    "value": side_encoder(fitted[index], "value", head_dim, metadata),
                }
                _require_units(encoders, self._windows)
                layers[index] = PackedLayer(encoders, self._windows, heads, head_dim, config)
        if not self._packed_of(layers):
            raise SpecError(
                f"{type(config).__name__} is not allowed: the model has no layer with full attention"
            )
        super().__init__(layers=layers)
        self._model: Any = None
        self._running = False

    @classmethod
    def for_model(
        cls,
        model: Any,
        scheme: str | Scheme | Fitted | Mapping[int, FittedLayer],
        *,
        attention: str = "packed",
        **options: Any,
    ) -> PackedCache:
        """Return a cache for one model, which hands over its padding mask and is the only one that may use it.

        Parameters
        ----------
        model : transformers model
        scheme : as for `PackedCache`
        attention : {"packed", "dequantize"}
            "packed" sets the model's attention implementation to one that reads codes; "dequantize" leaves the one it
            has, which then reads dequantized keys and values.
        **options
            Of `PackedCache`.

        Raises
        ------
        SpecError
            As `PackedCache`, and if `attention` is neither.
        """
        if attention not in {"packed", "dequantize"}:
            raise SpecError(f"attention {attention!r} is not allowed: packed or dequantize")
        if isinstance(scheme, Fitted):
            _require_fitted_to("the fitted scheme", scheme, model)
        cache = cls(model.config, scheme, **options)
        if attention == "packed":
            model.set_attn_implementation(PACKED)
        elif model.config._attn_implementation == PACKED:  # noqa: SLF001 - there is no public name for it
            model.set_attn_implementation("sdpa")
        cache.bind(model)
        return cache

    @classmethod
    def from_file(
        cls, path: Path | str, model: Any, *, weights: Path | None = None, **options: Any
    ) -> PackedCache:
        """Return a cache with the scheme of a file of `kvint2eval-producer fit`.

        Parameters
        ----------
        path : Path or str
        model : transformers model
            Class, layers, heads, sizes and scaling have to be those that the file names.
        weights : Path, optional
            The model's file or folder: its digest has to be the file's too.
        **options
            Of `for_model` and `PackedCache`.

        Raises
        ------
        FileFormatError
            If the file is not whole and consistent, or was fitted to another model.
        SpecError
            As `for_model`.
        OSError
            If it cannot be read.
        """
        from pathlib import Path  # noqa: PLC0415 - only callers of files need it

        fitted = read_fitted_file(Path(path))
        if weights is not None:
            found = weights_digest(Path(weights))
            if found != fitted.model.weights_sha256:
                raise FileFormatError(
                    f"{path}: fitted to weights {fitted.model.weights_sha256[:12]} of {fitted.model.name!r}, not to "
                    f"those of {weights} ({found[:12]})"
                )
        _require_fitted_to(str(path), fitted, model)
        return cls.for_model(model, fitted, **options)

    def bind(self, model: Any) -> None:
        """Give the cache to a model: its forward hands over the padding mask, and another model is refused."""
        self._model = weakref.ref(model)
        self._identity["weights"] = sampled_digest(model)
        arm_model(model)

    @staticmethod
    def _packed_of(layers: list[Any]) -> list[PackedLayer]:
        return [layer for layer in layers if isinstance(layer, PackedLayer)]

    @property
    def packed_layers(self) -> list[PackedLayer]:
        """The layers that are packed."""
        return self._packed_of(self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are held, of packed layers and of transformers' own."""
        total = 0
        for layer in self.layers:
            if isinstance(layer, PackedLayer):
                total += layer.nbytes
            else:
                held = (value for value in vars(layer).values() if isinstance(value, torch.Tensor))
                total += sum(value.untyped_storage().nbytes() for value in held if value.ndim > 1)
        return total

    @property
    def device(self) -> Any:
        """Where tokens are kept: the model's device, or the CPU."""
        model = None if self._model is None else self._model()
        return torch.device("cpu") if model is None else next(model.parameters()).device

    @property
    def identity(self) -> str:
        """SHA-256 of all that decides how a token is stored and read: dialects, transforms, windows, model."""
        return identity_digest(self._identity, self._fitted)

    def set_padding(self, attention_mask: Tensor) -> None:
        """Tell how many first tokens of each row are padding; before the first token.

        Parameters
        ----------
        attention_mask : Tensor, shape (batch, tokens)
            0 at padding, which is on the left.

        Raises
        ------
        SpecError
            If padding is not on the left alone, a row is all padding, or the cache holds tokens.
        """
        mask = attention_mask.bool().cpu()
        pads = (~mask).sum(dim=1)
        spot = torch.arange(mask.shape[1])
        if mask.ndim != 2 or bool((mask != (spot >= pads[:, None])).any()):
            raise SpecError("this padding is not allowed: (batch, tokens), 0 on the left of a row alone")
        if bool((pads == mask.shape[1]).any()):
            raise SpecError(
                "this padding is not allowed: a row is padding alone; of a prompt in chunks tell the whole mask first: "
                "cache.set_padding(attention_mask)"
            )
        padding = tuple(int(count) for count in pads)
        for layer in self.packed_layers:
            if layer.cumulative_length and layer.padding != padding and (layer.padding or any(padding)):
                raise SpecError(
                    "padding is not allowed to change: the cache holds tokens; call reset() first"
                )
            if not layer.cumulative_length:
                layer.padding = padding
                layer.is_initialized = False

    def enter(self, model: Any, attention_mask: Tensor) -> None:
        """Begin a forward of a model; called by the model itself."""
        if self._model is not None and self._model() is not model:
            held = self._model()
            raise SpecError(
                f"this cache is for one {type(held).__name__}, not for another model ({type(model).__name__}): "
                "its transforms and tokens are the first one's; make a cache for each model"
            )
        self._running = True
        if attention_mask is None or attention_mask.ndim != 2 or attention_mask.shape[1] == 0:
            return
        if self.get_seq_length() == 0 and self.packed_layers[0].padding is None:
            self.set_padding(attention_mask)

    def leave(self) -> None:
        """End a forward of a model; called by the model itself."""
        self._running = False

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Add tokens to a layer; see `transformers.Cache.update`.

        Raises
        ------
        SpecError
            If the cache is for a model and something else calls, or a batch has left padding that it was not told of.
        """
        if layer_idx >= len(self.layers):
            raise SpecError(f"layer {layer_idx} is not allowed: this cache is for {len(self.layers)} layers")
        if self._model is not None and not self._running:
            raise SpecError(
                "this cache is for one model, and something else writes to it: a second model needs a cache of its own"
            )
        layer = self.layers[layer_idx]
        if isinstance(layer, PackedLayer) and not layer.cumulative_length and layer.padding is None:
            _require_no_padding((kwargs.get("kwargs") or {}).get("position_ids"), int(key_states.shape[2]))
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Forget all tokens and the padding."""
        super().reset()
        for layer in self.layers:
            # Before 5.24 transformers' own layers keep their tokens, as zeros.
            if isinstance(layer, transformers.cache_utils.DynamicLayer):
                layer.keys = layer.values = None
                layer.is_initialized = False
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length = 0

    def save(self, path: Path | str) -> None:
        """Write all tokens to a file, under a temporary name that is renamed; see `producer.cache.saved`."""
        write_state(path, self)

    def load(self, path: Path | str) -> None:
        """Take the tokens of a file that a cache of the same identity saved; see `producer.cache.saved`."""
        read_state(path, self)


def _require_plain(config: Any) -> None:
    """Raise unless every layer keeps keys and values of its own."""
    shared = getattr(config, "num_kv_shared_layers", 0) or any(
        mode == "reuse" for mode in getattr(config, "kv_sharing_modes", None) or ()
    )
    if shared or getattr(config, "is_encoder_decoder", False) or getattr(config, "kv_lora_rank", None):
        raise SpecError(
            f"{type(config).__name__} is not allowed: shared, latent or cross-attention keys and values are not packed"
        )


def _sizes(config: Any) -> tuple[int, int]:
    """Return KV heads and head dimension."""
    heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return heads, int(head_dim)


def _windows(scheme: Scheme, flush: int, dtype: FloatType | None) -> Windows:
    if type(flush) is not int or flush < 1:
        raise SpecError(f"flush {flush!r} is not allowed: tokens, at least 1")
    if dtype not in {None, "float32", "float16", "bfloat16"}:
        raise SpecError(f"window_dtype {dtype!r} is not allowed: float32, float16, bfloat16 or None")
    if scheme.recent < 1:
        raise SpecError(f"recent {scheme.recent} is not allowed: a query reads at least its own token exact")
    own = None if dtype is None else getattr(torch, dtype)
    return Windows(sink=scheme.sink, recent=scheme.recent, flush=flush, dtype=own)


def _require_units(encoders: dict[str, Any], windows: Windows) -> None:
    """Raise unless blocks and sink hold whole groups where groups run along tokens."""
    for encoder in encoders.values():
        if windows.flush % encoder.unit or windows.sink % encoder.unit:
            raise SpecError(
                f"flush {windows.flush} and sink {windows.sink} are not allowed: multiples of {encoder.unit}, the "
                f"tokens of a group of {encoder.dialect.name!r}"
            )


def _fitted_layers(
    scheme: str | Scheme | Fitted | Mapping[int, FittedLayer], layers: int, heads: int, head_dim: int
) -> Mapping[int, FittedLayer]:
    if isinstance(scheme, str):
        scheme = get_scheme(scheme)
    if isinstance(scheme, Scheme):
        return unfitted_layers(scheme, layers, head_dim)
    fitted = scheme.layers if isinstance(scheme, Fitted) else scheme
    if set(fitted) != set(range(layers)):
        raise SpecError(f"a scheme fitted to {len(fitted)} layers is not allowed: the model has {layers}")
    for index, layer in fitted.items():
        rotations = layer.rotations
        for transform in (rotations.key, rotations.value):
            if transform.head_dim != head_dim or len(transform.matrices) not in {1, heads}:
                raise SpecError(
                    f"layer {index}: transforms {transform.matrices.shape} are not allowed: the model has {heads} KV "
                    f"heads of {head_dim} channels"
                )
    return fitted


def _require_fitted_to(where: str, fitted: Fitted, model: Any) -> None:
    """Raise unless what a fitted file says of its model is so of a model in memory; weights are not compared."""
    config = model.config.get_text_config(decoder=True)
    heads, head_dim = _sizes(config)
    found = {
        "architecture": type(model).__name__,
        "num_layers": int(config.num_hidden_layers),
        "num_heads": int(config.num_attention_heads),
        "num_kv_heads": heads,
        "head_dim": head_dim,
        "hidden_size": int(config.hidden_size),
    }
    differ = [name for name, value in found.items() if getattr(fitted.model, name) != value]
    if differ:
        name = differ[0]
        raise FileFormatError(
            f"{where}: fitted to {fitted.model.name!r} with {name} {getattr(fitted.model, name)!r}, not to this model "
            f"with {found[name]!r}: fit the scheme to this model with kvint2eval-producer fit"
        )


def _require_no_padding(position_ids: Tensor, count: int) -> None:
    """Raise if the positions of a first call tell of left padding."""
    if position_ids is None or position_ids.ndim != 2 or position_ids.shape[1] != count or count < 2:
        return
    last = position_ids[:, -1]
    if bool((last < count - 1).any()):
        row = int((last < count - 1).int().argmax())
        raise SpecError(
            f"row {row} ends at position {int(last[row])} of {count} tokens: a left-padded batch is not allowed before "
            "the cache knows its padding: cache.set_padding(attention_mask)"
        )
