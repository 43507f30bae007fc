"""Tables of measured figures: printed as Markdown, and kept as JSON, from which docs/results/performance.md is made."""

import argparse
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from producer.system.files import write_text

RESULTS = Path(__file__).with_name("results")
#: Significant digits that are kept of a figure.
_DIGITS = 5


class Table(NamedTuple):
    """Measured rows under titled columns; a cell is a text, a number or None."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Title and format of each, the first of texts."""
    rows: list[list[Any]]

    def add(self, *cells: Any) -> None:
        """Append a row."""
        kept = [float(f"{cell:.{_DIGITS}g}") if isinstance(cell, float) else cell for cell in cells]
        self.rows.append(kept)

    def markdown(self) -> list[str]:
        """Lines of the table."""
        lines = [f"| {' | '.join(title for title, _ in self.columns)} |", "|---" * len(self.columns) + "|"]
        for row in self.rows:
            cells = [
                "" if cell is None else format(cell, form)
                for cell, (_, form) in zip(row, self.columns, strict=True)
            ]
            lines.append(f"| {' | '.join(cells)} |")
        return lines


def table(name: str, *columns: str | tuple[str, str]) -> Table:
    """An empty table; a column without a format is of texts."""
    return Table(name, tuple((one, "") if isinstance(one, str) else one for one in columns), [])


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output`."""
    parser.add_argument(
        "--output", type=Path, help="keep the figures as JSON, for docs/results/performance.md"
    )


def finish(tables: list[Table], output: Path | None, bench: str) -> None:
    """Print tables, and write them to a file where one is named."""
    for one in tables:
        print("\n".join(["", *one.markdown()]))
    if output is None:
        return
    words = [word for word in sys.argv[1:] if word not in ("--output", str(output))]
    content = {
        "format": "kvint2eval-bench-v1",
        "command": shlex.join(["python", "-m", f"tests.bench.{bench}", *words]),
        "machine": {
            "cores": os.cpu_count(),
            "processor": _processor(),
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1),
        },
        "tables": [one._asdict() for one in tables],
    }
    write_text(output, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _processor() -> str:
    """The model name that Linux gives, or the machine's kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read(path: Path) -> tuple[dict[str, Any], list[Table]]:
    """A file of figures: what it says of itself, and its tables."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tables = [
        Table(one["name"], tuple((title, form) for title, form in one["columns"]), one["rows"])
        for one in content["tables"]
    ]
    return content, tables
