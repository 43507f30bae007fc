"""`gate --update`: pages and pins file rewritten to what files and records say.

Pages are written before the pins file: its old digests are what an unanchored place is found by, so a run
that was cut off can be repeated. What cannot be fixed safely is left as it is, and the check that follows
says so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvint2eval.files.atomic import write_whole
from kvint2eval.gate.check import Gate, artifact_lines, read_page
from kvint2eval.gate.page import flex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvint2eval.gate.page import Located
    from kvint2eval.gate.tables import GateFile
    from kvint2eval.pins.pins import PinnedArtifact

__all__ = ["update"]


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def update(file: GateFile, pages: Iterable[str]) -> list[str]:
    """Fix what can be fixed, and return the paths of the files that were written.

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
        if isinstance(read_page(path), str):
            continue  # unreadable: the check that follows says so
        old = _read(path)
        spans = [one for located, text in edits.get(path, []) for one in _edits(old, located, text)]
        for before, after in unanchored.get(path, {}).items():
            spans += [_Edit(match.start(), match.end(), after) for match in re.finditer(before, old)]
        if _replace(path, old, _apply(old, spans)):
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


def _edits(source: str, located: Located, expected: str) -> list[_Edit]:
    """Edits that make a place read as expected; none when the source does not tell where it stands.

    Markup may stand inside what a reader sees as one text. Then each word that differs is replaced for itself.
    """
    starts = [0, *(match.end() for match in re.finditer("\n", source)), len(source) + 1]
    begin, end = starts[located.first - 1], starts[min(located.last, len(starts) - 1)] - 1
    whole = _place_of(located.found, located, located.start, source[begin:end])
    if whole is not None:
        return [_Edit(begin + whole[0], begin + whole[1], expected)]
    new = expected.split()
    old = list(re.finditer(r"\S+", located.text[located.start :]))[: len(located.found.split())]
    edits = []
    for word, replacement in zip(old, new, strict=False) if len(old) == len(new) else ():
        if word[0] == replacement:
            continue
        place = _place_of(word[0], located, located.start + word.start(), source[begin:end])
        if place is None:
            return []
        edits.append(_Edit(begin + place[0], begin + place[1], replacement))
    return edits


def _place_of(found: str, located: Located, start: int, source: str) -> tuple[int, int] | None:
    """Place in the source of a text that begins at an offset of the rendered text.

    It is the n-th one in the source if it is the n-th one in the rendered text, and both hold as many.
    """
    pattern = re.compile(flex(found))
    rendered = [match.start() for match in pattern.finditer(located.text)]
    matches = list(pattern.finditer(source))
    if start not in rendered or len(matches) != len(rendered):
        return None
    return matches[rendered.index(start)].span()


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
        new = artifact.file_sha256
        if new is None or new == artifact.sha256:
            continue
        table = range(first - 1, end - 1)
        stated = [
            index
            for index in table
            if re.match(rf'\s*sha256\s*=\s*["\']{artifact.sha256}["\']', lines[index])
        ]
        if len(stated) == 1:
            lines[stated[0]] = lines[stated[0]].replace(artifact.sha256, new, 1)
    return "\n".join(lines)


def _replace(path: str, old: str, new: str) -> bool:
    """Write a file as a whole, if anything is new."""
    if old == new:
        return False
    write_whole(Path(path), new.encode())
    return True
