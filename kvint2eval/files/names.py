"""Paths in messages, and names that look like another one."""

from __future__ import annotations

import json
import os
import re

__all__ = ["in_normal_form", "look_alike", "quoted"]

_PLAIN = re.compile(r"[\w./+@%:,=~-]+")


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as a message shows it: as it is where nothing in it can be misread, else in double quotes."""
    text = os.fspath(path)
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def in_normal_form(text: str) -> str:
    """A name without its accents' encoding (Unicode form NFC) and without case: what a reader sees of it."""
    import unicodedata  # noqa: PLC0415  # most runs have no such name

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def look_alike(path: str | os.PathLike[str]) -> str:
    """What is said of an absent path whose folder holds a name that looks like it; empty where none does.

    Parameters
    ----------
    path
        A path that does not exist. The first part that is missing decides.
    """
    text = os.fspath(path)
    folder, name = os.path.split(os.path.normpath(text))
    while folder not in ("", "/") and not os.path.isdir(folder):  # noqa: PTH112  # pathlib is slow to import
        folder, name = os.path.split(folder)
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208
    except OSError:
        return ""
    wanted = in_normal_form(name)
    for other in sorted(names):
        if other != name and in_normal_form(other) == wanted:
            is_case = other.casefold() == name.casefold()
            how = "in another case" if is_case else "in another Unicode form (NFC and NFD look alike)"
            return f"; the folder holds {quoted(other)}, the same name {how}"
    return ""
