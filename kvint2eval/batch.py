"""Many records to one report: in order, in bounded memory, with one worker or with several.

The work is cut into *units*: a block of a JSON Lines file, or one file that holds one record. Every worker
knows all units and takes each n-th one. Two tokens go round the ring of workers: the first carries the line
number that a unit begins with, passed on as soon as the lines of a unit are counted; the second is the turn
to write. So workers judge at the same time and write in the order of the input, and no result passes through
a parent.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kvint2eval.adjudication import adjudicate
from kvint2eval.codes import Outcome
from kvint2eval.errors import InputError
from kvint2eval.files.digest import open_regular
from kvint2eval.files.inputs import (
    BLOCK_BYTES,
    STDIN,
    Input,
    read_block,
    read_envelope,
    read_record_file,
    stream_lines,
)
from kvint2eval.report.escape import safe
from kvint2eval.report.model import Tally
from kvint2eval.report.source import Source
from kvint2eval.strict_json.parse import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader

    from kvint2eval.pins.pins import Pins
    from kvint2eval.pins.root import Root
    from kvint2eval.report.model import Report
    from kvint2eval.signing.policy import Policy
    from kvint2eval.verdict import Verdict

__all__ = ["Judge", "run_forked", "run_serial"]

_BUFFER_BYTES = 1 << 18  # see BLOCK_BYTES


class Judge(NamedTuple):
    """What a batch is judged with and how it is reported."""

    report: Report
    pins: Pins | None
    root: Root | None = None
    policy: Policy | None = None
    require_bound: bool = False


class Unit(NamedTuple):
    """A piece of work."""

    source: Input
    start: int
    stop: int
    is_last_of_lines: bool
    """Whether the unit ends a JSON Lines file."""


def units(inputs: Iterable[Input]) -> Iterator[Unit]:
    """Units of the inputs, in order."""
    for source in inputs:
        if source.is_lines and source.path != STDIN:
            # An empty file is a unit too: it is an error, and somebody has to say so.
            for start in range(0, max(source.size, 1), BLOCK_BYTES):
                stop = min(start + BLOCK_BYTES, source.size)
                yield Unit(source, start, stop, stop >= source.size)
        else:
            yield Unit(source, 0, 0, is_last_of_lines=False)


def _envelope(source: Source) -> bytes | InputError | None:
    """Envelope of a file that holds one record; a line of JSON Lines and standard input have none."""
    return None if source.line is not None or source.path == STDIN else read_envelope(source.path)


class _Writer:
    """Collects output and hands it on in large pieces; counts outcomes and errors on the way."""

    def __init__(self, judge: Judge, emit: Callable[[bytes], None]) -> None:
        self._judge = judge
        self._emit = emit
        self._parts: list[bytes] = []
        self._bytes = 0
        self._supported = self._unsupported = self._delegate = self._errors = 0
        self.records_before = 0

    def judge(self, source: Source, data: bytes) -> None:
        """Adjudicate one record and report it."""
        judge = self._judge
        verdict: Verdict = adjudicate(
            data,
            pins=judge.pins,
            root=judge.root,
            policy=judge.policy,
            envelope=None if judge.policy is None else _envelope(source),
            require_bound=judge.require_bound,
        )
        if verdict.outcome is Outcome.SUPPORTED:
            self._supported += 1
        elif verdict.outcome is Outcome.DELEGATE:
            self._delegate += 1
        else:
            self._unsupported += 1
        text = self._judge.report.one(source, verdict, is_first=self.records_before == 0)
        self.records_before += 1
        if text:
            self._parts.append(text)
            self._bytes += len(text)
        if self._bytes >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand on what is held."""
        if self._parts:
            self._emit(self._judge.report.separator.join(self._parts))
            self._parts.clear()
            self._bytes = 0

    def error(self, message: str) -> None:
        """Report an input that cannot be judged, after all that stands before it."""
        self.flush()
        self._emit(self._judge.report.fault(message))
        self._errors += 1
        sys.stderr.write(f"kvint2eval: error: {safe(message)}\n")
        sys.stderr.flush()

    @property
    def tally(self) -> Tally:
        """Outcomes and errors so far."""
        return Tally(self._supported, self._unsupported, self._delegate, self._errors)


def _load(unit: Unit) -> list[bytes] | InputError:
    """Records of a unit, or why there are none."""
    try:
        if not unit.source.is_lines:
            return [read_record_file(unit.source.path)]
        descriptor = open_regular(unit.source.path)
        try:
            return read_block(descriptor, unit.start, unit.stop)
        finally:
            os.close(descriptor)
    except InputError as error:
        return error
    except OSError as error:
        return InputError(f"{unit.source.path}: {error.strerror or error}")


def _judge_unit(unit: Unit, records: list[bytes] | InputError, line: int, writer: _Writer) -> None:
    """Judge the records of a unit; `line` lines of its file stand before it."""
    if isinstance(records, InputError):
        writer.error(str(records))
    elif unit.source.is_lines:
        for number, data in enumerate(records, line + 1):
            writer.judge(Source(unit.source.path, number), data)
        if unit.is_last_of_lines and line + len(records) == 0:
            writer.error(f"{unit.source.path}: found no record, allowed: one a line")
    else:
        writer.judge(Source(unit.source.path), records[0])


def _lines_after(unit: Unit, records: list[bytes] | InputError, line: int) -> int:
    """Lines of the file that stand before the next unit."""
    if unit.is_last_of_lines or isinstance(records, InputError) or not unit.source.is_lines:
        return 0
    return line + len(records)


def run_serial(
    inputs: Iterable[Input], judge: Judge, emit: Callable[[bytes], None], stdin: BufferedReader
) -> Tally:
    """Judge the inputs one after another.

    Parameters
    ----------
    inputs
        What `kvint2eval.files.inputs.collect` found.
    judge
        Pins and report.
    emit
        Takes the report, piece by piece; `report.separator` stands between them.
    stdin
        Read where an input is `-`.
    """
    writer = _Writer(judge, _Separated(judge.report.separator, emit).write)
    line = 0
    for unit in units(inputs):
        if unit.source.path == STDIN:
            _judge_stdin(unit.source, stdin, writer)
            continue
        records = _load(unit)
        _judge_unit(unit, records, line, writer)
        line = _lines_after(unit, records, line)
    writer.flush()
    return writer.tally


def _judge_stdin(source: Input, stdin: BufferedReader, writer: _Writer) -> None:
    """Judge standard input: JSON Lines when told so, or when its first line is a whole object; else one record."""
    head = b"" if source.is_lines else _first_line(stdin)
    first = head.lstrip().partition(b"\n")[0].strip()
    if not source.is_lines and not (first.startswith(b"{") and first.endswith(b"}")):
        rest = stdin.read(max(0, MAX_RECORD_BYTES + 1 - len(head)))
        writer.judge(Source(STDIN), head + rest)
        return
    line = 0
    for block in stream_lines(stdin, head):
        for data in block:
            line += 1
            writer.judge(Source(STDIN, line), data)
    if not line:
        writer.error("standard input: found no record, allowed: one a line")


def _first_line(stdin: BufferedReader) -> bytes:
    """Beginning of standard input up to a block that ends its first line that is not blank, within the limit."""
    parts: list[bytes] = []
    length = 0
    is_begun = False
    while length <= MAX_RECORD_BYTES and (more := stdin.read1(BLOCK_BYTES)):
        parts.append(more)
        length += len(more)
        line = more if is_begun else more.lstrip()
        is_begun = is_begun or bool(line)
        if b"\n" in line:
            break
    return b"".join(parts)


def run_forked(inputs: list[Input], judge: Judge, descriptor: int, jobs: int) -> Tally:
    """Judge the inputs with several processes, each of which writes its own part of the report in its turn.

    Parameters
    ----------
    inputs
        What `kvint2eval.files.inputs.collect` found, without standard input.
    judge
        Pins and report.
    descriptor
        Open for writing; takes the report.
    jobs
        Number of processes.

    Raises
    ------
    OSError
        The report cannot be written.
    RuntimeError
        A worker died. What it should have written is missing.
    """
    lines_ring = [os.pipe() for _ in range(jobs)]
    turn_ring = [os.pipe() for _ in range(jobs)]
    tallies = os.pipe()
    children = []
    for index in range(jobs):
        rings = (lines_ring, turn_ring)
        children.append(os.fork() or _worker(inputs, judge, descriptor, index, rings, tallies))
    os.write(lines_ring[0][1], _token(0, 0))
    os.write(turn_ring[0][1], _NOTHING_YET)
    for ring in (lines_ring, turn_ring, [tallies]):
        for _, write_end in ring:
            os.close(write_end)
    with os.fdopen(tallies[0], "rb") as stream:
        total = Tally()
        failure = 0
        for row in stream.read().splitlines():
            kind, *numbers = row.split()
            if kind == _FAILED:
                failure = failure or int(numbers[0])
            else:
                total = total.plus(_read_row([int(number) for number in numbers], judge.pins))
    for ring in (lines_ring, turn_ring):
        for read_end, _ in ring:
            os.close(read_end)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    if failure:
        raise OSError(failure, os.strerror(failure))
    if failed:
        raise RuntimeError(f"{len(failed)} of {jobs} workers died")
    return total


_TOKEN_BYTES = 16
_JUDGED, _FAILED = b"judged", b"failed"


class _OutputError(Exception):
    """The report cannot be written."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _row(tally: Tally, pins: Pins | None) -> bytes:
    """What a worker counted, and the numbers of the pins that its records were compared with."""
    held = () if pins is None else (*pins.artifacts, *pins.artifacts_v2)
    met = [number for number, pin in enumerate(held) if pins is not None and pin in pins.met]
    return _JUDGED + b" " + " ".join(map(str, (*tally, *met))).encode() + b"\n"


def _token(line: int, records: int) -> bytes:
    return line.to_bytes(8, "little") + records.to_bytes(8, "little")


def _read_row(numbers: list[int], pins: Pins | None) -> Tally:
    """Tally of a row; its pins are met."""
    count = len(Tally._fields)
    if pins is not None:
        held = (*pins.artifacts, *pins.artifacts_v2)
        pins.met.update(held[number] for number in numbers[count:])
    return Tally(*numbers[:count])


def _worker(
    inputs: list[Input],
    judge: Judge,
    descriptor: int,
    index: int,
    rings: tuple[list[tuple[int, int]], list[tuple[int, int]]],
    tallies: tuple[int, int],
) -> NoReturn:
    """Body of a forked process; leaves by `os._exit`, so that nothing of the parent's runs twice."""
    code = 1
    try:
        lines_ring, turn_ring = rings
        following = (index + 1) % len(lines_ring)
        # Each process keeps the two ends that are its own, so that a dead neighbour shows as an end of file.
        own = {lines_ring[index][0], turn_ring[index][0], lines_ring[following][1], turn_ring[following][1]}
        for end in {end for ring in rings for pair in ring for end in pair} - own:
            os.close(end)
        turn = _Turn((turn_ring[index][0], turn_ring[following][1]), descriptor, judge.report.separator)
        writer = _Writer(judge, turn.write)
        last = sum(1 for _ in units(inputs)) - 1
        for number, unit in enumerate(units(inputs)):
            if number % len(lines_ring) != index:
                continue
            records = _load(unit)
            line, before = _receive(lines_ring[index][0])
            count = 0 if isinstance(records, InputError) else len(records)
            # After the last unit nobody waits for a token, and the neighbour may be gone.
            if number != last:
                os.write(lines_ring[following][1], _token(_lines_after(unit, records, line), before + count))
            writer.records_before = before
            _judge_unit(unit, records, line, writer)
            writer.flush()
            if number != last:
                turn.pass_on()
        os.write(tallies[1], _row(writer.tally, judge.pins))
        code = 0
    except _OutputError as error:
        os.write(tallies[1], b"%b %d\n" % (_FAILED, error.number))
    except (OSError, EOFError, KeyboardInterrupt):
        pass  # a neighbour died, or the user stopped the run: the parent says so
    finally:
        os._exit(code)


def _receive(descriptor: int) -> tuple[int, int]:
    token = os.read(descriptor, _TOKEN_BYTES)
    if len(token) != _TOKEN_BYTES:
        raise EOFError
    return int.from_bytes(token[:8], "little"), int.from_bytes(token[8:], "little")


_NOTHING_YET = b"0"
_SOMETHING = b"1"
"""The turn to write carries whether a piece was written before, for a separator has to stand between two."""


class _Separated:
    """Writes pieces with a separator between those that are not empty."""

    def __init__(self, separator: bytes, emit: Callable[[bytes], None], *, has_begun: bool = False) -> None:
        self._separator = separator
        self._emit = emit
        self.has_begun = has_begun

    def write(self, data: bytes) -> None:
        self._emit(self._separator + data if data and self.has_begun else data)
        self.has_begun = self.has_begun or bool(data)


class _Turn:
    """The right to write, taken when there is something to write and given up at the end of a unit."""

    def __init__(self, ring: tuple[int, int], descriptor: int, separator: bytes) -> None:
        self._incoming, self._outgoing = ring
        self._descriptor = descriptor
        self._pieces = _Separated(separator, self._write_all)
        self._is_mine = False

    def _take(self) -> None:
        if not self._is_mine:
            token = os.read(self._incoming, 1)
            if not token:
                raise EOFError
            self._pieces.has_begun = token == _SOMETHING
            self._is_mine = True

    def write(self, data: bytes) -> None:
        self._take()
        self._pieces.write(data)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise _OutputError(error.errno or 0) from error

    def pass_on(self) -> None:
        self._take()
        self._is_mine = False
        os.write(self._outgoing, _SOMETHING if self._pieces.has_begun else _NOTHING_YET)
