"""Whole reports on the records of testdata, through the command, one a format."""

import os
import subprocess
import sys
from pathlib import Path

from kvint2eval import __version__

ROOT = Path(__file__).resolve().parents[3]

_SCRUBBED = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "NO_COLOR", "TERM", "COLUMNS")


def report(name: str, version: str = "v1") -> bytes:
    """Report in one format on all records of testdata/records of a contract."""
    environment = {key: value for key, value in os.environ.items() if key not in _SCRUBBED}
    environment["SOURCE_DATE_EPOCH"] = "0"
    folder = f"testdata/records/{version}"
    arguments = ["adjudicate", f"{folder}/supported", f"{folder}/delegate"]
    arguments += [f"{folder}/unsupported", "--format", name]
    done = subprocess.run(
        [sys.executable, "-m", "kvint2eval", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
    )
    expected = 0 if name == "sarif" else 1
    if done.returncode != expected:
        raise RuntimeError(f"expected exit code {expected}, found {done.returncode}: {done.stderr.decode()}")
    return done.stdout.replace(f'"version":"{__version__}"'.encode(), b'"version":"@@VERSION@@"')
