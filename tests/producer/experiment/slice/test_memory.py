"""Memory: counted before a run, and what a run really holds stays below the count."""

import dataclasses
import json
import subprocess
import sys

import pytest

from producer.errors import MemoryLimitError
from producer.experiment.slice.memory import needed_bytes, require_memory
from producer.experiment.slice.spec import MAX_SEQ_LEN, PAIRED, PUBLISHED, SliceSpec
from producer.system import environment
from producer.system.environment import available_bytes, collect_environment, os_name, peak_rss_bytes

_PEAK = """
import json, sys
from producer.backend.cpu import NumpyBackend
from producer.system.environment import peak_rss_bytes
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PUBLISHED, SliceSpec
run_protocol(SliceSpec(seq_len=int(sys.argv[1])), PUBLISHED, NumpyBackend(2), resident_bytes=int(sys.argv[2]))
print(json.dumps(peak_rss_bytes()))
"""


@pytest.mark.parametrize("resident_bytes", [2**28, 0])
def test_a_published_run_holds_less_than_counted_and_less_than_300_mb(resident_bytes):
    made = subprocess.run(
        [sys.executable, "-c", _PEAK, "4096", str(resident_bytes)], capture_output=True, text=True, check=True
    )
    peak = json.loads(made.stdout)
    assert peak < needed_bytes(SliceSpec(), PUBLISHED, 2, resident_bytes)
    assert peak < 300e6


def test_a_million_tokens_need_no_float_cache():
    spec = SliceSpec(seq_len=MAX_SEQ_LEN)
    # Packed codes and scales of one candidate are 288 MiB; the float cache would be 4 GiB.
    assert 288 * 2**20 < needed_bytes(spec, PAIRED, 1) < 512 * 2**20


def test_what_does_not_fit_is_refused_with_its_bytes():
    spec = SliceSpec(seq_len=MAX_SEQ_LEN)
    needed = needed_bytes(spec, PAIRED, 2)
    with pytest.raises(
        MemoryLimitError, match=f"need {needed} bytes of memory, allowed are {needed - 1}"
    ) as caught:
        require_memory(spec, PAIRED, 2, needed - 1)
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (needed, needed - 1)
    require_memory(spec, PAIRED, 2, needed)


def test_unshared_queries_count():
    apart = dataclasses.replace(PAIRED, shared_evaluation=False)
    assert needed_bytes(SliceSpec(), apart, 1) > needed_bytes(SliceSpec(), PAIRED, 1)


def test_the_environment_is_read_or_none(monkeypatch, tmp_path):
    found = collect_environment(2)
    assert found["threads"] == 2
    assert os_name()
    assert available_bytes() is None or available_bytes() > 0
    assert peak_rss_bytes() > 2**20
    monkeypatch.setattr(environment, "Path", lambda *_: tmp_path / "nothing")
    assert available_bytes() is None
    assert peak_rss_bytes() is None
    assert os_name()


@pytest.mark.parametrize(("limit", "used", "expected"), [("100\n", "40\n", 60), ("max\n", "40\n", None)])
def test_a_control_group_limits(monkeypatch, tmp_path, limit, used, expected):
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(used)
    monkeypatch.setattr(environment, "Path", lambda *_: tmp_path)
    assert environment._cgroup_available() == expected
