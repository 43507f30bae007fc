"""Facts of this machine for records and `doctor`; None where one cannot be read, never a guess."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import numpy as np

__all__ = ["available_bytes", "collect_environment", "os_name", "peak_rss_bytes"]


def os_name() -> str:
    """Return the operating system with its version, as the system calls itself."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return platform.platform()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip('"')
    return platform.platform()


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or None


def collect_environment(threads: int) -> dict[str, object]:
    """Return what may change times and last bits: names to JSON values.

    Parameters
    ----------
    threads : int
        Cores that the run used.
    """
    return {
        "os": os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS"),
        "matplotlib": importlib.util.find_spec("matplotlib") is not None,
    }


def available_bytes() -> int | None:
    """Return the bytes of memory that this process can still take, the least of system and control group.

    None where neither can be read.
    """
    limits = [_system_available(), _cgroup_available()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _system_available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _cgroup_available() -> int | None:
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text(encoding="utf-8").strip()
        used = (root / "memory.current").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))


def peak_rss_bytes() -> int | None:
    """Return the largest resident size of this process so far, or None where it cannot be read.

    From the process's own status, not from `getrusage`: that one counts what the process held before it
    started its program.
    """
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "VmHWM":
            return int(value.split()[0]) * 1024
    return None
