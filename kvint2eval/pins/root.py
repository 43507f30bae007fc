"""Files below the root of a v2 record's paths: rehashed, and never followed outside."""

from __future__ import annotations

from pathlib import Path

from kvint2eval.errors import InputError, PinsError
from kvint2eval.files.digest import sha256_file, sha256_text_file
from kvint2eval.files.paths import resolve_inside

__all__ = ["Root"]


class Root:
    """A folder with the files that records name.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    InputError
        There is no such folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"root {path}: found no folder, allowed: the folder that paths are relative to")
        # One run judges many records that name the same files.
        self._digests: dict[tuple[str, bool], str | None] = {}

    def digest(self, path: str, *, is_text: bool) -> str | None:
        """SHA-256 of a file below the root, or None where there is no such regular file.

        Parameters
        ----------
        path
            Relative, with `/`.
        is_text
            Whether the file is hashed in LF form.
        """
        key = (path, is_text)
        if key not in self._digests:
            try:
                target = resolve_inside(self.path, path)
                self._digests[key] = sha256_text_file(target) if is_text else sha256_file(target)
            except (InputError, PinsError):
                self._digests[key] = None
        return self._digests[key]
