"""What is generated, and from what: one list for `make regen`, for its check mode and for the tests."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools.mutants import campaign
from tests.tools.regen import (
    balanced_tables,
    contract_page,
    decoder,
    decoder_v2,
    dialect_fingerprints,
    figures,
    fingerprint,
    golden,
    pages,
    performance,
    pins,
    producer_pages,
    records,
    records_v2,
    schema,
    scheme_table,
    testdata_page,
)

ROOT = Path(__file__).resolve().parents[3]


GOLDEN = (
    ("text", "txt"),
    ("jsonl", "jsonl"),
    ("json", "json"),
    ("sarif", "sarif"),
    ("junit", "xml"),
    ("github", "github.txt"),
)


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
    yield Artifact("kvint2eval/contract/v1/_decoder.py", lambda: _formatted(decoder.render()))
    yield Artifact("kvint2eval/contract/v2/_decoder.py", lambda: _formatted(decoder_v2.render()))
    for version in ("v1", "v2"):
        name = f"kvint2eval/contract/{version}/{version}.schema.json"
        yield Artifact(name, lambda version=version: schema.render(version))
    yield Artifact("testdata/vectors/golden-inputs.json", fingerprint.vectors)
    yield Artifact("docs/reference/codes.md", pages.codes)
    yield Artifact("docs/reference/contract-v2.md", contract_page.render)
    yield Artifact("docs/reference/cli.md", pages.command)
    yield Artifact("testdata/vectors/fingerprints.json", dialect_fingerprints.render)
    yield Artifact("docs/reference/producer-cli.md", producer_pages.command)
    yield Artifact("docs/results/schemes.md", scheme_table.page)
    yield Artifact("docs/results/balanced.md", balanced_tables.balanced_page)
    yield Artifact("docs/results/optr.md", balanced_tables.optr_page)
    yield Artifact("docs/results/performance.md", performance.page)
    for name in figures.FIGURES:
        yield Artifact(f"docs/results/{name}.svg", lambda name=name: figures.render(name))
    for name, data in pins.files().items():
        yield Artifact(f"testdata/pins/{name}", lambda data=data: data)
    for case in records.cases():
        yield Artifact(f"{records.FOLDER}/{case.path}", lambda data=case.data: data)
    yield Artifact("testdata/manifest-v1.jsonl", records.manifest)
    for case in records_v2.cases():
        yield Artifact(f"{records_v2.FOLDER}/{case.path}", lambda data=case.data: data)
    yield Artifact("testdata/manifest-v2.jsonl", records_v2.manifest)
    yield Artifact("docs/reference/mutants-v2.md", campaign.page)
    yield Artifact("testdata/README.md", testdata_page.render)
    for name, suffix in GOLDEN:
        for version in ("v1", "v2"):
            path = f"testdata/golden/report/{version}.{suffix}"
            yield Artifact(path, lambda name=name, version=version: golden.report(name, version))
