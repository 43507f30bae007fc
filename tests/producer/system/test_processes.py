"""Forked work: the same results, faults that reach the parent, and no process left behind."""

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from producer.system.processes import can_fork, fork_map
from tests.helpers import ROOT


@pytest.fixture(autouse=True)
def forkable(monkeypatch):
    # The test runner may have threads; none of them holds a lock that this work needs.
    monkeypatch.setattr("producer.system.processes.can_fork", lambda: True)
    monkeypatch.setattr("producer.system.processes.os.fork", _fork)


_real_fork = os.fork


def _fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return _real_fork()


def children():
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 20])
def test_results_come_in_the_order_of_the_items(processes):
    assert fork_map(lambda item: item * item, range(7), processes) == [0, 1, 4, 9, 16, 25, 36]
    assert children() == []


def test_the_work_is_done_by_several_processes():
    assert len(set(fork_map(lambda _: os.getpid(), range(4), 2))) == 2
    assert set(fork_map(lambda _: os.getpid(), range(4), 1)) == {os.getpid()}


def test_large_results_pass():
    found = fork_map(lambda item: bytes(10_000_000) + bytes([item]), range(2), 2)
    assert [each[-1] for each in found] == [0, 1]


@pytest.mark.parametrize("where", [0, 1])
def test_what_work_raises_reaches_the_caller(where):
    def work(item):
        if item == where:
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match=f"item {where}"):
        fork_map(work, range(2), 2)
    assert children() == []


def test_a_child_that_dies_is_said():
    parent = os.getpid()

    def work(_item):
        if os.getpid() != parent:
            os._exit(1)

    with pytest.raises(RuntimeError, match="a worker process ended without a result"):
        fork_map(work, range(2), 2)
    assert children() == []


_FIGURES = textwrap.dedent("""
    import json, sys
    from producer.backend.cpu import NumpyBackend
    from producer.system.processes import can_fork
    from producer.experiment.slice.protocol import run_protocol
    from producer.experiment.slice.spec import PAIRED, SliceSpec
    assert can_fork(), "this process has threads"
    result = run_protocol(SliceSpec(seq_len=300, num_kv_heads=2, seed=1), PAIRED, NumpyBackend(int(sys.argv[1])))
    arms = [(a.nmse, a.curve.ratios, a.curve.objectives, a.null_nmse, a.queries_sha256) for a in result.arms]
    print(json.dumps([arms, result.selected, result.grid]))
""")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux only")
def test_a_run_gives_the_same_figures_on_any_number_of_processes():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _FIGURES, str(workers)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for workers in (1, 2, 4)
    }
    assert len(outputs) == 1


def test_a_process_with_threads_is_not_forked(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("threading.active_count", lambda: 2)
    assert not can_fork()
    assert set(fork_map(lambda _: os.getpid(), range(4), 2)) == {os.getpid()}
