"""Dumps of OSCAR's server: ``layer_<id>/{q,k,v}/<chunk>.pt`` and ``layer_<id>/seq_lens/<chunk>.pt``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from producer.errors import FileFormatError, NonFiniteError, SpecError
from producer.system.torch_file import read_torch_file
from producer.trace.layer import LayerTrace
from producer.trace.texts import SequenceInfo

if TYPE_CHECKING:
    from pathlib import Path

    from producer.numerics.arrays import Float32Array
    from producer.trace.files import ModelInfo

__all__ = ["DumpTrace", "OscarDump", "dump_sha256", "is_dump", "read_oscar_layer"]

#: Chunk 0 is a warm-up of a few tokens, which OSCAR leaves out.
_WARM_UP = 0


@dataclass(frozen=True, slots=True)
class OscarDump:
    """One layer of a dump.

    Attributes
    ----------
    layer : LayerTrace
        All chunks but the warm-up, one after the other; no output weights.
    seq_lens : tuple of int
        Tokens of each sequence, in order; the tokens of one sequence attend to each other only.
    """

    layer: LayerTrace
    seq_lens: tuple[int, ...]


def read_oscar_layer(folder: Path, layer_idx: int) -> OscarDump:
    """Return one layer of a dump.

    Parameters
    ----------
    folder : Path
        The folder that holds ``layer_<id>``.
    layer_idx : int

    Raises
    ------
    FileFormatError
        If the layer is missing or holds the heads of one tensor-parallel rank only, a chunk lacks one of its files,
        shapes differ, or sequence lengths do not sum to the tokens of their chunk.

    Notes
    -----
    Chunk ids are sorted as numbers: 10 after 9. Chunk 0 is left out.
    """
    root = folder / f"layer_{layer_idx}"
    if not root.is_dir():
        raise FileFormatError(f"{folder}: layer_{layer_idx} is missing; a missing layer is never made up")
    if any(root.glob("rank_*")):
        raise FileFormatError(f"{root}: found folders of ranks, allowed: all heads gathered in one folder")
    chunks = _chunk_ids(root)
    arrays = {name: [_read(root / name / f"{chunk}.pt", 3) for chunk in chunks] for name in ("q", "k", "v")}
    seq_lens: list[int] = []
    for chunk, keys in zip(chunks, arrays["k"], strict=True):
        lengths = [int(length) for length in _read(root / "seq_lens" / f"{chunk}.pt", 1)]
        if sum(lengths) != keys.shape[0] or min(lengths, default=0) < 1:
            raise FileFormatError(
                f"{root}: seq_lens {lengths} of chunk {chunk} are not allowed: they sum to {keys.shape[0]} tokens"
            )
        seq_lens += lengths
    try:
        joined = {name: _heads_first(parts) for name, parts in arrays.items()}
        layer = LayerTrace(layer_idx=layer_idx, w_o=None, scaling=joined["q"].shape[-1] ** -0.5, **joined)
    except (SpecError, NonFiniteError, ValueError) as error:
        raise FileFormatError(f"{root}: {error}") from error
    return OscarDump(layer, tuple(seq_lens))


def _chunk_ids(root: Path) -> list[int]:
    """Return the chunk ids of a layer but the warm-up's, rising; all four folders have the same ones."""
    found: dict[str, set[int]] = {}
    for name in ("q", "k", "v", "seq_lens"):
        stems = [path.stem for path in (root / name).glob("*.pt")]
        wrong = [stem for stem in stems if not (stem.isascii() and stem.isdigit())]
        if wrong:
            raise FileFormatError(f"{root / name}: chunk {wrong[0]!r} is not allowed: a number")
        found[name] = {int(stem) for stem in stems}
    every = set.union(*found.values())
    for name, ids in found.items():
        if ids != every:
            raise FileFormatError(f"{root / name}: chunks {sorted(every - ids)} are missing")
    chunks = sorted(every - {_WARM_UP})
    if not chunks:
        raise FileFormatError(f"{root}: found no chunk but the warm-up, allowed: at least chunk 1")
    return chunks


def _read(path: Path, ndim: int) -> Float32Array:
    """Return the tensor of a file."""
    values = read_torch_file(path)
    if not isinstance(values, np.ndarray) or values.ndim != ndim:
        raise FileFormatError(f"{path}: found no tensor of {ndim} axes")
    return values


def _heads_first(parts: list[Float32Array]) -> Float32Array:
    """Return chunks of shape (tokens, heads, head_dim) as one array (heads, tokens, head_dim), float32."""
    joined = np.concatenate(parts, axis=0).astype(np.float32)
    return np.ascontiguousarray(joined.swapaxes(0, 1))


def is_dump(folder: Path) -> bool:
    """Return whether a folder looks like a dump, and is no trace."""
    return not (folder / "trace.json").exists() and any(folder.glob("layer_*"))


def dump_sha256(folder: Path) -> str:
    """Return a SHA-256 of the names and contents of all files of a dump, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("layer_*/*/*.pt")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class DumpTrace:
    """A dump of OSCAR's server in the place of a calibration trace: one sequence a layer, and no output weights.

    Parameters
    ----------
    folder : Path
    model : ModelInfo
        The model that was dumped; a dump does not name it.
    """

    folder: Path
    model: ModelInfo

    @property
    def sequences(self) -> tuple[SequenceInfo, ...]:
        """One, which names the dump by the digest of its files: it holds no texts, so that nothing tells an overlap."""
        digest = dump_sha256(self.folder)
        tokens = self.layer(0).seq_len
        return (SequenceInfo(f"dump {self.folder.name}", digest, 0, tokens, digest, ()),)

    def layer(self, layer_idx: int, sequence: int = 0) -> LayerTrace:  # noqa: ARG002 - as a trace has it
        """Return one layer, all its sequences one after the other.

        Raises
        ------
        SpecError
            If the heads are not those of the model.
        FileFormatError
            As `read_oscar_layer`.
        """
        layer = read_oscar_layer(self.folder, layer_idx).layer
        found = (layer.q.shape[0], layer.num_kv_heads, layer.q.shape[2])
        model = self.model
        if found != (model.num_heads, model.num_kv_heads, model.head_dim):
            raise SpecError(
                f"dump {self.folder} with query heads, KV heads and head_dim {found} is not allowed: the model has "
                f"{(model.num_heads, model.num_kv_heads, model.head_dim)}"
            )
        return layer
