"""The state of a run on disk: one safetensors file a chunk, renamed into place at every checkpoint.

A file holds the numbers of both stages and, as metadata, the description of its run, so that it can only be continued
by the same run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from producer.errors import FileFormatError, SpecError
from producer.system.files import temporary_beside
from producer.system.safetensors_loader import load_safetensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["FORMAT", "prepare_folder", "read_state", "write_state"]

FORMAT = "kvint2eval-optr-state-v1"


def prepare_folder(folder: Path) -> None:
    """Make the folder of a state, or raise `SpecError` when that is not possible."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SpecError(
            f"state {folder} is not allowed: the folder cannot be made: {error.strerror}"
        ) from error


def write_state(path: Path, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write the state of a chunk, to a temporary name that is renamed."""
    metadata = {"format": FORMAT, "run": json.dumps(description, sort_keys=True)}
    with temporary_beside(path) as temporary:
        load_safetensors("OptR's state needs").numpy.save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata
        )


def read_state(path: Path, description: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    """Return the state of a chunk, or None when there is none yet.

    Raises
    ------
    FileFormatError
        If the file is no state.
    SpecError
        If it is the state of another run; the message names what differs.
    """
    if not path.exists():
        return None
    library = load_safetensors("OptR's state needs")
    try:
        with library.safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (library.SafetensorError, OSError) as error:
        raise FileFormatError(f"{path}: no state of OptR: {error}") from error
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path}: format {metadata.get('format')!r} is not allowed: {FORMAT}")
    found = json.loads(metadata["run"])
    # Through JSON, which has no tuples.
    wanted = json.loads(json.dumps(description))
    different = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if different:
        raise SpecError(
            f"{path}: the state of another run, which differs in {', '.join(different)}: take another folder, or "
            "remove this one"
        )
    return arrays
