"""Paths as a CI system wants them: from the repository's root, however they were typed."""

from __future__ import annotations

import os
from functools import lru_cache

__all__ = ["PathRoot", "default_root"]


def default_root() -> str:
    """Root of the repository: `GITHUB_WORKSPACE`, else the nearest folder with `.git`, else the present one."""
    here = os.path.realpath(os.curdir)
    workspace = os.path.realpath(os.environ.get("GITHUB_WORKSPACE") or os.curdir)
    if os.environ.get("GITHUB_WORKSPACE") and _is_below(here, workspace):
        return workspace
    folder = here
    while not os.path.lexists(os.path.join(folder, ".git")):  # noqa: PTH118  # pathlib is slow to import
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return here
        folder = parent
    return folder


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


class PathRoot:
    """The folder that paths are told from.

    Parameters
    ----------
    folder
        The folder; None for `default_root`.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = default_root() if folder is None else os.path.realpath(folder)
        self.told = lru_cache(maxsize=256)(self._told)

    def _told(self, path: str) -> str:
        """The path from the root, or the absolute one of a file outside; one file has one."""
        try:
            folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100  # `..` after a link is not meant here
            # The file's own link, if it is one, is what the finding is about.
            whole = f"{os.path.realpath(folder).rstrip('/')}/{name}"
        except ValueError:  # no name of a file: a NUL, or half a pair of surrogates
            return path
        return whole[len(self._folder.rstrip("/")) + 1 :] if _is_below(whole, self._folder) else whole
