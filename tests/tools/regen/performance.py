"""The tables of docs/results/performance.md, from the measured figures in tests/bench/results."""

from pathlib import Path

from tests.bench.tables import RESULTS, Table, read

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/results/performance.md"
_END = "<!-- end -->\n"


def tables() -> dict[str, Table]:
    """All tables by name."""
    return {one.name: one for path in sorted(RESULTS.glob("*.json")) for one in read(path)[1]}


def blocks() -> dict[str, list[str]]:
    """Lines of every block of the page: one a table, and the commands with the machines that they ran on."""
    found = {name: one.markdown() for name, one in tables().items()}
    rows = ["| command | processor | cores | load | Python |", "|---|---|---|---|---|"]
    for path in sorted(RESULTS.glob("*.json")):
        content, _ = read(path)
        machine = content["machine"]
        cells = (machine["processor"], machine["cores"], machine["load"], machine["python"])
        rows.append(f"| `{content['command']}` | {' | '.join(map(str, cells))} |")
    return found | {"commands": rows}


def page() -> bytes:
    """Bytes of the page, its prose as it is."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in blocks().items():
        begin = f"<!-- begin {name}: by `make regen`; do not edit. -->\n"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(_END)
        if not found_begin or not found_end:
            raise SystemExit(f"{PAGE.name}: the marks {begin!r} and {_END!r} are missing")
        text = before + begin + "".join(f"{line}\n" for line in lines) + _END + after
    return text.encode()
