"""`python -m tests.bench.evaluate CALIBRATION TRACE --before FOLDER`: what `evaluate` takes, beside an earlier state.

FOLDER is a checkout of the commit to compare with. Both evaluate the default schemes on the same traces, fits
included, in one process each, in turn; figures must be equal bit by bit. Seconds of the processor, since
they depend least on what else runs on the machine, and of the clock; medians over rounds. The JSON goes to `--output`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.tables import add_output, finish, table

ROUNDS = 5

_CHILD = """
import dataclasses, hashlib, json, sys, time
from pathlib import Path
from producer.experiment.trace.candidates import TraceCalibration, from_calibration
from producer.experiment.trace.compare_schemes import compare_schemes
from producer.scheme.registry import SCHEMES
from producer.trace.files import read_trace
traces = [read_trace(Path(path)) for path in sys.argv[1:3]]
model = dataclasses.replace(traces[1].model, num_layers=int(sys.argv[3]))
calibration, evaluation = TraceCalibration(traces[0]), dataclasses.replace(traces[1], model=model)
candidates = [from_calibration(scheme, calibration, model) for scheme in SCHEMES.values()]
wall, cpu = time.perf_counter(), time.process_time()
found = compare_schemes(candidates, evaluation, 1, lambda *_: None)
times = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
digest = hashlib.sha256(found.figures.tobytes() + repr(found.stored_bytes).encode()).hexdigest()
print(json.dumps({**times, "schemes": len(candidates), "figures_sha256": digest}))
"""


def run(folder: Path, arguments: list[str]) -> dict[str, object]:
    """What one evaluation took, with the sources of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _CHILD, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.evaluate", description=__doc__)
    parser.add_argument("calibration")
    parser.add_argument("trace")
    parser.add_argument("--before", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--commit", required=True, help="the commit of FOLDER, for the JSON")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_output(parser)
    arguments = parser.parse_args()
    passed = [str(Path(arguments.calibration).resolve()), str(Path(arguments.trace).resolve())]
    folders = {"before": arguments.before.resolve(), "after": Path.cwd()}
    runs: dict[str, list[dict[str, object]]] = {name: [] for name in folders}
    for _ in range(arguments.rounds):
        for name, folder in folders.items():
            runs[name].append(run(folder, [*passed, str(arguments.layers)]))
    digests = {each["figures_sha256"] for found in runs.values() for each in found}
    if len(digests) != 1:
        raise SystemExit("the figures of both states are not equal bit by bit")
    found = table(
        "evaluate",
        "seconds of",
        ("schemes", ",d"),
        ("layers", ",d"),
        (f"before ({arguments.commit})", ".2f"),
        ("after", ".2f"),
        ("after / before", ".2f"),
    )
    for metric, title in (("cpu_seconds", "the processor"), ("seconds", "the clock")):
        before, after = (
            statistics.median(float(each[metric]) for each in runs[name])  # type: ignore[arg-type]
            for name in ("before", "after")
        )
        found.add(title, runs["after"][0]["schemes"], arguments.layers, before, after, after / before)
    finish([found], arguments.output, "evaluate")


if __name__ == "__main__":
    main()
