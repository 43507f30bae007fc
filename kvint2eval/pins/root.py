"""Files below the root of a v2 record's paths: rehashed, and never followed outside."""

from __future__ import annotations

from pathlib import Path

from kvint2eval.errors import InputError, PinsError
from kvint2eval.files.digest import line_end_hint, sha256_file, sha256_text_file
from kvint2eval.files.names import look_alike, quoted
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
            raise InputError(
                f"root {quoted(path)}: found no folder, allowed: the folder that paths are relative to"
            )
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

    def hint(self, path: str, stated: str, *, is_text: bool) -> str:
        """What else there is to say of a file that is missing or has another digest than the stated one.

        Parameters
        ----------
        path, is_text
            As for `digest`.
        stated
            The digest that the file should have.
        """
        try:
            target = resolve_inside(self.path, path)
        except PinsError as error:
            return f": {error}"
        if target.is_symlink():
            return ": a symbolic link"
        return line_end_hint(target, stated, is_text=is_text) if target.exists() else look_alike(target)
