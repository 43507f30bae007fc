"""`gate --update`: writes what the files and records say into the pages and the pins file.

Pages are written before the pins file: its old digests are what an unanchored place is found by, so a run
that was cut off can be repeated. What cannot be mended safely is left as it is, and the check that follows
says so.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.gate.check import Gate, artifact_lines
from kvint2eval.gate.page import flex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvint2eval.gate.page import Located
    from kvint2eval.gate.tables import GateFile
    from kvint2eval.pins import PinnedArtifact

__all__ = ["update"]


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def update(file: GateFile, pages: Iterable[str]) -> list[str]:
    """Mend what can be mended, and give the paths of the files that were written.

    Parameters
    ----------
    file
        The pins file, its artifacts rehashed.
    pages
        As for `kvint2eval.gate.check.Gate`.

    Raises
    ------
    OSError
        A file cannot be written. Each is replaced as a whole, so none is left half written.
    """
    edits: dict[str, list[tuple[Located, str]]] = {}
    for binding in Gate(file, pages, is_update=True).run():
        if binding.located is not None:
            edits.setdefault(binding.path, []).append((binding.located, binding.expected))
    moved = _moved(file)
    unanchored: dict[str, dict[str, str]] = {}
    for place in file.places:
        if not str(place.anchor) and place.artifact.sha256 in moved:
            path = os.path.normpath(file.root / place.page)
            unanchored.setdefault(path, {})[place.artifact.sha256] = moved[place.artifact.sha256]
    written = []
    for path in dict.fromkeys([*edits, *unanchored]):
        old = _read(path)
        spans = [_span(old, located, text) for located, text in edits.get(path, [])]
        for before, after in unanchored.get(path, {}).items():
            spans += [_Edit(match.start(), match.end(), after) for match in re.finditer(before, old)]
        if _replace(path, old, _apply(old, [one for one in spans if one is not None])):
            written.append(path)
    if _replace(file.path, file.text, _new_pins(file)):
        written.append(file.path)
    return written


def _moved(file: GateFile) -> dict[str, str]:
    """Old digest to new, of the changed artifacts whose old digest belongs to nothing that stays."""
    changed = {one.sha256: one.file_sha256 for one in file.artifacts if _is_changed(one)}
    kept = {one.sha256 for one in file.artifacts if not _is_changed(one)}
    several = {
        one.sha256 for one in file.artifacts if _is_changed(one) and changed[one.sha256] != one.file_sha256
    }
    return {old: new for old, new in changed.items() if new is not None and old not in kept | several}


def _is_changed(artifact: PinnedArtifact) -> bool:
    return artifact.file_sha256 is not None and artifact.file_sha256 != artifact.sha256


def _read(path: str) -> str:
    # Line ends and a byte-order mark stay as they are.
    return Path(path).read_bytes().decode()


def _span(text: str, located: Located, replacement: str) -> _Edit | None:
    """Where in a page's source a rendered text stands; None when the source does not tell."""
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text) + 1]
    begin, end = starts[located.first - 1], starts[min(located.last, len(starts) - 1)] - 1
    matches = list(re.finditer(flex(located.found), text[begin:end]))
    if len(matches) != located.total:
        return None
    match = matches[located.nth]
    return _Edit(begin + match.start(), begin + match.end(), replacement)


def _apply(text: str, edits: list[_Edit]) -> str:
    """Text with the edits made, from its end on; of two that overlap the earlier one is left out."""
    start = len(text)
    for edit in sorted(set(edits), reverse=True):
        if edit.end <= start:
            text = text[: edit.start] + edit.text + text[edit.end :]
            start = edit.start
    return text


def _new_pins(file: GateFile) -> str:
    """Text of the pins file with the digests of the files as they are; all else stays, comments too."""
    headers = artifact_lines(file)
    if headers is None:
        return file.text
    lines = file.text.split("\n")
    bounds = [*headers, len(lines) + 1]
    for artifact, first, end in zip(file.artifacts, headers, bounds[1:], strict=True):
        if artifact.file_sha256 is None or not _is_changed(artifact):
            continue
        table = range(first - 1, end - 1)
        stated = [
            index
            for index in table
            if re.match(rf'\s*sha256\s*=\s*["\']{artifact.sha256}["\']', lines[index])
        ]
        if len(stated) == 1:
            lines[stated[0]] = lines[stated[0]].replace(artifact.sha256, artifact.file_sha256, 1)
    return "\n".join(lines)


def _replace(path: str, old: str, new: str) -> bool:
    """Write a file as a whole, if anything is new."""
    if old == new:
        return False
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(new.encode())
        shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return True
