"""Whole reports on the records of testdata, through the command, one a format."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SCRUBBED = ("CI", "GITHUB_ACTIONS", "NO_COLOR", "TERM", "COLUMNS")


def report(name: str, version: str = "v1") -> bytes:
    """Report in one format on all records of testdata/records of a contract."""
    environment = {key: value for key, value in os.environ.items() if key not in _SCRUBBED}
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
    if done.returncode != 1:
        raise RuntimeError(f"expected exit code 1, found {done.returncode}: {done.stderr.decode()}")
    return done.stdout
