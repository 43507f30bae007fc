"""State of a long evaluation: finished model runs in JSON Lines, from which an interrupted one continues.

Every line is one scheme on one sequence. It is found again by a digest of all that its figures depend on: the model's
weights, configuration, tokenizer, dtype, versions and device, the token ids, the first scored token, the fitted layers,
and the fingerprints of the quantizers.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import FileFormatError
from producer.experiment.trace.perplexity import ModelErrors
from producer.quantize import get_dialect
from producer.quantize.fingerprint import fingerprint
from producer.scheme.fitted_layer import digest_of_layers
from producer.system.files import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from producer.scheme.fitted_layer import FittedLayer
    from producer.trace.model_info import ModelInfo

__all__ = ["RunState", "key_of_run"]

_FORMAT = "kvint2eval-model-run-v2"
# Its runs are found by the model's weights alone.
_EARLIER = "kvint2eval-model-run-v1"


def key_of_run(
    model: ModelInfo, device: str, token_ids_sha256: str, first: int, layers: Sequence[FittedLayer]
) -> str:
    """Return the digest by which a run is found again; the name of the model's file or folder is no part of it."""
    scheme = layers[0].scheme
    quantizers = [fingerprint(get_dialect(name)) for name in (scheme.key_dialect, scheme.value_dialect)]
    identity = asdict(model) | {"name": "", "device": device.partition(":")[0]}
    parts = [_FORMAT, identity, token_ids_sha256, first, digest_of_layers(layers), quantizers]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class RunState:
    """Runs that are done, kept in a file.

    Parameters
    ----------
    path : Path or None
        Made when the first run is kept; None keeps them in memory alone.

    Raises
    ------
    FileFormatError
        If a line is not one of ours. A last line without an end is a write that was cut off, and is dropped.
    OSError
        If the file cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs: dict[str, ModelErrors] = {}
        if path is None or not path.exists():
            return
        whole, _, cut_off = path.read_bytes().rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
                if entry["format"] == _EARLIER:
                    raise FileFormatError(
                        f"{path}: runs of an earlier version, which names the model by its weights alone: it cannot "
                        "be told whether they are of this model; take another file"
                    )
                self._runs[str(entry["key"])] = _parse(entry)
            except (ValueError, KeyError, TypeError) as error:
                raise FileFormatError(f"{path}: line {number} is no run of {_FORMAT}: {error!r}") from error
        if cut_off:
            write_text(path, whole.decode() + ("\n" if whole else ""))

    def get(self, key: str) -> ModelErrors | None:
        """Return a run, if it is done."""
        return self._runs.get(key)

    def add(self, key: str, scheme: str, sequence: str, errors: ModelErrors) -> None:
        """Keep a run; it is on the disk when this returns."""
        self._runs[key] = errors
        if self._path is None:
            return
        entry = {
            "format": _FORMAT,
            "key": key,
            "scheme": scheme,
            "sequence": sequence,
            "perplexity": errors.perplexity,
            "reference_perplexity": errors.reference_perplexity,
            "divergence": errors.divergence,
            "top1_agreement": errors.top1_agreement,
            "residual": errors.residual.tolist(),
            "first": errors.first,
            "tokens": errors.tokens,
        }
        with self._path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _parse(entry: dict[str, Any]) -> ModelErrors:
    """Return the errors of a line."""
    if entry["format"] != _FORMAT:
        raise ValueError(f"format {entry['format']!r}")
    numbers = ("perplexity", "reference_perplexity", "divergence", "top1_agreement")
    return ModelErrors(
        **{name: float(entry[name]) for name in numbers},
        residual=np.array(entry["residual"], dtype=np.float64),
        first=int(entry["first"]),
        tokens=int(entry["tokens"]),
    )
