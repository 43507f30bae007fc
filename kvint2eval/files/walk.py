"""The files below a folder: the one walk that records, pages and pinned folders share.

No symbolic link is followed, so no loop can arise and nothing outside the folder is reached. A link is no file: it is
given as what it is, and whoever walks says so. Hidden folders, and those that other tools leave out, are walked as any.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.files.names import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "link_entry", "walk"]


class Entry(NamedTuple):
    """One thing below a folder."""

    path: str
    fault: str = ""
    """Why it is no file that can be read; empty for a file."""
    hides_files: bool = False
    """Whether files may be out of sight behind it, whatever its name is."""


def walk(folder: str) -> Iterator[Entry]:
    """Everything below a folder but the folders themselves: sorted by name, the files of a folder before its folders.

    Parameters
    ----------
    folder
        The folder; a path with the folder's own spelling is given for each entry.
    """
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            yield Entry(current, f"{quoted(current)}: {error.strerror or error}", hides_files=True)
            continue
        inner = []
        for entry in found:
            if entry.is_symlink():
                yield link_entry(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            else:
                yield Entry(entry.path)
        pending += reversed(inner)


def link_entry(path: str) -> Entry:
    """A symbolic link, as what it is."""
    if os.path.isdir(path):  # noqa: PTH112  # pathlib takes a sixth of the command's start
        fault = f"{quoted(path)}: found a symbolic link to a folder, which is not followed"
        return Entry(path, f"{fault}; allowed: the folder itself", hides_files=True)
    is_dead = not os.path.exists(path)  # noqa: PTH110
    what = "a symbolic link that leads nowhere" if is_dead else "a symbolic link"
    return Entry(path, f"{quoted(path)}: found {what}, allowed: a regular file", hides_files=is_dead)
