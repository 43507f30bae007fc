"""pytest plugin: the records that a project lists in its pytest settings, each collected as a test.

```toml
[tool.pytest.ini_options]
kvint2eval_records = ["records", "more/*.json"]
kvint2eval_pins = "kvint2eval-pins.toml"       # optional
kvint2eval_root = "."                          # optional: files that v2 records name are rehashed below it
kvint2eval_policy = "policy.toml"              # optional: whose signatures a record needs, in PATH.dsse beside it
kvint2eval_require = "bound"                   # optional: refuse a digest that is only declared
```

A supported record passes, an unsupported one fails with its finding, a delegated one is skipped with its reason; what
cannot be judged fails. What the setting names is collected whatever pytest itself leaves out: the records are added
after pytest's own collection, so no folder is too hidden. Nothing is collected, and nothing of the adjudicator
imported, where no setting is made. pytest 7.4 or later; under an older one the plugin does nothing but say so.
"""

from __future__ import annotations

import os
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kvint2eval.files.inputs import Refusal
    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.signing.policy import Policy
    from kvint2eval.verdict import Verdict

__all__ = ["PinsItem", "RecordFailure", "RecordFile", "RecordItem", "RefusedItem"]

_Read = TypeVar("_Read")

_LEAST_PYTEST = (7, 4)
_IS_NEW_ENOUGH = tuple(int(part) for part in pytest.__version__.split(".")[:2]) >= _LEAST_PYTEST

_UNSET = "\0unset"
_SETTINGS_BESIDE = ("kvint2eval_pins", "kvint2eval_root", "kvint2eval_policy", "kvint2eval_require")


class _Settings(NamedTuple):
    files: dict[Path, bool]
    """Each listed file, and whether it holds one record a line."""
    refused: tuple[Refusal, ...]
    """What cannot be judged below the listed folders."""
    passed_over: tuple[str, ...]
    pins: Pins | None
    pins_path: Path | None
    root: Root | None
    policy: Policy | None
    require_bound: bool


_SETTINGS = pytest.StashKey[_Settings]() if _IS_NEW_ENOUGH else None


class RecordFailure(Exception):  # noqa: N818  # what a failing item raises, not an error of the package
    """An unsupported record. The text says what decided, one line a part."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    parser.addini(
        "kvint2eval_records",
        "records to adjudicate: files, folders (*.json, *.jsonl and *.ndjson) and glob patterns, relative to this file",
        type="args",
        default=[_UNSET],
    )
    parser.addini("kvint2eval_pins", "pins file to compare the records' digests with", default="")
    parser.addini("kvint2eval_root", "folder that the paths of v2 records are relative to", default="")
    parser.addini("kvint2eval_policy", "policy file: whose signatures every record needs", default="")
    parser.addini("kvint2eval_require", "bound: refuse a digest that is only declared", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Find the records, and add them to what is collected when no path was asked for.

    Raises
    ------
    pytest.UsageError
        A setting names nothing, or its file cannot be used.
    """
    listed = config.getini("kvint2eval_records")
    if listed == [_UNSET]:
        beside = [name for name in _SETTINGS_BESIDE if config.getini(name)]
        if beside:
            raise pytest.UsageError(
                f"{beside[0]}: found no kvint2eval_records beside it, allowed: the records that it is for"
            )
        return
    if not _IS_NEW_ENOUGH:
        needed = ".".join(map(str, _LEAST_PYTEST))
        raise pytest.UsageError(
            f"kvint2eval_records: found pytest {pytest.__version__}, allowed: {needed} or later"
        )
    if not any(pattern.strip() for pattern in listed):
        raise pytest.UsageError(
            "kvint2eval_records: found an empty setting, allowed: files, folders or patterns; none without it"
        )
    settings = _settings(config, [pattern for pattern in listed if pattern.strip()])
    config.stash[_key()] = settings
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        covered = [Path(config.invocation_params.dir, argument).resolve() for argument in config.args]
        config.args += [
            str(path)
            for path in settings.files
            if not any(path == one or one in path.parents for one in covered)
        ]


def _key() -> Any:
    return _SETTINGS


def _settings(config: pytest.Config, listed: list[str]) -> _Settings:
    from kvint2eval.files.inputs import collect  # noqa: PLC0415
    from kvint2eval.pins.pins import read_pins  # noqa: PLC0415
    from kvint2eval.pins.root import Root  # noqa: PLC0415
    from kvint2eval.signing.policy import read_policy  # noqa: PLC0415

    root = config.inipath.parent if config.inipath is not None else config.rootpath
    files: dict[Path, bool] = {}
    refused: dict[str, Refusal] = {}
    passed_over: dict[str, None] = {}
    for pattern in listed:
        # A pattern that matches nothing is asked for by its own name, so that it is an error.
        # Path.glob would refuse an absolute one.
        matches = glob(str(Path(escape(str(root)), pattern)), recursive=True, include_hidden=True)  # noqa: PTH207
        found = collect(sorted(matches) or [str(root / pattern)])
        missing = [str(one) for one in found.refused if one.is_given and not os.path.islink(one.path)]  # noqa: PTH114
        if missing:
            raise pytest.UsageError(f"kvint2eval_records: {'; '.join(missing)}")
        files |= {Path(os.path.abspath(one.path)): one.is_lines for one in found.inputs}  # noqa: PTH100  # links stay links
        refused |= {os.path.abspath(one.path): one for one in found.refused}  # noqa: PTH100
        passed_over |= dict.fromkeys(found.passed_over)
    if not files and not refused:
        said = "; ".join(passed_over)
        raise pytest.UsageError(f"kvint2eval_records: found no record, allowed: one or more ({said})")
    require = config.getini("kvint2eval_require")
    if require not in ("", "bound"):
        raise pytest.UsageError(f'kvint2eval_require: found "{require}", allowed: bound')
    pins = config.getini("kvint2eval_pins")
    return _Settings(
        files,
        tuple(refused.values()),
        tuple(passed_over),
        _read(config, root, "kvint2eval_pins", read_pins),
        root / pins if pins else None,
        _read(config, root, "kvint2eval_root", Root),
        _read(config, root, "kvint2eval_policy", read_policy),
        require == "bound",
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
    settings = _of(parent.config)
    if settings is None or file_path not in settings.files:
        return None
    return _file(parent, file_path)


def _of(config: pytest.Config) -> _Settings | None:
    found: _Settings | None = config.stash.get(_key(), None) if _IS_NEW_ENOUGH else None
    return found


def _file(parent: pytest.Collector, path: Path) -> RecordFile:
    # Of a file outside the root pytest makes an empty id, the same for all.
    file: RecordFile = RecordFile.from_parent(parent, path=path, nodeid=_relative(parent.config, path))
    return file


def _relative(config: pytest.Config, path: Path) -> str:
    return Path(os.path.relpath(path, config.rootpath)).as_posix()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the listed records that pytest's own collection left out, before anything is selected."""
    settings = _of(config)
    if settings is None:
        return
    # With a path on the command line, only what lies below it is collected, records too.
    # A worker of pytest-xdist reads the same command line and settings, and so comes to the same items.
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    here = config.invocation_params.dir
    asked = [Path(os.path.abspath(Path(here, one))) for one in config.args if "::" not in one]  # noqa: PTH100

    def is_asked(path: Path) -> bool:
        return is_whole or any(path == one or one in path.parents for one in asked)

    there = {item.path for item in items if isinstance(item, RecordItem)}
    for path in settings.files:
        if path not in there and is_asked(path):
            items += session.genitems(_file(session, path))
    for refusal in settings.refused:
        path = Path(os.path.abspath(refusal.path))  # noqa: PTH100
        if is_asked(path):
            name = f"{_relative(config, path)}::refused"
            items.append(RefusedItem.from_parent(session, name="refused", nodeid=name, message=str(refusal)))
    if is_whole and settings.pins is not None and settings.pins_path is not None:
        name = f"{_relative(config, settings.pins_path)}::met"
        items.append(PinsItem.from_parent(session, name="met", nodeid=name))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what is passed over below the listed folders."""
    settings = _of(config)
    for line in () if settings is None else settings.passed_over:
        terminalreporter.write_line(f"kvint2eval: {_safe(line)}")


def _safe(text: str) -> str:
    from kvint2eval.report.escape import safe  # noqa: PLC0415

    return safe(text)


if _IS_NEW_ENOUGH:

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
        """Let a skip stand at the record, not in this file."""
        outcome = yield
        report = outcome.get_result()
        if isinstance(item, RecordItem) and report.skipped and isinstance(report.longrepr, tuple):
            path, line, _ = item.reportinfo()
            report.longrepr = (os.fspath(path), (line or 0) + 1, report.longrepr[2])


class _Said(pytest.Item):
    """An item that fails with words of its own in place of a traceback."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002
        """The finding in place of a traceback."""
        if isinstance(excinfo.value, RecordFailure):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File, line from 0, and what heads a failure."""
        return Path(self.config.rootpath, self.nodeid.rpartition("::")[0]), 0, self.nodeid.rpartition("::")[0]


class RefusedItem(_Said):
    """Something below a listed folder that cannot be judged: it fails.

    Parameters
    ----------
    message
        Why.
    **kept
        As pytest gives them.
    """

    def __init__(self, *, message: str, **kept: Any) -> None:
        super().__init__(**kept)
        self._message = message

    def runtest(self) -> None:
        """Fail with the reason.

        Raises
        ------
        RecordFailure
            Always.
        """
        raise RecordFailure(_safe(self._message))


class PinsItem(_Said):
    """The pins file: every pin has a record that was compared with it."""

    def runtest(self) -> None:
        """Judge all records, whatever was selected of them, and look at what pins are left.

        Raises
        ------
        RecordFailure
            With `kvint2eval_require`, a pin is left; otherwise the item is skipped with the pins.
        """
        from kvint2eval.adjudication import adjudicate  # noqa: PLC0415
        from kvint2eval.errors import InputError  # noqa: PLC0415
        from kvint2eval.files.inputs import read_record_file, stream_lines  # noqa: PLC0415

        settings = self.config.stash[_key()]
        for path, is_lines in settings.files.items():
            try:
                if not is_lines:
                    adjudicate(read_record_file(str(path)), pins=settings.pins, root=settings.root)
                    continue
                with path.open("rb") as stream:
                    for block in stream_lines(stream):
                        for data in block:
                            adjudicate(data, pins=settings.pins, root=settings.root)
            except (InputError, OSError):
                continue  # the file's own items say so
        unmet = settings.pins.unmet
        if unmet:
            message = _safe(f"unmet pins, which no record was compared with: {', '.join(unmet)}")
            if settings.require_bound:
                raise RecordFailure(message)
            pytest.skip(message)


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
        from kvint2eval.files.inputs import read_record_file, stream_lines  # noqa: PLC0415

        settings = self.config.stash[_key()]
        try:
            if not settings.files[self.path]:
                yield self._item("record", read_record_file(str(self.path)), None)
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


class RecordItem(_Said):
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
        # The layout of JUnit XML that pytest writes by default has no file and line of a test case.
        self.user_properties += [("file", self._shown), ("line", line or 1)]

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

        settings = self.config.stash[_key()]
        # An envelope signs a file, so a line of JSON Lines has none.
        is_signed = settings.policy is not None and self._line is None
        envelope = read_envelope(str(self.path)) if is_signed else None
        verdict = adjudicate(
            self._data,
            pins=settings.pins,
            root=settings.root,
            policy=settings.policy,
            envelope=envelope,
            require_bound=settings.require_bound,
        )
        if verdict.outcome is Outcome.DELEGATE:
            why = verdict.finding.meaning if verdict.finding else ""
            pytest.skip(f"{_safe(self._named)}: delegate {verdict.reason}: {why}")
        if verdict.outcome is Outcome.UNSUPPORTED:
            raise RecordFailure(self._explain(verdict))

    def _explain(self, verdict: Verdict) -> str:
        from kvint2eval.report.source import Source  # noqa: PLC0415
        from kvint2eval.report.text import Text  # noqa: PLC0415

        return Text().one(Source(self._shown, self._line), verdict, is_first=True).decode().rstrip("\n")

    @property
    def _shown(self) -> str:
        return os.path.relpath(self.path, self.config.rootpath)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File, line from 0, and what heads a failure."""
        return self.path, (self._line or 1) - 1, self._named

    @property
    def _named(self) -> str:
        return self._shown if self._line is None else f"{self._shown}:{self._line}"


if not _IS_NEW_ENOUGH:
    # An older pytest refuses a plugin whose hooks have arguments that it does not know.
    del pytest_collect_file, pytest_collection_modifyitems, pytest_terminal_summary
