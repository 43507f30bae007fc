"""Safe relative paths."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kvint2eval.errors import PinsError

__all__ = ["is_safe_path", "resolve_inside"]

_DRIVE_LETTER = re.compile(r"[A-Za-z]:")


def is_safe_path(path: str) -> bool:
    """Whether a path is relative, written with `/`, and cannot lead out of its root by name."""
    parts = path.split("/")
    is_plain = "\\" not in path and path.isprintable() and not _DRIVE_LETTER.match(path)
    return is_plain and not {"", ".", ".."} & set(parts)


def resolve_inside(root: Path, path: str) -> Path:
    """Place of a relative path below a folder.

    Raises
    ------
    PinsError
        The path is absolute, has a drive letter, a backslash or a `..`, or leads out of the folder through a
        symbolic link.
    """
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or _DRIVE_LETTER.match(path)
        or "\\" in path
        or ".." in parts
        or "\0" in path
    ):
        raise PinsError(
            f"found path {path!r}, allowed: a relative path with / that stays below the pins file"
        )
    inside = os.path.realpath(root)
    target = os.path.join(inside, path)  # noqa: PTH118  # pathlib takes five times as long, for each of many paths
    real = os.path.realpath(target)
    if real != inside and not real.startswith(f"{inside.rstrip('/')}/"):
        raise PinsError(
            f"found path {path!r}, which a symbolic link leads out of {root}, allowed: a path below it"
        )
    return Path(target)
