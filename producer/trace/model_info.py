"""Identity of a model: weights, configuration, tokenizer, shape, and the versions that decide numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from producer.errors import SpecError

__all__ = ["ModelInfo", "differences", "parse_model", "require_same_model"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model of a trace.

    Attributes
    ----------
    name : str
        File or folder of the model, without its path; no property of the model.
    architecture : str
        Its class.
    weights_sha256 : str
        SHA-256 of the weight file, or of the digests of several ones in the order of their names.
    num_layers, num_heads, num_kv_heads, head_dim, hidden_size : int
    scaling : float
        What scores are multiplied by, in the first layer.
    layer_scaling : tuple of float
        The same by layer, where layers differ; empty where all have `scaling`.
    vocab_size : int
        Words that the head predicts; 0 where not known.
    config_sha256 : str
        SHA-256 of the configuration as it was loaded.
    tokenizer_sha256 : str
        SHA-256 of the tokenizer as it was loaded.
    dtype : str
        Of the weights and activations when the model runs.
    versions : tuple of str
        Libraries that load and run the model, such as ``torch 2.13.0``.
    """

    name: str
    architecture: str
    weights_sha256: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    scaling: float
    layer_scaling: tuple[float, ...] = ()
    vocab_size: int = 0
    config_sha256: str = ""
    tokenizer_sha256: str = ""
    dtype: str = "float32"
    versions: tuple[str, ...] = ()

    def scaling_of(self, layer_idx: int) -> float:
        """Return what the scores of a layer are multiplied by."""
        return self.layer_scaling[layer_idx] if self.layer_scaling else self.scaling


#: Parts of a model's identity in words, in the order in which differences are told.
_PARTS = {
    "weights_sha256": "weights",
    "config_sha256": "configuration as loaded",
    "tokenizer_sha256": "tokenizer",
    "dtype": "dtype",
    "versions": "versions",
}


def parse_model(content: dict[str, Any]) -> ModelInfo:
    """Return a model from its JSON values.

    Raises
    ------
    TypeError, KeyError
        If fields are missing, unknown or of another type. Those of earlier versions lack the configuration.
    """
    lists = {name: tuple(content[name]) for name in ("layer_scaling", "versions")}
    kinds = get_type_hints(ModelInfo)
    for name in (field.name for field in fields(ModelInfo) if field.name not in lists):
        if type(content[name]) is not kinds[name]:
            raise TypeError(f"{name} {content[name]!r} of a model is no {kinds[name].__name__}")
    return ModelInfo(**(content | lists))


def differences(one: ModelInfo, other: ModelInfo) -> list[str]:
    """Return the parts in which two models differ, in words; the name of a file or folder is none."""
    ours, theirs = asdict(one), asdict(other)
    found = [name for name in ours if name != "name" and ours[name] != theirs[name]]
    ordered = sorted(found, key=[*_PARTS, *ours].index)
    return [
        f"{_PARTS.get(name, name)} {_short(theirs[name])} instead of {_short(ours[name])}" for name in ordered
    ]


def _short(value: object) -> str:
    if isinstance(value, str) and len(value) == 64:
        return f"{value[:12]}…"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def require_same_model(expected: ModelInfo, found: ModelInfo, where: str) -> None:
    """Raise unless two models are one, under whatever name.

    Parameters
    ----------
    expected, found : ModelInfo
    where : str
        What is of the found model, at the beginning of the message.

    Raises
    ------
    SpecError
        With the parts that differ.
    """
    parts = differences(expected, found)
    if parts:
        raise SpecError(
            f"{where} is of another model: {found.name!r} differs from {expected.name!r} in {'; '.join(parts)}; one "
            "model is needed, with one configuration and tokenizer, run by the same versions"
        )
