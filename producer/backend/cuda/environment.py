"""GPU facts from the driver; None where one cannot be read, never a guess."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

__all__ = [
    "CLOCKS",
    "cuda_version",
    "parse_clocks",
    "parse_driver_version",
    "read_clocks",
    "read_driver_version",
]

#: Names in an environment → fields that nvidia-smi is asked for, in MHz and W.
CLOCKS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "max_sm_clock_mhz": "clocks.max.sm",
    "max_memory_clock_mhz": "clocks.max.mem",
    "power_limit_w": "power.limit",
}
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_DRIVER = re.compile(
    r"^NVRM version:.*?Kernel Module(?: for \S+)?\s+(?P<version>\d+(?:\.\d+)+)", re.MULTILINE
)
_TIMEOUT_S = 10


def cuda_version(number: int) -> str:
    """Return a CUDA version that is given as 1000·major + 10·minor: "12.9" for 12090."""
    return f"{number // 1000}.{number % 1000 // 10}"


def parse_driver_version(text: str) -> str | None:
    """Return the version in the text of the driver's version file, "580.159.03", or None."""
    match = _DRIVER.search(text)
    return None if match is None else match["version"]


def read_driver_version() -> str | None:
    """Return the version of the loaded NVIDIA driver, or None where it cannot be read."""
    try:
        return parse_driver_version(_DRIVER_FILE.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def parse_clocks(text: str) -> dict[str, float | None]:
    """Return the numbers of one line of nvidia-smi's CSV, None for each that it does not know.

    Parameters
    ----------
    text : str
        Values in the order of `CLOCKS`, without header and units.
    """
    fields = [field.strip() for field in text.strip().split(",")]
    if len(fields) != len(CLOCKS):
        return dict.fromkeys(CLOCKS)
    return {
        name: float(field) if re.fullmatch(r"\d+(\.\d+)?", field) else None
        for name, field in zip(CLOCKS, fields, strict=True)
    }


def read_clocks(bus_id: str) -> dict[str, float | None]:
    """Return clocks and power limit of the GPU at a PCI bus id, None for each that is unknown."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return dict.fromkeys(CLOCKS)
    query = f"--query-gpu={','.join(CLOCKS.values())}"
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, and a bus id that CUDA gave
            [program, f"--id={bus_id}", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(CLOCKS)
    return parse_clocks(done.stdout)
