"""Digests of bytes, of files, of text in LF form."""

import os
import socket

import pytest

from kvint2eval import InputError
from kvint2eval.files import digest as module
from kvint2eval.files.digest import is_digest, sha256_file, sha256_hex, sha256_text_file

# FIPS 180-4 examples.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_known_digests(tmp_path):
    assert (sha256_hex(b"abc"), sha256_hex(b"")) == (ABC, EMPTY)
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert sha256_file(path) == sha256_text_file(path) == ABC
    path.write_bytes(b"")
    assert sha256_file(path) == sha256_text_file(path) == EMPTY


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_text_has_one_digest_with_either_line_end(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk)
    path = tmp_path / "a"
    for written, meant in [
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\rb\r", b"a\rb\r"),
        (b"\r\r\n\r", b"\r\n\r"),
        (b"\r\n", b"\n"),
        (b"\r", b"\r"),
    ]:
        path.write_bytes(written)
        assert sha256_text_file(path) == sha256_hex(meant), written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * 64, True),
        ("0123456789abcdef" * 4, True),
        ("A" * 64, False),
        ("a" * 63, False),
        ("a" * 65, False),
        ("a" * 64 + "\n", False),
        ("a" * 63 + "\n", False),
        (" " + "a" * 63, False),
        ("\uff11" * 64, False),
        ("g" * 64, False),
        ("", False),
    ],
)
def test_is_digest(text, expected):
    assert is_digest(text) is expected


def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # a socket path must be short
        server.bind("socket")
        for name, message in [
            ("link", "found a symbolic link, allowed: a regular file"),
            ("pipe", "found a named pipe, allowed: a regular file"),
            ("socket", "No such device"),
            ("", "found a folder, allowed: a regular file"),
            ("absent", "No such file"),
        ]:
            with pytest.raises(InputError, match=message):
                sha256_file(tmp_path / name)
    with pytest.raises(InputError, match="found a device or socket"):
        sha256_file("/dev/null")
