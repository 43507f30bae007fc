"""Speed of the docs gate and of the HTML report: `python -m tests.bench.ci [--rounds N]`.

Prints Markdown tables. The gate runs as whole commands; the report is opened in headless Chromium, where that is
installed. Medians over the rounds.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvint2eval.files.digest import sha256_hex
from tests.bench.tables import add_output, finish, table
from tests.kvint2eval.gate.site import table as pin_table
from tests.kvint2eval.report.html.chromium import PROGRAM, Browser
from tests.kvint2eval.report.html.pages import many

COMMAND = str(Path(sys.executable).parent / "kvint2eval")

PAGE = """\
# Run {at}

{prose}

The record's SHA-256 is
`{digest}`.

## Results

| observation | baseline | selected |
|---|---|---|
{rows}

{prose}

```text
$ kvint2eval adjudicate records/r{at}.json
supported    records/r{at}.json  KVINT2_SUPPORTED
```

Rotation {selected} was selected.
"""

PROSE = "The identity and *eight* candidates each search the same [clip ratios](x.md) on one `calibration` query. "


def site(folder, count):
    """Write as many pages and records, a digest, a cell and a sentence bound on each page."""
    (folder / "records").mkdir()
    (folder / "docs").mkdir()
    pins = ['format = "kvint2eval-pins/v1"\npages = ["docs"]\n']
    for at, data in enumerate(many(count)):
        name = f"records/r{at}.json"
        (folder / name).write_bytes(data)
        metrics = json.loads(data)["metrics"]
        rows = "\n".join(
            f"| rotation {row['rotation']} | {row['output_nmse_mean']:.6f} | {row['decode_microseconds_mean']:.3f} |"
            for row in metrics["candidates"]
        )
        page = PAGE.format(
            at=at, prose=PROSE * 6, digest=sha256_hex(data), rows=rows, selected=metrics["selected_rotation"]
        )
        (folder / "docs" / f"p{at}.md").write_text(page)
        keys = {"page": f"docs/p{at}.md", "record": name}
        pins += [
            pin_table("artifact", role="record", id=f"r{at}", path=name, sha256=sha256_hex(data)),
            pin_table("place", page=f"docs/p{at}.md", artifact=f"r{at}", before="SHA-256 is"),
            pin_table(
                "figure",
                **keys,
                row="rotation 7",
                column="baseline",
                pointer="/metrics/candidates/7/output_nmse_mean",
                format="{:.6f}",
            ),
            pin_table(
                "figure",
                **keys,
                before="Rotation",
                after="was selected",
                pointer="/metrics/selected_rotation",
            ),
        ]
    (folder / "kvint2eval-pins.toml").write_text("".join(pins))


def seconds(command, folder, code):
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise RuntimeError(f"expected exit code {code}, found {done.returncode}: {done.stderr[-2000:]}")
    wall = time.perf_counter() - start
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, done.stderr


def gate(rounds):
    found = table(
        "gate",
        ("pages, and as many records", ",d"),
        ("bindings", ",d"),
        ("seconds", ".2f"),
        ("of them processor", ".2f"),
    )
    for count in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            site(folder, count)
            runs = [seconds([COMMAND, "gate"], folder, 0) for _ in range(rounds)]
            held = int(runs[0][2].split()[2])
            wall, processor = (statistics.median(run[at] for run in runs) for at in (0, 1))
            found.add(count, held, wall, processor)
    return found


def report(rounds):
    found = table(
        "report",
        ("records", ",d"),
        ("report made, s", ".2f"),
        ("size, MB", ".1f"),
        ("opened in Chromium, s", ".2f"),
    )
    for count in (100, 1000, 10_000):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "r.jsonl").write_bytes(b"\n".join(many(count)))
            made = [
                seconds([COMMAND, "report", "r.jsonl", "-o", "r.html"], folder, 1)[0] for _ in range(rounds)
            ]
            opened = None
            if PROGRAM is not None:
                with Browser() as browser:
                    times = [browser.open(folder / "r.html") / 1000 for _ in range(rounds)]
                opened = statistics.median(times)
            size = (folder / "r.html").stat().st_size / 1e6
            found.add(count, statistics.median(made), size, opened)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    add_output(parser)
    arguments = parser.parse_args()
    finish([gate(arguments.rounds), report(arguments.rounds)], arguments.output, "ci")


if __name__ == "__main__":
    main()
