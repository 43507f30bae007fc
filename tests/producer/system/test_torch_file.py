"""Files that torch wrote, read without it; hostile and broken ones refused."""

import os
import pickle
import zipfile

import numpy as np
import pytest

from producer.errors import FileFormatError
from producer.system.torch_file import read_torch_file
from tests.tools.regen.torch_files import FOLDER

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_tensors_of_every_kind():
    content = read_torch_file(FOLDER / "tensors.pt")
    assert (content["transposed"] == BASE.T).all()
    assert (content["slice"] == BASE[1:, ::2]).all()
    assert content["bfloat16"].dtype == np.float32
    assert content["bfloat16"].tolist() == [1.0, -3.140625, 2.0**-133]
    assert content["half"].tolist() == [0.5, 65504.0]
    assert content["double"].tolist() == [0.1]
    assert content["seq_lens"].dtype == np.int32
    assert content["seq_lens"].tolist() == [5, 7]
    assert content["long"].shape == ()
    assert content["long"] == 2**40
    assert content["flags"].tolist() == [True, False]
    assert content["empty"].shape == (0, 3)
    assert content["nested"][1] == {"text": "x", "none": None}
    content["slice"][0, 0] = -1  # an array of its own
    assert content["transposed"][0, 1] == 6


def archive(path, pickled, data=b"", byteorder=b"little"):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/data/0", data)
        file.writestr("a/byteorder", byteorder)
    return path


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


def test_a_pickle_that_calls_is_refused(tmp_path):
    path = archive(tmp_path / "x.pt", pickle.dumps({"layers": Evil()}))
    with pytest.raises(FileFormatError, match=r"found posix.system, allowed: tensors and containers of them"):
        read_torch_file(path)


def test_other_objects_of_torch_are_refused():
    with pytest.raises(FileFormatError, match=r"found torch.device, allowed: tensors"):
        read_torch_file(FOLDER / "module.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a file of tensors as torch.save writes it: File is not a zip file"),
        (b"PK\x05\x06" + bytes(18), "found 0 entries data.pkl, allowed: one"),
        (b"\x80\x02}q\x00.", "File is not a zip file"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path, content, message):
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        read_torch_file(path)


def test_big_endian_storages_and_cut_pickles_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="found big-endian storages"):
        read_torch_file(archive(tmp_path / "big.pt", pickle.dumps({}), byteorder=b"big"))
    with pytest.raises(FileFormatError, match="not a file of tensors"):
        read_torch_file(archive(tmp_path / "cut.pt", pickle.dumps({"a": 1})[:-1]))


def altered(tmp_path, old, new):
    """tensors.pt with some bytes of its pickle replaced by as many others."""
    path = tmp_path / "altered.pt"
    with zipfile.ZipFile(FOLDER / "tensors.pt") as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):
                assert data.count(old) >= 1
                data = data.replace(old, new, 1)
            target.writestr(name, data)
    return path


def test_a_tensor_outside_its_storage_is_refused(tmp_path):
    # (6, 4) is the size of the transposed tensor: BININT1 6, BININT1 4.
    with pytest.raises(FileFormatError, match=r"a tensor ends at value .* of a storage of 24"):
        read_torch_file(altered(tmp_path, b"K\x06K\x04", b"K\x60K\x04"))


def test_a_storage_that_is_too_short_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="has 24 values, 200 were announced"):
        read_torch_file(altered(tmp_path, b"K\x18", b"K\xc8"))
