"""Tensors from files of ``torch.save``, read without torch and without running anything that a file holds.

The files are ZIP archives with a pickle of the structure and one raw entry a storage. The pickle is read with a
table of four allowed names; any other one is refused, as torch's own weights-only reading does.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from producer.errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_torch_file"]

#: Name of a storage class → type of its raw entry; bfloat16 is read as its 16 bits.
_STORAGES: dict[str, str] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


def read_torch_file(path: Path) -> Any:
    """Return what a file of ``torch.save`` holds: tensors as arrays, in dictionaries, lists and plain values.

    Parameters
    ----------
    path : Path
        A file in the ZIP form, torch 1.6 or later.

    Returns
    -------
    object
        Tensors in the types of NumPy; bfloat16 as float32, which holds every value of it.

    Raises
    ------
    FileFormatError
        If the file is no such archive, names anything but tensors and containers, or a tensor does not lie
        within its storage.
    OSError
        If the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(entries) != 1:
                raise FileFormatError(
                    f"{path}: found {len(entries)} entries data.pkl, allowed: one, as torch.save writes"
                )
            folder = entries[0].removesuffix("data.pkl")
            order = f"{folder}byteorder"
            if order in archive.namelist() and archive.read(order) != b"little":
                raise FileFormatError(f"{path}: found big-endian storages, allowed: little-endian")
            return _Unpickler(archive, folder, entries[0]).load()
    except (
        zipfile.BadZipFile,
        pickle.UnpicklingError,
        EOFError,
        KeyError,
        IndexError,
        ValueError,
        TypeError,
    ) as error:
        raise FileFormatError(f"{path}: not a file of tensors as torch.save writes it: {error}") from error


class _Unpickler(pickle.Unpickler):
    """A pickle reader that knows tensors, their storages and ordered dictionaries, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, entry: str) -> None:
        super().__init__(io.BytesIO(archive.read(entry)))
        self._archive = archive
        self._folder = folder

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name of the pickle stands for, or refuse it."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and name in _STORAGES:
            return name
        raise pickle.UnpicklingError(f"found {module}.{name}, allowed: tensors and containers of them")

    def persistent_load(self, pid: Any) -> npt.NDArray[Any]:
        """Return a storage as a flat array."""
        kind, storage, key, _, count = pid
        if kind != "storage" or storage not in _STORAGES or not isinstance(key, str):
            raise pickle.UnpicklingError(f"found a reference to {kind!r}, allowed: a storage")
        values = np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), dtype=_STORAGES[storage])
        if values.size < count:
            raise pickle.UnpicklingError(f"storage {key} has {values.size} values, {count} were announced")
        if storage == "BFloat16Storage":
            return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values


def _rebuild_tensor(
    storage: npt.NDArray[Any],
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,  # noqa: ARG001, FBT001, FBT002
    hooks: Any = None,  # noqa: ARG001
    metadata: Any = None,  # noqa: ARG001
) -> npt.NDArray[Any]:
    """Return a tensor as an array of its own, checked to lie within its storage."""
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or any(type(number) is not int or number < 0 for number in numbers):
        raise pickle.UnpicklingError(
            f"a tensor of offset {offset}, size {size}, stride {stride} is not allowed"
        )
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if math.prod(size) and last >= storage.size:
        raise pickle.UnpicklingError(f"a tensor ends at value {last} of a storage of {storage.size}")
    if not math.prod(size):
        return np.empty(size, dtype=storage.dtype)
    strides = tuple(step * storage.itemsize for step in stride)
    view = np.lib.stride_tricks.as_strided(storage[offset:], size, strides, writeable=False)
    return np.array(view, order="C")
