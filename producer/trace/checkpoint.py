"""Checkpoints of models: configuration, tokenizer and identity without the weights, then the weights in full."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from producer.errors import ProducerError, SpecError
from producer.trace.gguf_metadata import (
    apply_metadata,
    read_metadata,
    require_applied,
    unknown_tensors,
)
from producer.trace.libraries import libraries, require_device, versions
from producer.trace.model_info import ModelInfo, require_same_model

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Checkpoint", "load_weights", "open_checkpoint", "weights_digest"]

_READ_BYTES = 1 << 20
#: Members of a configuration that change no number: names, and what the run decides.
_UNUSED = frozenset(
    {
        "_model_name_or_path",
        "_name_or_path",
        "architectures",
        "dtype",
        "id2label",
        "label2id",
        "quantization_config",
        "torch_dtype",
        "transformers_version",
    }
)
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's files, read but for the weights.

    Attributes
    ----------
    path : Path
        A folder of transformers, or a GGUF file.
    config, tokenizer : object
        Of transformers.
    weights_sha256, config_sha256, tokenizer_sha256 : str
        See `producer.trace.model_info.ModelInfo`.
    versions : tuple of str
    notes : tuple of str
        What a user should know of how it is read.
    """

    path: Path
    config: Any
    tokenizer: Any
    weights_sha256: str
    config_sha256: str
    tokenizer_sha256: str
    versions: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_gguf(self) -> bool:
        """Whether it is one GGUF file."""
        return self.path.is_file()

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies the model besides its shape and dtype, by the names of `ModelInfo`."""
        names = ("weights_sha256", "config_sha256", "tokenizer_sha256", "versions")
        return {name: getattr(self, name) for name in names}

    @property
    def max_positions(self) -> int | None:
        """Positions that the model was made for; None where the configuration does not say."""
        text = self.config.get_text_config()
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            value = getattr(text, name, None)
            if isinstance(value, int):
                return value
        return None

    def require_model_of(self, model: ModelInfo, where: str) -> None:
        """Raise `SpecError` unless this is the model of a trace, whose shape it has then."""
        require_same_model(
            model, replace(model, name=self.path.name, **self.identity), f"model {self.path}: {where}"
        )

    def require_positions(self, tokens: int, *, beyond: bool) -> None:
        """Raise unless a sequence has no more tokens than the model has positions, or that is asked for.

        Raises
        ------
        SpecError
        """
        most = self.max_positions
        if most is not None and tokens > most and not beyond:
            raise SpecError(
                f"sequences of {tokens} tokens are not allowed: {self.path.name} has {most} positions, and was not "
                f"made to read more; take at most {most} tokens, or ask for more with --beyond-positions"
            )


def open_checkpoint(path: Path) -> Checkpoint:
    """Return a model's configuration, tokenizer and identity; its weights are hashed, but not loaded.

    Raises
    ------
    SpecError
        If the path holds no model that can be read, or metadata of a GGUF file that the loader does not apply.
    ExtraMissingError
        If torch or transformers is not installed.
    """
    if not path.exists():
        raise SpecError(f"model {path} is not allowed: there is no such file or folder")
    _, transformers = libraries()
    source, options = _source(path)
    notes: list[str] = []
    config = _call(path, transformers.AutoConfig.from_pretrained, source, **options)
    if path.is_file():
        metadata = _call(path, read_metadata, path)
        config = _call(path, apply_metadata, config, metadata, path, notes)
        require_applied(config, metadata, path)
    tokenizer = _call(path, transformers.AutoTokenizer.from_pretrained, source, **options)
    return Checkpoint(
        path=path,
        config=config,
        tokenizer=tokenizer,
        weights_sha256=weights_digest(path),
        config_sha256=_config_digest(config),
        tokenizer_sha256=_tokenizer_digest(tokenizer),
        versions=versions(is_gguf=path.is_file()),
        notes=tuple(notes),
    )


def load_weights(checkpoint: Checkpoint, device: str, dtype: str) -> Any:
    """Return the model of a checkpoint, of transformers, in evaluation mode.

    Parameters
    ----------
    checkpoint : Checkpoint
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``.
    dtype : {"float32", "float16", "bfloat16"}
        Of all weights.

    Raises
    ------
    SpecError
        If the weights cannot be loaded, some are missing, left over or of another shape, or the configuration that the
        model runs with is another than the checkpoint's.
    BackendUnavailableError
        If the device is not there.
    """
    require_device(device, dtype)
    torch, transformers = libraries()
    path = checkpoint.path
    source, options = _source(path)
    if checkpoint.is_gguf:
        # Blocks that stay packed are no weights that can be read.
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model, report = _call(
        path,
        transformers.AutoModelForCausalLM.from_pretrained,
        source,
        config=checkpoint.config,
        dtype=getattr(torch, dtype),
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are in the report, by name
        **options,
    )
    _require_complete(path, report)
    if checkpoint.is_gguf:
        left_over = _call(path, unknown_tensors, model, path)
        if left_over:
            raise SpecError(_left_out(path, "tensors that the loader does not read", left_over))
    if _config_digest(model.config) != checkpoint.config_sha256:
        raise SpecError(
            f"model {path} is not allowed: transformers runs it with another configuration than it read"
        )
    return _call(path, model.eval().to, device)


def weights_digest(path: Path) -> str:
    """Return the SHA-256 of the weight file, or of the digests of several, in the order of their names.

    Raises
    ------
    SpecError
        If a folder holds no weights, or its index names a file that is missing.
    """
    digests = []
    for file in [path] if path.is_file() else _weight_files(path):
        digest = hashlib.sha256()
        try:
            with file.open("rb") as stream:
                while chunk := stream.read(_READ_BYTES):
                    digest.update(chunk)
        except OSError as error:
            raise SpecError(f"model {path}: {file.name} cannot be read: {error.strerror}") from error
        digests.append(digest.hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers loads from a folder: another copy of the weights beside them is none."""
    for stem, ending in (("model", "safetensors"), ("pytorch_model", "bin")):
        single, index = folder / f"{stem}.{ending}", folder / f"{stem}.{ending}.index.json"
        if single.is_file():
            return [single]
        if index.is_file():
            try:
                named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
                return [folder / str(name) for name in sorted(named)]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise SpecError(f"model {folder}: {index.name} cannot be read: {error!r}") from error
    raise SpecError(
        f"model {folder} is not allowed: found no model.safetensors, nor pytorch_model.bin, nor an index of them"
    )


def _source(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what transformers takes a path by; code that a folder brings along is never run."""
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    return (str(path.parent), options | {"gguf_file": path.name}) if path.is_file() else (str(path), options)


def _call(path: Path, function: Any, *positional: Any, **named: Any) -> Any:
    """Return what a library makes of a user's files, quietly; whatever it raises says so."""
    _, transformers = libraries()
    transformers.utils.logging.disable_progress_bar()
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*positional, **named)
    except ProducerError:
        raise
    except Exception as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(f"model {path} cannot be loaded: {detail}") from error
    finally:
        transformers.utils.logging.set_verbosity(before)


def _require_complete(path: Path, report: dict[str, Any]) -> None:
    """Raise unless every weight of the model came from the checkpoint, and every one of the checkpoint is in the model.

    Weights that are tied on purpose are not in the report.
    """
    mismatched = [
        f"{name} of shape {tuple(found)} instead of {tuple(expected)}"
        for name, found, expected in sorted(report["mismatched_keys"])
    ]
    for what, names in (
        ("weights that are missing, which the loader fills at random", sorted(report["missing_keys"])),
        ("weights of another shape", mismatched),
        ("weights that the model does not have", sorted(report["unexpected_keys"])),
        ("weights that cannot be read", sorted(map(str, report["error_msgs"]))),
    ):
        if names:
            raise SpecError(_left_out(path, what, names))


def _left_out(path: Path, what: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"model {path} is not allowed: {what}: {', '.join(names[:_SHOWN])}{more}; the model would be another than the "
        "one that was named"
    )


def _config_digest(config: Any) -> str:
    """Return the SHA-256 of a configuration as transformers holds it."""

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(name): kept(each) for name, each in value.items() if name not in _UNUSED}
        return [kept(each) for each in value] if isinstance(value, list | tuple) else value

    content = json.dumps(kept(config.to_dict()), sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _tokenizer_digest(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer: its pipeline, vocabulary and the special tokens that it adds."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    samples = [tokenizer(text, verbose=False)["input_ids"] for text in ("", "a b")]
    content = json.dumps([vocabulary, tokenizer.special_tokens_map, samples], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def weights_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """Return the bytes that the weights need in memory, from the configuration alone."""
    torch, transformers = libraries()
    with torch.device("meta"):
        model = _call(checkpoint.path, transformers.AutoModelForCausalLM.from_config, checkpoint.config)
    count: int = sum(parameter.numel() for parameter in model.parameters())
    return (4 if dtype == "float32" else 2) * count
