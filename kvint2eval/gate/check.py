"""Check of the docs gate: the bindings of a pins file compared with files, records and pages. Never writes."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvint2eval.errors import InputError, StrictJsonError
from kvint2eval.files.digest import open_regular
from kvint2eval.files.inputs import read_record_file
from kvint2eval.files.names import in_normal_form, quoted
from kvint2eval.files.walk import walk
from kvint2eval.gate.codes import GATE_FINDINGS
from kvint2eval.gate.figures import FormatMismatch, at_pointer
from kvint2eval.gate.page import DIGEST, Page, normal
from kvint2eval.strict_json.parse import parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvint2eval.gate.page import Located
    from kvint2eval.gate.tables import Figure, GateFile, Place
    from kvint2eval.pins.pins import PinnedArtifact

__all__ = ["Binding", "Gate", "GateFinding", "artifact_lines", "collect_pages", "read_page"]

MAX_FILE_BYTES = 64 << 20

_KEPT_RECORDS = 64


class GateFinding(msgspec.Struct, frozen=True):
    """What does not hold, with where, found, expected and how to fix it."""

    code: str
    """One of `kvint2eval.gate.codes.GATE_FINDINGS`."""
    path: str
    """The file that shows it."""
    line: int | None
    """Its line, from 1; None for a file as a whole."""
    where: str
    """The binding in words."""
    found: str
    expected: str

    @property
    def meaning(self) -> str:
        """What the finding means, one sentence."""
        return GATE_FINDINGS[self.code].meaning

    @property
    def mend(self) -> str:
        """How to fix it, one sentence with the command where there is one."""
        return GATE_FINDINGS[self.code].mend


class Binding(msgspec.Struct, frozen=True):
    """One thing that the gate held: an artifact, a place, a figure, or the digests of a page."""

    kind: str
    """`artifact`, `place`, `figure` or `page`."""
    name: str
    """What is bound, in words."""
    path: str
    """The file: the pins file for an artifact, else the page."""
    findings: tuple[GateFinding, ...] = ()
    """What does not hold; empty when all does."""
    located: Located | None = None
    """The place on the page, for one that can be rewritten."""
    expected: str = ""
    """What must stand there."""


class _Bound:
    """A page and what is bound there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.places: list[Place] = []
        self.figures: list[Figure] = []


def read_page(path: str) -> Page | str:
    """A page, or why there is none."""
    try:
        return Page(_read_text(path))
    except InputError as error:
        return str(error)


def collect_pages(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Markdown pages below some paths, sorted, and what could not be taken.

    Parameters
    ----------
    paths
        Files of any name, and folders (their `*.md` and `*.markdown` in any case, at any depth; hidden folders are
        passed over, links refused).
    """
    pages: list[str] = []
    errors: list[str] = []
    for path in paths:
        if not Path(path).is_dir() or Path(path).is_symlink():
            pages.append(path)
            continue
        found = []
        for entry in walk(path):
            is_hidden = any(
                part.startswith(".") for part in Path(os.path.relpath(entry.path, path)).parts[:-1]
            )
            if is_hidden:
                continue
            is_page = entry.path.lower().endswith((".md", ".markdown"))
            # What is no page that can be read, or hides some, becomes a finding: the others are gated.
            if is_page or entry.hides_files:
                found.append(entry.path)
        if not found:
            errors.append(f"{quoted(path)}: found no *.md below this folder, allowed: a page")
        pages += found
    return pages, errors


class Gate:
    """One run of the gate.

    Parameters
    ----------
    file
        The pins file.
    pages
        Paths of the pages that are gated beside those that places and figures name.
    is_update
        Whether a changed artifact counts as its new state: the places are then compared with the digest of
        the file that stands there.
    judge
        Why a record is unsupported, None for any other record; None judges none.
    """

    def __init__(
        self,
        file: GateFile,
        pages: Iterable[str],
        *,
        is_update: bool = False,
        judge: Callable[[bytes], str | None] | None = None,
    ) -> None:
        self._file = file
        self._judge = judge
        self._is_update = is_update
        self._read = lru_cache(maxsize=_KEPT_RECORDS)(self._read_record)
        self._bound: dict[str, _Bound] = {}
        for place in file.places:
            self._on(self._below(place.page)).places.append(place)
        for figure in file.figures:
            self._on(self._below(figure.page)).figures.append(figure)
        for path in pages:
            self._on(path)

    def _on(self, path: str) -> _Bound:
        """What is bound on a page, however its path is spelt."""
        return self._bound.setdefault(os.path.abspath(path), _Bound(path))  # noqa: PTH100  # links stay links

    def run(self) -> Iterator[Binding]:
        """Everything that is bound: the artifacts, then page by page its places, its figures and its digests.

        One page is held at a time, so memory does not grow with their number.
        """
        headers = artifact_lines(self._file)
        for number, artifact in enumerate(self._file.artifacts):
            if artifact.path is not None:
                yield self._artifact(artifact, headers[number] if headers else None)
        unbindable = {one.sha256 for one in self._file.artifacts if one.path is None}
        pinned = {self._digest_of(one) for one in self._file.artifacts if one.path is not None}
        yield from self._records()
        for bound in self._bound.values():
            yield from self._on_page(bound, unbindable, pinned)

    def _on_page(self, bound: _Bound, unbindable: set[str], pinned: set[str]) -> Iterator[Binding]:
        path = bound.path
        page = read_page(path)
        allowed = unbindable.copy()
        for place in bound.places:
            allowed.add(self._digest_of(place.artifact))
            yield self._place(place, path, page)
        for figure in bound.figures:
            held = self._figure(figure, path, page)
            # A digest may be a figure too: the witness that a record states.
            allowed.update(DIGEST.findall(held.expected))
            yield held
        yield _digests(path, page, allowed, pinned)

    def _records(self) -> Iterator[Binding]:
        """The records that figures are bound to, each of which must not be unsupported."""
        for record in dict.fromkeys(figure.record for figure in self._file.figures) if self._judge else ():
            path = os.path.normpath(self._file.root / record)
            try:
                document, data = self._read(record), read_record_file(path)
            except InputError:
                continue  # the figure's own finding says so
            if self._judge is None or not isinstance(document, dict) or "contract_version" not in document:
                continue  # a file with figures that is no record
            why = self._judge(data)
            name = f"record {record}"
            if why is not None:
                finding = GateFinding(
                    "record-unsupported", path, None, name, why, "a record that is not unsupported"
                )
                yield Binding("record", name, path, (finding,))

    def _below(self, path: str) -> str:
        """Path of a page as the user would type it: the pins file's folder and the path below it."""
        return os.path.normpath(self._file.root / path)

    def _digest_of(self, artifact: PinnedArtifact) -> str:
        is_new = self._is_update and artifact.file_sha256 is not None
        return artifact.file_sha256 or "" if is_new else artifact.sha256

    def _artifact(self, artifact: PinnedArtifact, line: int | None) -> Binding:
        name = f"{artifact.role} {artifact.path}"
        found: tuple[GateFinding, ...] = ()
        if artifact.file_sha256 is None:
            found = (
                GateFinding(
                    "file-missing",
                    self._file.path,
                    line,
                    name,
                    f"no regular file {quoted(artifact.path or '')}{artifact.hint}",
                    "the file",
                ),
            )
        elif artifact.file_sha256 != artifact.sha256 and not self._is_update:
            found = (
                GateFinding(
                    "file-changed",
                    self._file.path,
                    line,
                    name,
                    artifact.file_sha256 + artifact.hint,
                    artifact.sha256,
                ),
            )
        return Binding("artifact", name, self._file.path, found)

    def _place(self, place: Place, path: str, page: Page | str) -> Binding:
        artifact = place.artifact
        anchor = str(place.anchor)
        name = f"digest of {artifact.id}" + (f", {anchor}" if anchor else "")
        expected = self._digest_of(artifact)
        if isinstance(page, str):
            return Binding("place", name, path, (_unreadable(path, page, name),))
        if anchor:
            located = page.locate(place.anchor, "[0-9A-Fa-f]{64}", expected)
            return _held("place", "digest-differs", name, path, located, expected)
        if page.shows(expected) is not None:
            return Binding("place", name, path)
        finding = GateFinding("digest-absent", path, None, name, "no such digest on the page", expected)
        return Binding("place", name, path, (finding,), expected=expected)

    def _figure(self, figure: Figure, path: str, page: Page | str) -> Binding:
        name = f"{figure.record} {' '.join(figure.pointers)}, {figure.anchor}"
        try:
            document = self._read(figure.record)
            values = [at_pointer(document, pointer) for pointer in figure.pointers]
        except (InputError, LookupError) as error:
            finding = GateFinding(
                "pointer-missing",
                os.path.normpath(self._file.root / figure.record),
                None,
                name,
                str(error).strip("'\""),
                " ".join(figure.pointers),
            )
            return Binding("figure", name, path, (finding,))
        try:
            expected = figure.template.render(values)
        except FormatMismatch as mismatch:
            finding = GateFinding(
                "format-mismatch",
                self._file.path,
                None,
                name,
                mismatch.found,
                mismatch.allowed,
            )
            return Binding("figure", name, path, (finding,))
        if isinstance(page, str):
            return Binding("figure", name, path, (_unreadable(path, page, name),))
        located = page.locate(figure.anchor, figure.template.pattern, expected)
        return _held("figure", "figure-differs", name, path, located, expected)

    def _read_record(self, name: str) -> Any:
        path = os.path.normpath(self._file.root / name)
        try:
            return parse_text(_read_text(path))
        except StrictJsonError as error:
            raise InputError(f"found no acceptable JSON in {path}: {error}") from error


def _digests(path: str, page: Page | str, allowed: set[str], pinned: set[str]) -> Binding:
    """The 64-hex strings of a page, each of which must be one that is bound there or listed."""
    name = f"digests of {path}"
    if isinstance(page, str):
        return Binding("page", name, path, (_unreadable(path, page, name),))
    findings = []
    for digest, line in page.digests():
        if digest in allowed:
            continue
        code = "digest-unplaced" if digest in pinned else "digest-unlisted"
        expected = "a [[place]] for this page" if digest in pinned else "a digest of the pins file"
        findings.append(GateFinding(code, path, line, "64-hex string", digest, expected))
    return Binding("page", name, path, tuple(findings))


def _held(kind: str, code: str, name: str, path: str, located: list[Located], expected: str) -> Binding:
    """Binding of an anchored place, compared with the text that must be there."""
    if len(located) != 1:
        lines = ", ".join(str(one.line) for one in located)
        finding = GateFinding(
            "anchor-ambiguous" if located else "anchor-missing",
            path,
            located[0].line if located else None,
            name,
            f"{len(located)} such places, lines {lines}" if located else "no such place on the page",
            f"one place that reads {expected}",
        )
        return Binding(kind, name, path, (finding,))
    (one,) = located
    if one.found == normal(expected):
        return Binding(kind, name, path, expected=expected)
    found = one.found or "nothing"
    if found.casefold() != expected.casefold() and in_normal_form(found) == in_normal_form(expected):
        found += ", which looks the same but is another text (Unicode form)"
    finding = GateFinding(code, path, one.line, name, found, expected)
    return Binding(kind, name, path, (finding,), one if one.is_exact else None, expected)


def _unreadable(path: str, why: str, name: str) -> GateFinding:
    return GateFinding("page-unreadable", path, None, name, why.removeprefix(f"{path}: "), "a page in UTF-8")


def _read_text(path: str) -> str:
    """Text of a file.

    Raises
    ------
    InputError
        The file cannot be read, is larger than 64 MiB, or is not UTF-8.
    """
    with os.fdopen(open_regular(path), "rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{path}: found more than {MAX_FILE_BYTES} bytes, allowed: at most that")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: found a byte that is not UTF-8 at {error.start}") from error


def artifact_lines(file: GateFile) -> list[int] | None:
    """Lines of the `[[artifact]]` headers; None when they cannot be told from the text of strings."""
    lines = [
        number
        for number, line in enumerate(file.text.split("\n"), 1)
        if re.match(r"\s*\[\[\s*artifact\s*\]\]", line)
    ]
    return lines if len(lines) == len(file.artifacts) else None
