"""`python -m tests.evidence TEXTS_DIR WORK_DIR --model PATH`: the campaign, step by step; done steps are not repeated.

Gathers the texts, captures traces, fits every scheme to every calibration set, and evaluates each set's files on all
evaluation texts, with the model. Writes testdata/runs/balanced-SET.json. An interrupted run goes on where it ended.
"""

import argparse
import json
import sys
from pathlib import Path

from producer.cli import main as producer
from producer.files import write_text
from producer.trace.files import read_trace
from producer.trace.texts import require_disjoint
from tests.evidence.texts import gather, table

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "testdata" / "runs"


def step(*words: object) -> None:
    """Run a command of the producer, or end."""
    arguments = [str(word) for word in words]
    print("kvint2eval-producer", *arguments, flush=True)
    code = producer(arguments)
    if code:
        sys.exit(code)


def capture(model: Path, folder: Path, texts: list[Path], tokens: int, sequences: int) -> Path:
    """Return a trace, captured unless it is there."""
    if not (folder / "trace.json").exists():
        each = [word for path in texts for word in ("--text", path)]
        step("trace", "--model", model, *each, "--tokens", tokens, "--sequences", sequences, "-o", folder)
    return folder


def main(words: list[str]) -> int:
    """Run what is left of the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    parser.add_argument("texts", type=Path, help="folder of the texts; those that are missing are gathered")
    parser.add_argument("work", type=Path, help="folder of traces, fitted files and states")
    parser.add_argument("--model", required=True, type=Path, help="folder of a model, or a GGUF file")
    parser.add_argument("--set", action="append", help="a calibration set; may be repeated (default: all)")
    parser.add_argument("--output", type=Path, default=RUNS, help="folder of the comparisons")
    arguments = parser.parse_args(words)
    plan = table()
    texts = gather(arguments.texts)
    tokens = plan["evaluation"]["tokens"]
    for folder in (arguments.work, arguments.output):
        folder.mkdir(parents=True, exist_ok=True)
    evaluation = capture(
        arguments.model,
        arguments.work / "evaluation",
        [texts[name] for name in plan["evaluation"]["texts"]],
        tokens,
        1,
    )
    sets = arguments.set or list(plan["calibration"])
    traces = {}
    for name in sets:
        one = plan["calibration"][name]
        files = [texts[text] for text in one["texts"]]
        folder = arguments.work / f"calibration-{name}"
        traces[name] = capture(arguments.model, folder, files, tokens, one["sequences"])
        require_disjoint(read_trace(traces[name]).sequences, read_trace(evaluation).sequences)
    for name, trace in traces.items():
        _evaluate(arguments, plan["campaign"], name, trace, evaluation)
    if "docs" in traces:
        _record(arguments, plan["campaign"]["records"], traces["docs"], evaluation)
    return 0


def _record(arguments: argparse.Namespace, records: dict, calibration: Path, evaluation: Path) -> None:
    """Write v2 records of the arms by layer."""
    output = arguments.output / "smollm2-layers.jsonl"
    if output.exists():
        return
    words = [word for arm in records["arms"] for word in ("--arm", arm)]
    for name, scheme in records["fitted"].items():
        file = arguments.work / f"{name}.safetensors"
        file.write_bytes((arguments.work / f"{scheme}@docs.safetensors").read_bytes())
        words += ["--fitted", file]
    words += ["--baseline", records["arms"][0], "--dialect", records["dialect"], "--grid", records["grid"]]
    step("compare", "--calibration", calibration, "--trace", evaluation, "--centred", *words, "-o", output)


def part(trace: Path, index: int) -> Path:
    """Return a trace of one sequence of another, made of links."""
    folder = trace.with_name(f"{trace.name}-{index}")
    folder.mkdir(exist_ok=True)
    own = f"sequence-{index:03d}"
    for file in trace.iterdir():
        if file.name == "trace.json" or ("sequence-" in file.name and own not in file.name):
            continue
        link = folder / file.name.replace(own, "sequence-000")
        if not link.exists():
            link.symlink_to(file.resolve())
    content = json.loads((trace / "trace.json").read_text(encoding="utf-8"))
    content["sequences"] = [content["sequences"][index]]
    write_text(folder / "trace.json", json.dumps(content, indent=1) + "\n")
    return folder


def _fit(work: Path, campaign: dict, name: str, calibration: Path) -> list[str]:
    """Fit all schemes to one calibration set and return the arguments that name their files."""
    fitted = []
    jobs = [(scheme, ["--calibration", calibration, "--scheme", scheme]) for scheme in campaign["schemes"]]
    for job in campaign["refined"] if name in campaign["full"] else ():
        words = ["--calibration", part(calibration, 0), "--held-out", part(calibration, 1)]
        words += ["--scheme", job["scheme"], "--refine", job["refine"]]
        if "learning_rate" in job:
            words += ["--learning-rate", job["learning_rate"]]
        words += ["--state", work / f"{job['name']}@{name}.state"]
        jobs.append((job["name"], words))
    for scheme, words in jobs:
        path = work / f"{scheme}@{name}.safetensors"
        if not path.exists():
            step("fit", *words, "-o", path)
        fitted += ["--fitted", f"{scheme}@{name}={path}"]
    return fitted


def _evaluate(
    arguments: argparse.Namespace, campaign: dict, name: str, calibration: Path, evaluation: Path
) -> None:
    """Fit all schemes to one calibration set and write their comparison."""
    output = arguments.output / f"balanced-{name}.json"
    if output.exists():
        return
    fitted = _fit(arguments.work, campaign, name, calibration)
    rivals = [
        word
        for rival in campaign["rivals"]
        if name in campaign["full"] or rival in campaign["schemes"]
        for word in ("--rival", f"{rival}@{name}")
    ]
    options = ["--scheme", "int2", "-o", arguments.work / output.name]
    if name in campaign["full"]:
        state = arguments.work / "runs.jsonl"
        options += ["--model", arguments.model, "--first-token", campaign["first_token"], "--state", state]
    step("evaluate", "--trace", evaluation, *fitted, *rivals, *options)
    step("check", arguments.work / output.name)
    write_text(output, (arguments.work / output.name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
