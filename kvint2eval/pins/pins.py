"""Pins: digests known from elsewhere than the record, and the binding of a record's digests to them.

A pins file is TOML:

```toml
format = "kvint2eval-pins/v1"

[[artifact]]
role = "artifact"                # artifact, recipe_artifact, model or runtime: objects of a record
id = "my-producer"               # optional: the pin holds for records that name this id
version = "2"                    # optional: and this version
sha256 = "b6c5…5520"
path = "producer/main.cu"        # relative to the pins file: rehashed on every run
text = true                      # optional: hashed in LF form

[[artifact]]
role = "runtime"                 # id is runtime.kernel, version is runtime.version
sha256 = "2a2a…6f2c"
unbindable = "the compiled program stayed on the GPU node"
```

An artifact has either a path or the reason why its digest cannot be bound. With `tree` the path is a folder:

```toml
path = "producer"
tree = ["*.py", "*.cu"]          # names of the files that count, at any depth
text = true
```

Its digest is that of a listing: for each such file, in byte order of its path, its SHA-256, two spaces, its path
from the pins file's folder, and a line end. With LF line ends that is what
`find producer -name '*.py' -o -name '*.cu' | LC_ALL=C sort | xargs sha256sum | sha256sum` prints.

The docs gate reads the same file. What it adds, `pages`, `[[place]]`, `[[figure]]` and the roles of
`GATE_ROLES`, is described in `kvint2eval.gate.tables` and passed over here. The whole format has a JSON
Schema, `pins.schema.json`.
"""

from __future__ import annotations

import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.errors import InputError, PinsError
from kvint2eval.files.digest import (
    is_digest,
    line_end_hint,
    open_regular,
    sha256_file,
    sha256_hex,
    sha256_text_file,
)
from kvint2eval.files.names import in_normal_form, look_alike, quoted
from kvint2eval.files.paths import resolve_inside
from kvint2eval.files.walk import walk
from kvint2eval.pins.roles import GATE_ROLES, ROLES, ROLES_V2
from kvint2eval.verdict import Binding, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "FORMAT",
    "UNNAMED",
    "PinnedArtifact",
    "Pins",
    "parse_artifacts",
    "parse_pins",
    "read_pins",
    "read_tables",
]

FORMAT = "kvint2eval-pins/v1"

UNNAMED = "no pin names it"
"""Why a digest is only declared that no pin holds for."""

_TABLES = ("format", "pages", "artifact", "place", "figure")

MAX_PINS_BYTES = 1 << 20


class PinnedArtifact(msgspec.Struct, frozen=True):
    """One `[[artifact]]` table, with what hashing its file gave."""

    role: str
    """The object of a record that the pin holds for, or one of `GATE_ROLES`."""
    sha256: str
    """The pinned digest."""
    id: str | None = None
    """The id that a record must name for the pin to hold; None holds for all."""
    version: str | None = None
    """The version that a record must name for the pin to hold; None holds for all."""
    path: str | None = None
    """The file, relative to the pins file; None when the digest cannot be bound."""
    text: bool = False
    """Whether the file is hashed in LF form."""
    tree: tuple[str, ...] = ()
    """For a folder, the names of the files in its listing, as `fnmatch` takes them; empty for a file."""
    unbindable: str | None = None
    """Why the digest cannot be bound."""
    file_sha256: str | None = None
    """The file's digest, or that of the folder's listing; None where there is no such regular file."""
    hint: str = ""
    """What else there is to say of a file that is missing or has another digest."""

    def __str__(self) -> str:
        """Role, id and version."""
        named = [quoted(one) for one in (self.id, self.version) if one is not None]
        return " ".join([self.role, *named])

    def holds_for(self, role: str, identity: str, version: str) -> bool:
        """Whether the pin speaks of this object of a record."""
        return (
            self.role == role
            and (self.id is None or self.id == identity)
            and (self.version is None or self.version == version)
        )


PIN_MISMATCH = Code(
    "pin-mismatch",
    Reason.PIN_MISMATCH,
    "A digest in the record is not the pinned one.",
    "The record belongs to another version of the artifact: run again, or pin the version that was run.",
    "the record names another producer digest than the pins file",
    v1=10,
    v2=16,
)
PINNED_FILE_MISMATCH = Code(
    "pinned-file-mismatch",
    Reason.PIN_MISMATCH,
    "The pinned file has another digest than its pin.",
    "The file changed since it was pinned: restore it, or run again and pin anew.",
    "the producer was edited after it was pinned",
    v1=10,
    v2=16,
)
PINNED_FILE_MISSING = Code(
    "pinned-file-missing",
    Reason.PIN_MISMATCH,
    "The pinned file is not there or is not a regular file.",
    "Restore the file, or declare the pin unbindable with a reason.",
    "the producer was moved",
    v1=10,
    v2=16,
)


class Pins(msgspec.Struct, frozen=True):
    """The pins of one pins file."""

    artifacts: tuple[PinnedArtifact, ...]
    """Those that v1 records are compared with, in the order of the file."""
    artifacts_v2: tuple[PinnedArtifact, ...] = ()
    """Those that v2 records are compared with."""
    met: set[PinnedArtifact] = msgspec.field(default_factory=set)
    """Those that a record was compared with so far; the rest are pins that no record of the run has."""

    def bind_digest(
        self, role: str, identity: str, version: str, stated: str, pointer: str
    ) -> tuple[Binding, Finding | None]:
        """How far one digest of a record is bound, and its mismatch if it has one.

        Parameters
        ----------
        role, identity, version
            What the digest is of.
        stated
            The digest as the record states it.
        pointer
            JSON pointer of the digest.
        """
        pins = self.artifacts if role in ROLES else self.artifacts_v2
        holding = [pin for pin in pins if pin.holds_for(role, identity, version)]
        if not holding:
            return Binding(role, stated, "declared", why=_unnamed(pins, role, identity)), None
        self.met.update(holding)
        pin = next((pin for pin in holding if pin.sha256 == stated), holding[0])
        if pin.sha256 != stated:
            why = f"pinned is {pin.sha256}"
            finding = Finding(PIN_MISMATCH, pointer, f'"{stated}"', f'"{pin.sha256}", as pinned')
        elif pin.path is None:
            return Binding(role, stated, "declared", why=pin.unbindable), None
        elif pin.file_sha256 is None:
            why = "the pinned file is missing"
            found = f"no regular file {quoted(pin.path)}{pin.hint}"
            finding = Finding(PINNED_FILE_MISSING, pointer, found, "the pinned file")
        elif pin.file_sha256 != stated:
            why = f"the file has {pin.file_sha256}{pin.hint}"
            finding = Finding(
                PINNED_FILE_MISMATCH,
                pointer,
                f'{quoted(pin.path)} with "{pin.file_sha256}"{pin.hint}',
                f'"{pin.sha256}", as pinned',
            )
        else:
            return Binding(role, stated, "bound", pin.path), None
        return Binding(role, stated, "mismatched", pin.path, why), finding

    @property
    def unmet(self) -> list[str]:
        """The pins that no record was compared with so far, in words."""
        held = dict.fromkeys((*self.artifacts, *self.artifacts_v2))
        return [str(pin) for pin in held if pin not in self.met]


def _unnamed(pins: Iterable[PinnedArtifact], role: str, identity: str) -> str:
    """Why a digest is only declared that no pin holds for."""
    alike = in_normal_form(identity)
    for pin in pins:
        if pin.role == role and pin.id is not None and pin.id != identity and in_normal_form(pin.id) == alike:
            return f"{UNNAMED}; one names {quoted(pin.id)}, which looks the same but is another text"
    return UNNAMED


def read_pins(path: str | os.PathLike[str]) -> Pins:
    """Pins of a pins file, each file that it pins for a record rehashed.

    Raises
    ------
    PinsError
        The file cannot be read, or is not a pins file; the message says what was found, what is allowed, where.
    """
    tables, _ = read_tables(path)
    try:
        return parse_pins(tables, Path(path).parent)
    except PinsError as error:
        raise PinsError(f"pins file {path}: {error}") from error


def read_tables(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str]:
    """Parsed TOML of a pins file, and its text.

    Raises
    ------
    PinsError
        The file cannot be read, or is not TOML.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            data = stream.read(MAX_PINS_BYTES + 1)
    except InputError as error:
        raise PinsError(f"pins file {error}") from error
    if len(data) > MAX_PINS_BYTES:
        raise PinsError(f"pins file {path}: found more than {MAX_PINS_BYTES} bytes, allowed: at most that")
    try:
        text = data.decode()
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        raise PinsError(f"pins file {path}: found a byte that is not UTF-8 at {error.start}") from error
    except RecursionError as error:
        raise PinsError(f"pins file {path}: found tables nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        raise PinsError(f"pins file {path}: not TOML: {error}") from error


def parse_pins(tables: Mapping[str, Any], root: Path) -> Pins:
    """Pins of parsed TOML tables.

    Parameters
    ----------
    tables
        The top level of a pins file.
    root
        Folder that the paths are relative to.

    Raises
    ------
    PinsError
        A table, a key or a value is not allowed.
    """
    return Pins(parse_artifacts(tables, root, ROLES), parse_artifacts(tables, root, ROLES_V2))


def parse_artifacts(
    tables: Mapping[str, Any], root: Path, roles: tuple[str, ...]
) -> tuple[PinnedArtifact, ...]:
    """Artifacts of some roles; those of others are checked for their form and left out.

    Parameters
    ----------
    tables, root
        As for `parse_pins`.
    roles
        The roles whose files are hashed.

    Raises
    ------
    PinsError
        A table, a key or a value is not allowed.
    """
    if tables.get("format") != FORMAT:
        raise PinsError(f'found format {tables.get("format")!r}, allowed: format = "{FORMAT}"')
    unknown = sorted(set(tables).difference(_TABLES))
    if unknown:
        raise PinsError(f"found table {unknown[0]!r}, allowed: {', '.join(_TABLES)}")
    entries = tables.get("artifact", [])
    if not isinstance(entries, list) or not entries:
        raise PinsError("found no artifact, allowed: one [[artifact]] table or more")
    pins = []
    for number, entry in enumerate(entries, 1):
        try:
            _require_artifact(entry)
            if entry["role"] in roles:
                pins.append(_pinned(entry, root))
            elif "path" in entry:
                resolve_inside(root, entry["path"])
        except PinsError as error:
            raise PinsError(f"artifact {number}: {error}") from error
    return tuple(pins)


_KEYS: dict[str, type] = {
    "role": str,
    "sha256": str,
    "id": str,
    "version": str,
    "path": str,
    "text": bool,
    "tree": list,
    "unbindable": str,
}
_ALLOWED = {str: "a text", bool: "true or false", list: "a list of file names"}


def _require_artifact(entry: Any) -> None:
    if not isinstance(entry, dict):
        raise PinsError(f"found {entry!r}, allowed: a table")
    for key, value in entry.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise PinsError(f"found key {key!r}, allowed: {', '.join(_KEYS)}")
        is_list = isinstance(value, list)
        names = value if is_list else [value]
        if type(value) is not kind or not names or (is_list and not all(map(_is_name, names))) or value == "":
            raise PinsError(f"found {key} = {value!r}, allowed: {_ALLOWED[kind]}")
    role, sha256 = entry.get("role"), entry.get("sha256")
    if role not in ROLES + GATE_ROLES:
        raise PinsError(f"found role {role!r}, allowed: {', '.join(ROLES + GATE_ROLES)}")
    if not isinstance(sha256, str) or not is_digest(sha256):
        raise PinsError(f"found sha256 {sha256!r}, allowed: 64 lower-case hexadecimal characters")
    if ("path" in entry) == ("unbindable" in entry):
        both = "both" if "path" in entry else "neither"
        raise PinsError(f"found {both} of path and unbindable, allowed: one of them")
    for key in ("text", "tree"):
        if entry.get(key) and "path" not in entry:
            raise PinsError(f"found {key} without path, allowed: {key} only for a file or folder")


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name) and "/" not in name


def _pinned(entry: Mapping[str, Any], root: Path) -> PinnedArtifact:
    tree = tuple(entry.get("tree", ()))
    digest, hint = _hash_pinned(entry, root, tree)
    return PinnedArtifact(**{**entry, "tree": tree}, file_sha256=digest, hint=hint)


def _hash_pinned(entry: Mapping[str, Any], root: Path, tree: tuple[str, ...]) -> tuple[str | None, str]:
    """Digest of what an entry pins, None where it cannot be taken, and what else there is to say."""
    if "path" not in entry:
        return None, ""
    target = resolve_inside(root, entry["path"])
    is_text = bool(entry.get("text"))
    compute = sha256_text_file if is_text else sha256_file
    try:
        if tree:
            return _hash_tree(target, entry["path"], tree, compute), ""
        digest = compute(target)
    except InputError as error:
        return None, f": {error}" if os.path.lexists(target) else look_alike(target)
    return digest, "" if digest == entry["sha256"] else line_end_hint(
        target, entry["sha256"], is_text=is_text
    )


def _hash_tree(folder: Path, name: str, tree: tuple[str, ...], compute: Callable[[Path], str]) -> str:
    """Digest of a folder's listing.

    Raises
    ------
    InputError
        No file counts, one that counts is a link, or files may be out of sight behind a link or a closed folder.
    """
    if not folder.is_dir():
        raise InputError(f"found no folder{look_alike(folder)}")
    files = {}
    for entry in walk(str(folder)):
        counts = any(fnmatchcase(Path(entry.path).name, pattern) for pattern in tree)
        if entry.fault and (counts or entry.hides_files):
            raise InputError(entry.fault)
        if counts:
            files[f"{name.rstrip('/')}/{Path(entry.path).relative_to(folder).as_posix()}"] = Path(entry.path)
    if not files:
        raise InputError(f"found no file of {', '.join(tree)} there")
    listing = "".join(f"{compute(files[one])}  {one}\n" for one in sorted(files, key=os.fsencode))
    return sha256_hex(os.fsencode(listing))
