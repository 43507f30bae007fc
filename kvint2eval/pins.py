"""Pins: digests that are known from elsewhere than the record, and how far each of a record's digests is bound.

A pins file is TOML:

```toml
format = "kvint2eval-pins/v1"

[[artifact]]
role = "artifact"                # artifact, recipe_artifact, model or runtime
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

A file of format `kvint2eval-pins/v2` can also pin the artifacts of v2 records, by their roles: producer, recipe,
kernel-source, kernel, weights, manifest.

An artifact has either a path or the reason why its digest cannot be bound.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvint2eval.digest import is_digest, open_regular, sha256_file, sha256_text_file
from kvint2eval.errors import InputError, PinsError
from kvint2eval.verdict import Binding, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvint2eval.contract import _v1_decoder as layout

__all__ = [
    "FORMAT",
    "FORMAT_V2",
    "ROLES",
    "ROLES_V2",
    "PinnedArtifact",
    "Pins",
    "parse_pins",
    "read_pins",
    "resolve_inside",
]

FORMAT = "kvint2eval-pins/v1"
FORMAT_V2 = "kvint2eval-pins/v2"

ROLES = ("artifact", "recipe_artifact", "model", "runtime")
"""The objects of a v1 record that carry a digest, in declared order."""

ROLES_V2 = ("producer", "recipe", "kernel-source", "kernel", "weights", "manifest")
"""The roles of a v2 record's artifacts."""

# A v2 pins file can pin records of both contracts.
_ROLES_OF = {FORMAT: ROLES, FORMAT_V2: ROLES + ROLES_V2}

MAX_PINS_BYTES = 1 << 20

_DRIVE_LETTER = re.compile(r"[A-Za-z]:")


class PinnedArtifact(msgspec.Struct, frozen=True):
    """One `[[artifact]]` table, with what hashing its file gave."""

    role: str
    """The object of a record that the pin holds for."""
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
    unbindable: str | None = None
    """Why the digest cannot be bound."""
    file_sha256: str | None = None
    """The file's digest; None where there is no such regular file."""

    def holds_for(self, role: str, identity: str, version: str) -> bool:
        """Whether the pin speaks of this object of a record."""
        return (
            self.role == role
            and (self.id is None or self.id == identity)
            and (self.version is None or self.version == version)
        )


class Pins(msgspec.Struct, frozen=True):
    """The pins of one pins file."""

    artifacts: tuple[PinnedArtifact, ...]
    """In the order of the file."""

    def bind(self, record: layout.Record) -> tuple[tuple[Binding, ...], Finding | None]:
        """How far each digest of a record is bound, and the first that is mismatched.

        Parameters
        ----------
        record
            The record's layout; its digests are well-formed.

        Returns
        -------
        tuple of Binding
            One a role, in declared order.
        Finding or None
            The first mismatch.
        """
        bindings = []
        first = None
        for role in ROLES:
            binding, mismatch = self._bind_role(record, role)
            bindings.append(binding)
            first = first or mismatch
        return tuple(bindings), first

    def _bind_role(self, record: layout.Record, role: str) -> tuple[Binding, Finding | None]:
        part: Any = getattr(record, role)
        identity = part.kernel if role == "runtime" else part.id
        return self.bind_digest(role, identity, part.version, part.sha256, f"/{role}/sha256")

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
        holding = [pin for pin in self.artifacts if pin.holds_for(role, identity, version)]
        if not holding:
            return Binding(role, stated, "declared", why="no pin names it"), None
        pin = next((pin for pin in holding if pin.sha256 == stated), holding[0])
        if pin.sha256 != stated:
            why = f"pinned is {pin.sha256}"
            finding = Finding("pin-mismatch", pointer, f'"{stated}"', f'"{pin.sha256}", as pinned')
        elif pin.path is None:
            return Binding(role, stated, "declared", why=pin.unbindable), None
        elif pin.file_sha256 is None:
            why = "the pinned file is missing"
            finding = Finding(
                "pinned-file-missing", pointer, f"no regular file {pin.path}", "the pinned file"
            )
        elif pin.file_sha256 != stated:
            why = f"the file has {pin.file_sha256}"
            finding = Finding(
                "pinned-file-mismatch",
                pointer,
                f'{pin.path} with "{pin.file_sha256}"',
                f'"{pin.sha256}", as pinned',
            )
        else:
            return Binding(role, stated, "bound", pin.path), None
        return Binding(role, stated, "mismatched", pin.path, why), finding


def resolve_inside(root: Path, path: str) -> Path:
    """Place of a relative path below a folder.

    Raises
    ------
    PinsError
        The path is absolute, has a drive letter, a backslash or a `..`, or leads out of the folder through a
        symbolic link.
    """
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or _DRIVE_LETTER.match(path)
        or "\\" in path
        or ".." in parts
        or "\0" in path
    ):
        raise PinsError(
            f"found path {path!r}, allowed: a relative path with / that stays below the pins file"
        )
    inside = root.resolve()
    target = (inside / path).resolve()
    if not target.is_relative_to(inside):
        raise PinsError(
            f"found path {path!r}, which a symbolic link leads out of {root}, allowed: a path below it"
        )
    return inside / path


def read_pins(path: str | os.PathLike[str]) -> Pins:
    """Pins of a pins file, each file that it names rehashed.

    Raises
    ------
    PinsError
        The file cannot be read, or is not a pins file; the message says what was found, what is allowed, where.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            data = stream.read(MAX_PINS_BYTES + 1)
    except InputError as error:
        raise PinsError(f"pins file {error}") from error
    if len(data) > MAX_PINS_BYTES:
        raise PinsError(f"pins file {path}: found more than {MAX_PINS_BYTES} bytes, allowed: at most that")
    try:
        return parse_pins(tomllib.loads(data.decode()), Path(path).parent)
    except UnicodeDecodeError as error:
        raise PinsError(f"pins file {path}: found a byte that is not UTF-8 at {error.start}") from error
    except RecursionError as error:
        raise PinsError(f"pins file {path}: found tables nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        raise PinsError(f"pins file {path}: not TOML: {error}") from error
    except PinsError as error:
        raise PinsError(f"pins file {path}: {error}") from error


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
    roles = _ROLES_OF.get(str(tables.get("format")))
    if roles is None:
        raise PinsError(
            f'found format {tables.get("format")!r}, allowed: format = "{FORMAT}" or "{FORMAT_V2}"'
        )
    unknown = sorted(set(tables) - {"format", "artifact"})
    if unknown:
        raise PinsError(f"found table {unknown[0]!r}, allowed: format, [[artifact]]")
    entries = tables.get("artifact", [])
    if not isinstance(entries, list) or not entries:
        raise PinsError("found no artifact, allowed: one [[artifact]] table or more")
    pins = []
    for number, entry in enumerate(entries, 1):
        try:
            pins.append(_parse_artifact(entry, root, roles))
        except PinsError as error:
            raise PinsError(f"artifact {number}: {error}") from error
    return Pins(tuple(pins))


_KEYS = {"role": str, "sha256": str, "id": str, "version": str, "path": str, "text": bool, "unbindable": str}


def _parse_artifact(entry: Any, root: Path, roles: tuple[str, ...]) -> PinnedArtifact:
    if not isinstance(entry, dict):
        raise PinsError(f"found {entry!r}, allowed: a table")
    for key, value in entry.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise PinsError(f"found key {key!r}, allowed: {', '.join(_KEYS)}")
        if type(value) is not kind or value == "":
            raise PinsError(
                f"found {key} = {value!r}, allowed: {'true or false' if kind is bool else 'a text'}"
            )
    role, sha256 = entry.get("role"), entry.get("sha256")
    if role not in roles:
        raise PinsError(f"found role {role!r}, allowed: {', '.join(roles)}")
    if not isinstance(sha256, str) or not is_digest(sha256):
        raise PinsError(f"found sha256 {sha256!r}, allowed: 64 lower-case hexadecimal characters")
    if ("path" in entry) == ("unbindable" in entry):
        both = "both" if "path" in entry else "neither"
        raise PinsError(f"found {both} of path and unbindable, allowed: one of them")
    if entry.get("text") and "path" not in entry:
        raise PinsError("found text without path, allowed: text only for a file")
    return PinnedArtifact(**entry, file_sha256=_hash_pinned(entry, root))


def _hash_pinned(entry: Mapping[str, Any], root: Path) -> str | None:
    if "path" not in entry:
        return None
    target = resolve_inside(root, entry["path"])
    try:
        return sha256_text_file(target) if entry.get("text") else sha256_file(target)
    except InputError:
        return None
