"""Speed and memory of the adjudicator on v2 records: `python -m tests.bench.adjudication_v2 [--rounds N] [--lines N]`.

The record is a test vector of nine arms, five clip ratios, 64 trials and 16 calibration queries with two claims of 1000
resamples each. Prints Markdown tables. The parts are processor time inside one process, the median over the rounds,
taken in turn; the stream is a whole command on JSON Lines.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from kvint2eval import adjudicate
from kvint2eval.adjudication import read_subject
from kvint2eval.contract.v2.bootstrap import index_bytes
from kvint2eval.contract.v2.reader import decode_v2
from kvint2eval.contract.v2.rules import RULES_V2
from tests.bench.adjudication import COMMAND, run
from tests.bench.tables import add_output, finish, table
from tests.tools.regen import vector_v2
from tests.tools.regen.records_v2 import text
from tests.tools.regen.vector_v2 import LEVELS, claim, sealed, vector

ARMS, TRIALS, QUERIES = 9, 64, 16


def wide(seed=1):
    """A record of the size that the target names."""
    record = vector(TRIALS, QUERIES, claims=False, seed=seed)
    generator = random.Random(seed)
    measurements = record["measurements"]
    denominators = measurements["arms"][0]["trials"]["denominator"]
    for index in range(3, ARMS):
        name = f"r{index}"
        LEVELS[name] = LEVELS["r2"]
        record["recipe"]["rotations"].append(vector_v2._rotation(name, "signed-hadamard", index))
        measurements["null_checks"].append({"rotation": name, "nmse": 3e-13})
        measurements["arms"].append(vector_v2._arm(generator, name, denominators, QUERIES))
    record["recipe"]["rotation_count"] = ARMS
    record["claims"] = [claim(record)]
    record["claims"].append(claim(record, "decode_us"))
    return sealed(record)


def cpu_ms(work):
    """Processor time of one call, ms."""
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def fresh(data):
    """Adjudicate a record whose index stream is not known yet, as the first of a batch is."""
    index_bytes.cache_clear()
    return adjudicate(data)


def parts(rounds):
    """Median processor time of a whole adjudication and of its parts, ms."""
    record = wide()
    compact = json.dumps(record, separators=(",", ":")).encode()
    assert adjudicate(compact).outcome == "supported"
    rules = {rule.__name__: rule for rule in RULES_V2}
    subject = read_subject(compact)
    laid_out = text(record)
    escaped = compact.replace(b"test vector", b"t\\u0065st vector")
    works = {
        "whole, first of its seed": lambda: fresh(compact),
        "whole, seed seen before": lambda: adjudicate(compact),
        "whole, laid out over lines": lambda: fresh(laid_out),
        "whole, by the strict reader": lambda: fresh(escaped),
        "decode": lambda: decode_v2(compact),
        "decode, RFC 8785 form, closer look": lambda: read_subject(compact),
        "figures, trials and summaries": lambda: [
            rules[name](subject)
            for name in ("check_figures", "check_nmse", "check_split", "check_calibration", "check_summaries")
        ],
        "claims: two intervals": lambda: rules["check_claim_figures"](subject),
        "json.loads, for scale": lambda: json.loads(compact),
    }
    measured = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            measured[name].append(cpu_ms(work))
    title = f"a record of {len(compact):,} bytes, {ARMS} arms x 5 clips x {TRIALS} trials, two claims"
    found = table("v2", title, ("median ms", ".2f"), ("least ms", ".2f"), ("times json.loads", ".2f"))
    floor = statistics.median(measured["json.loads, for scale"])
    for name, values in measured.items():
        middle = statistics.median(values)
        found.add(name, middle, min(values), middle / floor)
    return found


def stream(lines):
    """Records a second and peak memory of a command on JSON Lines of growing length."""
    records = [json.dumps(wide(seed), separators=(",", ":")).encode() + b"\n" for seed in range(1, 9)]
    found = table(
        "v2-stream",
        ("records", ",d"),
        ("MB", ".0f"),
        ("seconds", ".2f"),
        ("records/s", ".0f"),
        ("peak MiB", ".0f"),
    )
    for count in (lines // 8, lines):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records.jsonl"
            with path.open("wb") as file:
                for index in range(count):
                    file.write(records[index % len(records)])
            wall, _, peak = run([*COMMAND, "adjudicate", str(path), "--format", "jsonl"])
            size = path.stat().st_size / 1e6
        found.add(count, size, wall, count / wall, peak)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--lines", type=int, default=2000)
    add_output(parser)
    arguments = parser.parse_args()
    finish([parts(arguments.rounds), stream(arguments.lines)], arguments.output, "adjudication_v2")


if __name__ == "__main__":
    main()
