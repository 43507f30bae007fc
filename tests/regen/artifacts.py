"""What is generated, and from what: one list for `make regen`, for its check mode and for the tests."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.regen import (
    decoder,
    fingerprints,
    golden,
    pages,
    pins,
    producer_pages,
    records,
    schema,
    testdata_page,
)

ROOT = Path(__file__).resolve().parents[2]


class Artifact(NamedTuple):
    """One generated file."""

    path: str
    make: Callable[[], bytes]


def _formatted(source: str) -> bytes:
    """Python source as the formatter leaves it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "x.py", "-"]
    return subprocess.run(command, input=source.encode(), capture_output=True, check=True, cwd=ROOT).stdout


def artifacts() -> Iterator[Artifact]:
    """All generated files, those that others are made from first."""
    yield Artifact("kvint2eval/contract/_v1_decoder.py", lambda: _formatted(decoder.render()))
    yield Artifact("kvint2eval/contract/v1.schema.json", schema.render)
    yield Artifact("docs/codes.md", pages.codes)
    yield Artifact("docs/cli.md", pages.command)
    yield Artifact("testdata/vectors/fingerprints.json", fingerprints.render)
    yield Artifact("docs/producer-cli.md", producer_pages.command)
    for name, data in pins.files().items():
        yield Artifact(f"testdata/pins/{name}", lambda data=data: data)
    for case in records.cases():
        yield Artifact(f"{records.FOLDER}/{case.path}", lambda data=case.data: data)
    yield Artifact("testdata/manifest-v1.jsonl", records.manifest)
    yield Artifact("testdata/README.md", testdata_page.render)
    for name, suffix in (("text", "txt"), ("jsonl", "jsonl"), ("json", "json")):
        yield Artifact(f"testdata/golden/report/v1.{suffix}", lambda name=name: golden.report(name))
