"""The published protocol: the producer beside plain C++ loops, and its time over the number of tokens.

    python -m tests.bench.producer_published [--repeats N] [--tokens]

Runs alternate, so that a busy machine slows both; medians are printed, times in seconds. Without g++ the C++ column
is left out.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.tables import add_output, finish, table

_SOURCE = Path(__file__).with_name("published_loop.cpp")
_RUN = """
import dataclasses, sys, time
from producer.backend.cpu import NumpyBackend
from producer.system.environment import peak_rss_bytes
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PUBLISHED, SliceSpec
begin = time.perf_counter()
protocol = dataclasses.replace(PUBLISHED, num_rotations=int(sys.argv[3]))
run_protocol(SliceSpec(seq_len=int(sys.argv[1])), protocol, NumpyBackend(int(sys.argv[2])))
print(time.perf_counter() - begin, peak_rss_bytes())
"""


def compiled(folder):
    """Path of the compiled loops, or None without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    program = folder / "published_loop"
    subprocess.run([compiler, "-O3", "-std=c++17", str(_SOURCE), "-o", str(program)], check=True)
    return program


def loop_seconds(program):
    """Seconds of the whole protocol in the loops, as they measure it."""
    out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return float(out.split()[-1])


def producer_seconds(tokens, threads, rotations=8):
    """Seconds of the protocol in NumPy within its process, and the process's largest size in MB."""
    command = [sys.executable, "-c", _RUN, str(tokens), str(threads), str(rotations)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, peak = out.split()
    return float(seconds), int(peak) / 1e6


def command_seconds(folder, threads):
    """Seconds of the whole command, its start and its files included."""
    command = [sys.executable, "-m", "producer", "run", "--protocol", "published", "--threads", str(threads)]
    begin = time.perf_counter()
    subprocess.run([*command, "-o", str(folder / "record.json")], capture_output=True, check=True)
    return time.perf_counter() - begin


def side_by_side(repeats):
    """Table of medians at the published size."""
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        program = compiled(Path(name))
        for _ in range(repeats):
            if program is not None:
                rows.setdefault("C++ loops, 1 thread", []).append(loop_seconds(program))
            for threads in (1, 2):
                rows.setdefault(f"producer, {threads} threads", []).append(producer_seconds(4096, threads)[0])
            rows.setdefault("whole command, 1 thread", []).append(command_seconds(Path(name), 1))
    loops = statistics.median(rows.get("C++ loops, 1 thread", [float("nan")]))
    numbers = ((title, ".3f") for title in ("median s", "least s", "most s"))
    found = table("published", "program", *numbers, ("share of C++", ".2f"))
    for label, seconds in rows.items():
        middle = statistics.median(seconds)
        found.add(label, middle, min(seconds), max(seconds), middle / loops)
    return found


def over_tokens(most):
    """Table of time and size over the number of tokens, for the baseline and one rotation, one process each."""
    found = table("tokens", ("tokens", ",d"), ("seconds", ".2f"), ("µs a token", ".0f"), ("peak MB", ".0f"))
    for exponent in range(10, most.bit_length(), 2):
        seconds, peak = producer_seconds(2**exponent, 2, 1)
        found.add(2**exponent, seconds, 1e6 * seconds / 2**exponent, peak)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=0, help="also time 1,024 tokens to so many (minutes)")
    add_output(parser)
    arguments = parser.parse_args()
    tables = [side_by_side(arguments.repeats)]
    if arguments.tokens:
        tables.append(over_tokens(arguments.tokens))
    finish(tables, arguments.output, "producer_published")


if __name__ == "__main__":
    main()
