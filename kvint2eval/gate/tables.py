"""The docs gate's tables of a pins file: pages, places that publish digests, and figures.

```toml
pages = ["README.md", "docs"]    # gated beside the pages that places and figures name

[[artifact]]
role = "record"                  # a figure's record is pinned as a whole
id = "l4"
path = "records/l4.json"
text = true
sha256 = "…"

[[place]]                        # README.md publishes the artifact's digest
page = "README.md"
artifact = "l4"                  # its id
before = "digest of the record"  # optional: where on the page

[[figure]]
page = "docs/run.md"
row = "output error"             # a table cell: text of the row's first cell, or of its first cells
column = "baseline"              # and of the column's head
under = "Results"                # optional: the heading above it
record = "records/l4.json"
pointer = ["/metrics/candidates/0/output_nmse_mean", "/metrics/candidates/0/output_nmse_stddev"]
format = "{:.6f} ± {:.6f}"

[[figure]]
page = "docs/run.md"
before = "Rotation"              # in running text: the words before it,
after = "was selected"           # after it, or both
record = "records/l4.json"
pointer = "/metrics/selected_rotation"
format = "{:d}"
```

An anchor names what a reader sees, not a line, so that it survives edits elsewhere on the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvint2eval.errors import PinsError
from kvint2eval.files.paths import resolve_inside
from kvint2eval.gate.figures import Template, parse_template
from kvint2eval.pins.pins import PinnedArtifact, parse_artifacts, read_tables
from kvint2eval.pins.roles import GATE_ROLES, ROLES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

__all__ = ["Anchor", "Figure", "GateFile", "Place", "read_gate_file"]

_ANCHOR_KEYS = ("row", "column", "before", "after", "under")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


class Anchor(msgspec.Struct, frozen=True):
    """Where on a page."""

    row: tuple[str, ...] = ()
    """Texts of the row's first cells; empty when the place is no table cell."""
    column: str = ""
    """Text of the column's head."""
    before: str = ""
    """Words that stand before it."""
    after: str = ""
    """Words that stand after it."""
    under: str = ""
    """Text of a heading above it."""

    def __str__(self) -> str:
        """The anchor in words; empty for the whole page."""
        texts = (" | ".join(self.row), self.column, self.before, self.after, self.under)
        return ", ".join(f'{key} "{text}"' for key, text in zip(_ANCHOR_KEYS, texts, strict=True) if text)


class Place(msgspec.Struct, frozen=True):
    """A `[[place]]`: a page that publishes the digest of an artifact."""

    page: str
    artifact: PinnedArtifact
    anchor: Anchor


class Figure(msgspec.Struct, frozen=True):
    """A `[[figure]]`: a place on a page that shows figures of a record."""

    page: str
    record: str
    pointers: tuple[str, ...]
    template: Template
    anchor: Anchor


class GateFile(msgspec.Struct, frozen=True):
    """A pins file as the docs gate sees it, each file that it names rehashed."""

    path: str
    """As given."""
    text: str
    root: Path
    """The folder that all paths are relative to."""
    artifacts: tuple[PinnedArtifact, ...]
    places: tuple[Place, ...]
    figures: tuple[Figure, ...]
    pages: tuple[str, ...]
    """Pages, and folders of pages, that are gated though nothing may be bound there."""


def read_gate_file(path: str | os.PathLike[str]) -> GateFile:
    """Pins file for the docs gate.

    Raises
    ------
    PinsError
        The file cannot be read, or is not a pins file; the message says what was found, what is allowed, where.
    """
    tables, text = read_tables(path)
    root = Path(path).parent
    try:
        artifacts = parse_artifacts(tables, root, ROLES + GATE_ROLES)
        named = _by_id(artifacts)
        places = _each(tables, "place", lambda entry: _parse_place(entry, named, root))
        paths = frozenset(one.path for one in artifacts)
        figures = _each(tables, "figure", lambda entry: _parse_figure(entry, paths, root))
        pages = _texts(tables.get("pages", []), "pages")
        for page in pages:
            resolve_inside(root, page)
    except PinsError as error:
        raise PinsError(f"pins file {path}: {error}") from error
    return GateFile(str(path), text, root, artifacts, places, figures, pages)


def _by_id(artifacts: tuple[PinnedArtifact, ...]) -> dict[str, list[PinnedArtifact]]:
    named: dict[str, list[PinnedArtifact]] = {}
    for one in artifacts:
        if one.id is not None:
            named.setdefault(one.id, []).append(one)
    return named


def _each(tables: Mapping[str, Any], name: str, parse: Callable[[Any], Any]) -> tuple[Any, ...]:
    entries = tables.get(name, [])
    if not isinstance(entries, list):
        raise PinsError(f"found {name} that is no list of tables, allowed: [[{name}]]")
    parsed = []
    for number, entry in enumerate(entries, 1):
        try:
            parsed.append(parse(entry))
        except PinsError as error:
            raise PinsError(f"{name} {number}: {error}") from error
    return tuple(parsed)


def _texts(value: Any, key: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text.strip() for text in values):
        raise PinsError(f"found {key} = {value!r}, allowed: a text, or a list of texts")
    return tuple(values)


def _require_keys(entry: Any, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    if not isinstance(entry, dict):
        raise PinsError(f"found {entry!r}, allowed: a table")
    allowed = required + optional
    for key, value in entry.items():
        if key not in allowed:
            raise PinsError(f"found key {key!r}, allowed: {', '.join(allowed)}")
        if key not in ("row", "pointer") and not (isinstance(value, str) and value.strip()):
            raise PinsError(f"found {key} = {value!r}, allowed: a text")
    for key in required:
        if key not in entry:
            raise PinsError(f"found no {key}, allowed: a table with {', '.join(required)}")


def _parse_anchor(entry: Mapping[str, Any]) -> Anchor:
    row = _texts(entry.get("row", []), "row")
    anchor = Anchor(row, *(entry.get(key, "") for key in _ANCHOR_KEYS[1:]))
    if bool(row) != bool(anchor.column):
        raise PinsError("found only one of row and column, allowed: both, or neither")
    if row and (anchor.before or anchor.after):
        raise PinsError("found row together with before or after, allowed: one kind of anchor")
    return anchor


def _parse_place(entry: Any, artifacts: Mapping[str, list[PinnedArtifact]], root: Path) -> Place:
    _require_keys(entry, ("page", "artifact"), ("role", *_ANCHOR_KEYS))
    resolve_inside(root, entry["page"])
    named = artifacts.get(entry["artifact"], [])
    if "role" in entry:
        named = [one for one in named if one.role == entry["role"]]
    if len(named) != 1:
        ids = ", ".join(sorted(artifacts)) or "none has one"
        raise PinsError(
            f"found artifact {entry['artifact']!r}, which {len(named)} artifacts have as id, "
            f"allowed: one id of {ids}, with role where two share it"
        )
    anchor = _parse_anchor(entry)
    if anchor.under and not (anchor.row or anchor.before or anchor.after):
        raise PinsError("found under alone, allowed: under with row and column, before or after")
    return Place(entry["page"], named[0], anchor)


def _parse_figure(entry: Any, paths: frozenset[str | None], root: Path) -> Figure:
    _require_keys(entry, ("page", "record", "pointer"), ("format", *_ANCHOR_KEYS))
    resolve_inside(root, entry["page"])
    if entry["record"] not in paths:
        raise PinsError(
            f"found record {entry['record']!r}, which no [[artifact]] has as path, allowed: a pinned file"
        )
    pointers = _texts(entry["pointer"], "pointer")
    wrong = [pointer for pointer in pointers if not _POINTER.fullmatch(pointer)]
    if wrong:
        raise PinsError(f"found pointer {wrong[0]!r}, allowed: a JSON pointer such as /metrics/cache_bytes")
    template = parse_template(entry.get("format", "{}"))
    if len(template.fields) != len(pointers):
        raise PinsError(
            f"found {len(template.fields)} fields in format {template.source!r} for {len(pointers)} pointers, "
            "allowed: one a pointer"
        )
    anchor = _parse_anchor(entry)
    if not (anchor.row or anchor.before or anchor.after):
        raise PinsError("found no anchor, allowed: row and column, or before, after or both")
    return Figure(entry["page"], entry["record"], pointers, template, anchor)
