"""pytest plugin: the records that a project lists in its pytest settings, each collected as a test.

```toml
[tool.pytest.ini_options]
kvint2eval_records = ["records", "more/*.json"]
kvint2eval_pins = "kvint2eval-pins.toml"       # optional
kvint2eval_root = "."                          # optional: files that v2 records name are rehashed below it
kvint2eval_policy = "policy.toml"              # optional: whose signatures a record needs, in PATH.dsse beside it
```

A supported record passes, an unsupported one fails with its finding, a delegated one is skipped with its reason.
Nothing is collected, and nothing of the adjudicator imported, where `kvint2eval_records` is not set.
"""

from __future__ import annotations

import os
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.signing.policy import Policy
    from kvint2eval.verdict import Verdict

__all__ = ["RecordFailure", "RecordFile", "RecordItem"]

_Read = TypeVar("_Read")


class _Settings(NamedTuple):
    files: dict[Path, bool]
    """Each listed file, and whether it holds one record a line."""
    pins: Pins | None
    root: Root | None
    policy: Policy | None


_SETTINGS = pytest.StashKey[_Settings]()


class RecordFailure(Exception):  # noqa: N818  # what a failing item raises, not an error of the package
    """An unsupported record. The text says what decided, one line a part."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    parser.addini(
        "kvint2eval_records",
        "records to adjudicate: files, folders (*.json and *.jsonl) and glob patterns, relative to this file",
        type="args",
        default=[],
    )
    parser.addini("kvint2eval_pins", "pins file to compare the records' digests with", default="")
    parser.addini("kvint2eval_root", "folder that the paths of v2 records are relative to", default="")
    parser.addini("kvint2eval_policy", "policy file: whose signatures every record needs", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Find the records, and add them to what is collected when no path was asked for.

    Raises
    ------
    pytest.UsageError
        A setting names nothing, or its file cannot be used.
    """
    listed = config.getini("kvint2eval_records")
    if not listed:
        return
    settings = _settings(config, listed)
    config.stash[_SETTINGS] = settings
    # With a path on the command line, only what lies below it is collected, records too.
    # A worker of pytest-xdist reads the same command line and settings, and so comes to the same arguments.
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        covered = [Path(config.invocation_params.dir, argument).resolve() for argument in config.args]
        config.args += [
            str(path)
            for path in settings.files
            if not any(path == one or one in path.parents for one in covered)
        ]


def _settings(config: pytest.Config, listed: list[str]) -> _Settings:
    from kvint2eval.files.inputs import collect  # noqa: PLC0415
    from kvint2eval.pins.pins import read_pins  # noqa: PLC0415
    from kvint2eval.pins.root import Root  # noqa: PLC0415
    from kvint2eval.signing.policy import read_policy  # noqa: PLC0415

    root = config.inipath.parent if config.inipath is not None else config.rootpath
    files: dict[Path, bool] = {}
    for pattern in listed:
        # A pattern that matches nothing is asked for by its own name, so that it is an error.
        # Path.glob would refuse an absolute one.
        matches = glob(str(Path(escape(str(root)), pattern)), recursive=True)  # noqa: PTH207
        found = sorted(matches) or [str(root / pattern)]
        inputs, errors = collect(found)
        if errors:
            raise pytest.UsageError(f"kvint2eval_records: {'; '.join(errors)}")
        files |= {Path(os.path.abspath(one.path)): one.is_lines for one in inputs}  # noqa: PTH100  # links stay links
    return _Settings(
        files,
        _read(config, root, "kvint2eval_pins", read_pins),
        _read(config, root, "kvint2eval_root", Root),
        _read(config, root, "kvint2eval_policy", read_policy),
    )


def _read(config: pytest.Config, root: Path, setting: str, read: Callable[[Path], _Read]) -> _Read | None:
    """What a setting names, read; None where it is not set."""
    from kvint2eval.errors import Kvint2evalError  # noqa: PLC0415

    name = config.getini(setting)
    try:
        return read(root / name) if name else None
    except Kvint2evalError as error:
        raise pytest.UsageError(f"{setting}: {error}") from error


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> RecordFile | None:
    """Collector of a listed file; nothing for any other."""
    settings = parent.config.stash.get(_SETTINGS, None)
    if settings is None or file_path not in settings.files:
        return None
    file: RecordFile = RecordFile.from_parent(parent, path=file_path)
    return file


class RecordFile(pytest.File):
    """A file of records."""

    def collect(self) -> Iterator[RecordItem]:
        """One item for the file, or for each of its lines.

        Raises
        ------
        pytest.Collector.CollectError
            The file cannot be read, or holds no line.
        """
        from kvint2eval.errors import InputError  # noqa: PLC0415
        from kvint2eval.files.inputs import read_record, stream_lines  # noqa: PLC0415

        settings = self.config.stash[_SETTINGS]
        try:
            if not settings.files[self.path]:
                yield self._item("record", read_record(str(self.path)), None)
                return
            number = 0
            with self.path.open("rb") as stream:
                for block in stream_lines(stream):
                    for data in block:
                        number += 1
                        yield self._item(f"line-{number}", data, number)
        except (InputError, OSError) as error:
            raise self.CollectError(str(error)) from error
        if not number:
            raise self.CollectError(f"{self.path}: found no record, allowed: one a line")

    def _item(self, name: str, data: bytes, line: int | None) -> RecordItem:
        item: RecordItem = RecordItem.from_parent(self, name=name, data=data, line=line)
        return item


class RecordItem(pytest.Item):
    """One record.

    Parameters
    ----------
    name, parent
        As pytest gives them.
    data
        The record's bytes.
    line
        Its line in a file of JSON Lines, from 1; else None.
    """

    def __init__(self, name: str, parent: RecordFile, *, data: bytes, line: int | None) -> None:
        super().__init__(name, parent)
        self._data = data
        self._line = line

    def runtest(self) -> None:
        """Adjudicate the record.

        Raises
        ------
        RecordFailure
            It is unsupported.
        """
        from kvint2eval.adjudication import adjudicate  # noqa: PLC0415
        from kvint2eval.codes import Outcome  # noqa: PLC0415
        from kvint2eval.files.inputs import read_envelope  # noqa: PLC0415

        settings = self.config.stash[_SETTINGS]
        # An envelope signs a file, so a line of JSON Lines has none.
        is_signed = settings.policy is not None and self._line is None
        envelope = read_envelope(str(self.path)) if is_signed else None
        verdict = adjudicate(
            self._data, pins=settings.pins, root=settings.root, policy=settings.policy, envelope=envelope
        )
        if verdict.outcome is Outcome.DELEGATE:
            pytest.skip(f"delegate {verdict.reason}: {verdict.finding.meaning if verdict.finding else ''}")
        if verdict.outcome is Outcome.UNSUPPORTED:
            raise RecordFailure(self._explain(verdict))

    def _explain(self, verdict: Verdict) -> str:
        from kvint2eval.report.source import Source  # noqa: PLC0415
        from kvint2eval.report.text import Text  # noqa: PLC0415

        return Text().one(Source(self._shown, self._line), verdict, is_first=True).decode().rstrip("\n")

    @property
    def _shown(self) -> str:
        return os.path.relpath(self.path, self.config.rootpath)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002
        """The finding in place of a traceback."""
        if isinstance(excinfo.value, RecordFailure):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File, line from 0, and what heads a failure."""
        line = self._line - 1 if self._line is not None else None
        return self.path, line, self._shown if line is None else f"{self._shown}:{self._line}"
