"""Forked worker processes that share work over the cores of a machine.

Threads do not help here: between two NumPy operations a thread needs the interpreter's lock, and with operations of
some ten microseconds the wait for it costs as much as the second core brings. A forked process shares the
float cache with its parent without a copy and never waits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from producer.system.progress import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from producer.system.progress import Progress

__all__ = ["can_fork", "default_workers", "fork_map"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def default_workers() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return whether this process may be forked: on Linux, and only while it has a single thread.

    A thread of another library may hold a lock that its copy in the child would never see released.
    """
    if not sys.platform.startswith("linux") or threading.active_count() > 1:
        return False
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def fork_map(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    processes: int,
    *,
    progress: Progress = no_progress,
    unit: str = "item",
) -> list[_Result]:
    """Return ``[work(item) for item in items]``, the items dealt out to processes in turn.

    Parameters
    ----------
    work : callable
        Must depend on nothing that another item changes: in a child its side effects are lost.
    items : sequence
    processes : int
        This process takes part as one of them. With 1, or where forking is not safe, it does all.
    progress : Progress, optional
        Is told the items that are done, and the next one as its unit and itself; work is then dealt out in rounds of
        one item a process.
    unit : str
        What an item is called.

    Raises
    ------
    Exception
        What `work` raised, here or in a child; all children are gone by then.
    """
    if progress is not no_progress:
        done: list[_Result] = []
        for first in range(0, len(items), processes):
            progress(first, len(items), f"{unit} {items[first]}")
            done += fork_map(work, items[first : first + processes], processes)
        progress(len(items), len(items), f"{unit}s")
        return done
    count = min(processes, len(items))
    if count <= 1 or not can_fork():
        return [work(item) for item in items]
    with contextlib.ExitStack() as children:
        pipes = [children.enter_context(_child(work, items[share::count])) for share in range(1, count)]
        own = [work(item) for item in items[0::count]]
        shares = [own, *(_receive(pipe) for pipe in pipes)]
    return [shares[place % count][place // count] for place in range(len(items))]


@contextlib.contextmanager
def _child(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[int]:
    """Start a child that works on items; give the pipe that it writes to. It never outlives the block."""
    reader, writer = os.pipe()
    # Output that waits in a buffer would be written by both.
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _serve(work, items, writer)
    os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(work: Callable[[_Item], _Result], items: Sequence[_Item], writer: int) -> NoReturn:
    """Do a child's part, write what came out, and leave without the parent's clean-up."""
    # An interrupt from the terminal reaches all processes; the parent is the one that answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        results: object = [work(item) for item in items]
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent raises it
        results = error
    try:
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(results, stream)
    finally:
        os._exit(0)


def _receive(reader: int) -> list[_Result]:
    """Return what a child wrote, or raise what it raised."""
    with os.fdopen(os.dup(reader), "rb") as stream:
        try:
            results = pickle.load(stream)  # noqa: S301 - written by our own child
        except EOFError as error:
            raise RuntimeError(
                "a worker process ended without a result; it may have run out of memory"
            ) from error
    if isinstance(results, BaseException):
        raise results
    answer: list[_Result] = results
    return answer
