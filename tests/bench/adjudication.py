"""Speed and memory of the adjudicator: `python -m tests.bench.adjudication [--lines N] [--rounds N]`.

Prints Markdown tables. Everything is measured as whole commands; those that are compared run in turn within each
round, and the medians over the rounds are printed, so that a busy machine changes the ratios little.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from kvint2eval.adjudication import adjudicate
from kvint2eval.contract.v1.canonical import canonical_v1_of_layout
from kvint2eval.contract.v1.reader import decode_v1
from kvint2eval.contract.v1.rules import Subject
from kvint2eval.files.digest import sha256_hex
from kvint2eval.report import Source
from kvint2eval.report.json_lines import verdict_line
from tests.bench.tables import add_output, finish, table
from tests.helpers import RECORDS, published

COMMAND = [str(Path(sys.executable).parent / "kvint2eval")]
PASS = [sys.executable, "-c", "pass"]
LOADS = [
    sys.executable,
    "-c",
    "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)",
]

KINDS = (
    ("supported", "supported/l4-published.json"),
    ("delegate: modeled", "delegate/modeled-evidence-observed-figures.json"),
    ("unsupported: method", "unsupported/unsupported-method-unknown-rotation.json"),
    ("unsupported: cache bytes", "unsupported/cache-bytes-one-too-high.json"),
    ("unsupported: witness", "unsupported/witness-mismatch-driver.json"),
    ("malformed: unknown member", "unsupported/unknown-member-capital.json"),
    ("malformed: duplicate", "unsupported/duplicate-member-escaped.json"),
    ("malformed: negative zero", "unsupported/negative-zero-float.json"),
)


def run(command):
    """Wall seconds, processor seconds, and peak memory in MiB of one process of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, used.ru_maxrss / 1024


def in_turn(commands, rounds):
    """Median of each figure for each command, the commands run one after another in every round."""
    measured = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            measured[name].append(run(command))
    return {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in measured.items()
    }


def one_line(path):
    """A record of testdata on one line, its text otherwise as it is."""
    return (RECORDS / path).read_bytes().replace(b"\n", b" ").strip() + b"\n"


def write_lines(path, line, count):
    """Write one line many times; in pieces, since a child's peak memory counts from this process's."""
    with path.open("wb") as stream:
        for _ in range(count):
            stream.write(line)


def streaming(folder, lines, rounds):
    """Records a second, one job and two, and the memory for a tenth and for all of the lines."""
    compact = json.dumps(json.loads(published()), separators=(",", ":")).encode() + b"\n"
    whole, tenth = folder / "whole.jsonl", folder / "tenth.jsonl"
    write_lines(whole, compact, lines)
    write_lines(tenth, compact, lines // 10)
    judge = [*COMMAND, "adjudicate", "--format", "jsonl"]
    cores = os.cpu_count() or 1
    commands = {
        "json.loads of each line, nothing else": [*LOADS, str(whole)],
        "jsonl, one job": [*judge, str(whole)],
        "text, one job": [*judge[:-1], "text", str(whole)],
        f"jsonl, --jobs {cores}": [*judge, str(whole), "--jobs", str(cores)],
        "jsonl, one job, a tenth of the lines": [*judge, str(tenth)],
    }
    found = table(
        "streaming",
        f"streaming {lines:,} supported records",
        ("records/s (wall)", ",.0f"),
        ("µs/record (processor)", ".1f"),
        ("times json.loads", ".2f"),
        ("peak MiB", ".0f"),
    )
    floor = None
    for name, (wall, cpu, peak) in in_turn(commands, rounds).items():
        count = lines // 10 if "tenth" in name else lines
        each = cpu / count * 1e6
        floor = floor or each
        found.add(name, count / wall, each, each / floor, peak)
    return found


def kinds(folder, lines, rounds):
    """Cost of each kind of record against that of a supported one."""
    commands = {}
    for number, (name, path) in enumerate(KINDS):
        target = folder / f"kind{number}.jsonl"
        write_lines(target, one_line(path), lines)
        commands[name] = [*COMMAND, "adjudicate", "--format", "jsonl", str(target)]
    empty = folder / "one.jsonl"
    empty.write_bytes(one_line(KINDS[0][1]))
    commands["start"] = [*COMMAND, "adjudicate", "--format", "jsonl", str(empty)]
    measured = in_turn(commands, rounds)
    start = measured.pop("start")[1]
    base = measured[KINDS[0][0]][1] - start
    found = table(
        "kinds",
        "kind of record, indented text on one line",
        ("µs/record (processor)", ".1f"),
        ("times a supported one", ".2f"),
    )
    for name, (_, cpu, _) in measured.items():
        found.add(name, (cpu - start) / lines * 1e6, (cpu - start) / base)
    return found


def stages(calls=3000, repeats=7):
    """Time of the steps on one record again and again in this process: the least of some repeats."""
    data = json.dumps(json.loads(published()), separators=(",", ":")).encode()
    record = decode_v1(data)
    subject = Subject(record, frozenset(), None)
    text = subject.canonical
    verdict = adjudicate(data)
    steps = {
        "json.loads": lambda: json.loads(data),
        "decode": lambda: decode_v1(data),
        "canonical form": lambda: canonical_v1_of_layout(record),
        "SHA-256": lambda: sha256_hex(text),
        "adjudicate, whole": lambda: adjudicate(data),
        "the verdict's line": lambda: verdict_line(Source("record.jsonl", 1), verdict),
    }
    found = table("stages", "step, one record in one process", ("least processor µs", ".1f"))
    for name, step in steps.items():
        found.add(
            name,
            min(timeit.repeat(step, timer=time.process_time, number=calls, repeat=repeats)) / calls * 1e6,
        )
    return found


def cold(rounds):
    """Start of the command on one file against an empty Python."""
    path = str(RECORDS / "supported" / "l4-published.json")
    measured = in_turn(
        {"python3 -c pass": PASS, "kvint2eval adjudicate FILE": [*COMMAND, "adjudicate", path]}, rounds
    )
    floor = measured["python3 -c pass"][1]
    found = table("start", "cold command", ("processor ms", ".1f"), ("above python3 -c pass", ".1f"))
    for name, (_, cpu, _) in measured.items():
        found.add(name, cpu * 1e3, (cpu - floor) * 1e3)
    return found


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    add_output(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        tables = [
            streaming(Path(name), arguments.lines, arguments.rounds),
            kinds(Path(name), arguments.lines // 10, arguments.rounds),
        ]
    finish([*tables, stages(), cold(max(15, arguments.rounds))], arguments.output, "adjudication")


if __name__ == "__main__":
    main()
