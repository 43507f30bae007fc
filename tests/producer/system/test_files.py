"""Files are whole or absent."""

import os
import stat

import pytest

from producer.errors import SpecError
from producer.system.files import require_writable, temporary_beside, write_text


def test_text_is_written_with_lf_and_readable_by_others(tmp_path):
    path = tmp_path / "record.json"
    before = os.umask(0o022)
    try:
        write_text(path, "a\nµ\n")
    finally:
        os.umask(before)
    assert path.read_bytes() == "a\nµ\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError])
def test_a_fault_leaves_the_old_file_and_nothing_else(tmp_path, fault):
    path = tmp_path / "record.json"
    path.write_text("old")

    def write():
        with temporary_beside(path) as temporary:
            temporary.write_text("half")
            raise fault

    with pytest.raises(fault):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(SpecError, match="there is no folder"):
        require_writable(tmp_path / "none" / "record.json")
    with pytest.raises(SpecError, match="exists and is no regular file"):
        require_writable(tmp_path)
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "target.json")
    with pytest.raises(SpecError, match="exists and is no regular file"):
        require_writable(link)


def test_a_folder_without_the_right_to_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SpecError, match="cannot be written"):
        require_writable(tmp_path / "record.json")
