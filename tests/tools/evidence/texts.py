"""The texts of the campaign: from where they are, to one folder, by digest."""

import gzip
import hashlib
import importlib.util
import pydoc_data.topics
import subprocess
import sysconfig
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from producer.system.files import temporary_beside
from tests.tools.evidence.needles import needle_text

TABLE = Path(__file__).with_name("texts.toml")


def table() -> dict[str, Any]:
    """The campaign's table."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def gather(folder: Path, names: Collection[str] | None = None) -> dict[str, Path]:
    """Texts of these names, or all, by name, with the digest of the table; existing ones are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for entry in table()["text"]:
        if names is not None and entry["name"] not in names:
            continue
        path = folder / entry["name"]
        if not path.exists():
            content = _ORIGINS[entry["origin"]](entry, folder)
            _require(entry, content)
            with temporary_beside(path) as temporary:
                temporary.write_bytes(content)
        _require(entry, path.read_bytes())
        found[entry["name"]] = path
    return found


def _require(entry: dict[str, Any], content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry["sha256"]:
        message = f"text {entry['name']} has SHA-256 {digest}, allowed: {entry['sha256']}"
        raise SystemExit(f"{message}; its origin has another version")


def made(entry: dict[str, Any], _folder: Path) -> bytes:
    """The needles."""
    return needle_text(entry["needles"], entry["questions"], entry["seed"]).encode()


def _topics(entry: dict[str, Any], _folder: Path) -> bytes:
    return "\n".join(list(pydoc_data.topics.topics.values())[entry["first"] :]).encode()


def _python(entry: dict[str, Any], _folder: Path) -> bytes:
    return (Path(sysconfig.get_path("stdlib")) / entry["file"]).read_bytes()


def _package(entry: dict[str, Any], _folder: Path) -> bytes:
    origin = importlib.util.find_spec(entry["package"]).origin
    return (Path(origin).parent / entry["file"]).read_bytes()


def _debian(entry: dict[str, Any], folder: Path) -> bytes:
    """A file of the system where it is there with the right bytes, else of the package, which is not installed."""
    here = Path("/") / entry["file"]
    if here.exists() and hashlib.sha256(_unpacked(here)).hexdigest() == entry["sha256"]:
        return _unpacked(here)
    root = folder / "debian" / entry["package"]
    if not (root / entry["file"]).exists():
        root.mkdir(parents=True, exist_ok=True)
        wanted = f"{entry['package']}={entry['version']}"
        subprocess.run(["apt-get", "download", wanted], cwd=root, check=True)  # noqa: S607 - Debian's own
        (archive,) = root.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)  # noqa: S607
    return _unpacked(root / entry["file"])


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


_ORIGINS = {"made": made, "topics": _topics, "python": _python, "package": _package, "debian": _debian}
