"""Every command that a page shows is run as it stands, or is named here with what it needs."""

import hashlib
import json
import re
import shlex
import shutil
import sys

import pytest

from kvint2eval.cli import main as adjudicator
from producer.cli import main as producer
from tests.helpers import ROOT, TESTDATA
from tests.producer import made_traces as made

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Commands that are not run here, by how they begin, and why.
NOT_RUN = {
    "kvint2eval-producer trace ": "a model and torch; tests/producer/trace/test_model.py (slow)",
    "kvint2eval-producer evaluate --calibration calibration --trace evaluation --model": "a model: minutes; make slow",
    "kvint2eval-producer evaluate --calibration calibration --trace evaluation --scheme quarot-centred-tuned": "a "
    "model at 8,192 tokens; testdata/runs/length-8k.json keeps what it gave",
    "kvint2eval-producer generate": "a model and torch; tests/producer/cache (slow)",
    "kvint2eval-producer fit --calibration training --scheme quarot-centred --refine": "torch; "
    "tests/producer/scheme/optr",
    "kvint2eval-producer fit --calibration calibration --scheme oscar-centred --refine": "torch; "
    "tests/producer/scheme/optr",
    "kvint2eval-producer kernels": "NVRTC or a CUDA device; tests/producer/backend/cuda",
    "kvint2eval-producer export": "torch; tests/producer/cli/test_fit.py",
    "kvint2eval-producer rederive --backend numpy build/gpu": "records of a machine with a GPU",
    "kvint2eval-producer audit build/gpu": "records of a machine with a GPU",
    "kvint2eval adjudicate --pins build/gpu": "records of a machine with a GPU",
    "kvint2eval gate": "the project's own pages; tests/docs/test_published_digests.py runs it, "
    "tests/kvint2eval/gate the rest",
    "kvint2eval-producer run": "seconds of computation; tests/producer/cli/test_commands.py",
    "kvint2eval-producer rederive published.json": "it runs the published computation; tests/producer/record",
    "kvint2eval-producer rederive record.json": "it runs the published computation; tests/producer/record",
    "kvint2eval-producer audit": "it runs the computation that a record names; tests/producer/record/test_audit.py",
    "kvint2eval adjudicate records --policy": "a policy; tests/kvint2eval/signing",
}


def commands(text):
    """Commands of the code blocks of a page, long lines joined, without prompts and remarks."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            found = re.match(r"^\s*(?:\$ )?(?:\S*/bin/)?(kvint2eval(?:-producer)? (?!\d).*)$", line)
            if found:
                yield re.sub(r"\s+#.*$", "", found[1]).strip()


SHOWN = [
    (path.relative_to(ROOT).as_posix(), command)
    for path in PAGES
    for command in commands(path.read_text(encoding="utf-8"))
]
RUN = [(page, command) for page, command in SHOWN if not command.startswith(tuple(NOT_RUN))]


def test_commands_were_found_and_reasons_are_needed():
    assert len(SHOWN) > 50
    assert len(RUN) > 25
    for prefix in NOT_RUN:
        assert any(command.startswith(prefix) for _, command in SHOWN), prefix


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """What the pages speak of: records, traces and files under the names that they have there."""
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    root = tmp_path_factory.mktemp("world")
    for seed, name in enumerate(("calibration", "a", "evaluation", "b")):
        made.write_trace(
            root / name, 100 * (seed + 1), sequences=6 if name == "evaluation" else 1, tokens=1600
        )
    records = root / "records"
    records.mkdir()
    published = TESTDATA / "records/v1/supported/l4-published.json"
    paired = TESTDATA / "runs/paired.json"
    for path, source in (
        (records / "l4.json", published),
        (records / "run.json", paired),
        (root / "record.json", paired),
        (root / "published.json", published),
        (root / "old.json", published),
        (root / "new.json", TESTDATA / "records/v1/unsupported/cache-bytes-one-too-high.json"),
    ):
        shutil.copy(source, path)
    (root / "testdata").symlink_to(TESTDATA)
    digest = hashlib.sha256(published.read_bytes()).hexdigest()
    entry = f'[[artifact]]\nrole = "file"\nid = "some-other"\nsha256 = "{digest}"\nunbindable = "made"\n'
    pins = f'format = "kvint2eval-pins/v1"\n{entry}'
    for path in (root / "pins.toml", records / "pins.toml", root / "kvint2eval-pins.toml"):
        path.write_text(pins, encoding="utf-8")
    (records / "run.audit.json").write_text(json.dumps({"findings": []}), encoding="utf-8")
    return root


#: Exit codes of work that was done: 0, 1 where something was found or refused, 3 where it was delegated.
DONE = {0, 1, 3}

#: What a command reads that another one of its page, or of another page, writes.
WRITERS = {
    "balanced.safetensors": "kvint2eval-producer fit --calibration calibration --scheme balanced -o "
    "balanced.safetensors",
    "ours=ours.safetensors": "kvint2eval-producer fit --calibration calibration --scheme balanced-feedback -o "
    "ours.safetensors",
    "comparison.json": "kvint2eval-producer evaluate --trace evaluation --fitted ours=ours.safetensors -o "
    "comparison.json",
    "schemes.json": "kvint2eval-producer evaluate --calibration calibration --trace evaluation --scheme quarot "
    "-o schemes.json",
    "records.jsonl": "kvint2eval-producer compare --calibration calibration --trace evaluation --dialect "
    "affine-midpoint "
    "--centred --grid 1,0.9,0.8,0.7,0.6,0.5,0.4 --arm quarot --fitted balanced.safetensors -o records.jsonl",
    "release.key": "kvint2eval keygen release.key",
}


def execute(command, made_already):
    """Run a command after those that write what it reads; return its exit code."""
    words = shlex.split(command)
    output = words[words.index("-o") + 1] if "-o" in words else ""
    for word in words[1:]:
        writer = WRITERS.get(word)
        if writer is not None and writer != command and word != output and word not in made_already:
            made_already.add(word)
            if not command.startswith("kvint2eval keygen"):
                assert execute(writer, made_already) in DONE, writer
    try:
        return (producer if words[0] == "kvint2eval-producer" else adjudicator)(words[1:])
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("command", list(dict.fromkeys(command for _, command in RUN)))
def test_a_command_of_a_page_runs_as_it_stands(command, world, monkeypatch, capfd):
    if "plot" in command:
        pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    monkeypatch.chdir(world)
    monkeypatch.setattr(sys, "argv", shlex.split(command)[:1])
    key = world / "release.key"
    if command.startswith("kvint2eval keygen"):
        for path in (key, key.with_suffix(".pub"), world / "release.key.pub"):
            path.unlink(missing_ok=True)
    made_already = {name for name in WRITERS if (world / name.rpartition("=")[2]).exists()}
    code = execute(command, made_already)
    assert code in DONE, (command, capfd.readouterr().err)
