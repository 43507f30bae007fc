"""What the pages show is what the commands print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvint2eval import read_pins
from tests.helpers import ROOT

BLOCK = re.compile(r"```(console|toml|python)\n(.*?)```", re.DOTALL)


def steps(page):
    """Commands of a page's console blocks with what they print, and the files that it tells to write."""
    for kind, body in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "console":
            for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, expected = step.partition("\n")
                yield kind, command, expected
        else:
            yield kind, body, ""


def run(command, folder):
    """Output of a shell command, both streams, with the package's commands first on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-c", command],  # noqa: S607  # the user's shell
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    return done.stdout, done.returncode


def test_tutorial_prints_what_it_shows(tmp_path):
    (tmp_path / "testdata").symlink_to(ROOT / "testdata")
    code = 0
    shown = 0
    for kind, body, expected in steps("docs/guides/tutorial.md"):
        if kind == "toml":
            (tmp_path / "records" / "pins.toml").write_text(body)
        elif kind == "python":
            out, code = run(f"python - <<'EOF'\n{body}EOF", tmp_path)
            assert out == "1.95926247\n"
        elif body == "echo $?":
            assert expected == f"{code}\n"
        elif "pip install" not in body and "-m venv" not in body:
            out, code = run(body.removeprefix(".venv/bin/"), tmp_path)
            assert out == expected, body
            shown += bool(expected)
    assert shown >= 4


@pytest.mark.parametrize("page", ["docs/reference/contract-v1.md"])
def test_pins_of_a_page_are_a_pins_file(page, tmp_path):
    (tmp_path / "producer").mkdir()
    (tmp_path / "producer" / "main.cu").write_text("")
    for kind, body, _ in steps(page):
        if kind == "toml":
            (tmp_path / "pins.toml").write_text(body)
            assert len(read_pins(tmp_path / "pins.toml").artifacts) == 2


def test_readme_shows_verdicts_and_findings_as_they_are_printed():
    golden = (ROOT / "testdata" / "golden" / "report" / "v1.txt").read_text(encoding="utf-8")
    *shown, findings = re.findall(
        r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert [verdict.split()[0] for verdict in shown] == ["supported", "unsupported"]
    assert all(verdict in golden for verdict in shown)
    audited, code = run("kvint2eval-producer audit testdata/records/v1/supported/l4-published.json", ROOT)
    assert code == 1
    assert set(findings.splitlines()) < set(audited.splitlines())
