"""The pre-commit hooks and the composite action, run for real as far as that goes without the network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers import RECORDS, ROOT, TESTDATA
from tests.kvint2eval.gate import site

BIN = Path(sys.executable).parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def run(folder, *command, **variables):
    # git and pre-commit read the user's settings; here there are none.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GITHUB_"))}
    environment = kept | {
        "HOME": str(folder), "PRE_COMMIT_HOME": str(folder.parent / "cache"), "PATH": f"{BIN}:{os.environ['PATH']}",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c",
        "GIT_CONFIG_NOSYSTEM": "1",
    } | variables  # fmt: skip
    done = subprocess.run(
        [str(one) for one in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    """A repository with the small site and its record."""
    folder = tmp_path / "project"
    site.make(folder)
    assert run(folder, "git", "init", "-q")[0] == 0
    return folder


def configure(project, config):
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    assert run(project, "git", "add", "-A")[0] == 0


def local_hooks():
    """The hooks as they are, but with the command that is installed here in place of a fresh environment."""
    hooks = [hook | {"language": "unsupported"} for hook in HOOKS]
    return {"repos": [{"repo": "local", "hooks": hooks}]}


def check_hooks(project):
    code, out = run(project, "pre-commit", "run", "--all-files")
    assert code == 0, out
    assert len(re.findall(r"\.\.Passed", out)) == 2
    (project / "records" / "bad.json").write_bytes(
        (RECORDS / "unsupported" / "cache-bytes-one-too-high.json").read_bytes()
    )
    page = project / "docs" / "run.md"
    page.write_text(page.read_text().replace("51.571284", "51.6"))
    assert run(project, "git", "add", "-A")[0] == 0
    code, out = run(project, "git", "-c", "core.hooksPath=/dev/null", "commit", "-qm", "all")
    assert code == 0, out
    code, out = run(project, "pre-commit", "run", "--all-files")
    assert code == 1
    assert "unsupported  records/bad.json  KVINT2_INVALID_MEASUREMENT" in out
    assert "docs/run.md:13  figure-differs" in out
    assert len(re.findall(r"\.\.Failed", out)) == 2


def test_the_hooks_run(project):
    configure(project, local_hooks())
    check_hooks(project)


def test_a_commit_without_a_record_is_gated_all_the_same(project):
    configure(project, local_hooks())
    assert run(project, "pre-commit", "install")[0] == 0
    assert run(project, "git", "commit", "-qm", "first")[0] == 0
    page = project / "docs" / "run.md"
    page.write_text(page.read_text().replace("51.571284", "51.6"))
    code, out = run(project, "git", "commit", "-qam", "second")
    assert code == 1
    assert "docs/run.md:13  figure-differs" in out
    assert "(no files to check)Skipped" in out


@pytest.mark.slow
def test_the_hooks_install_from_a_repository(project, tmp_path):
    """Needs the package index: pre-commit builds the environment that a user gets."""
    source = tmp_path / "hooks"
    _, names = run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "testdata/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        assert run(source, "git", *command)[0] == 0
    _, revision = run(source, "git", "rev-parse", "HEAD")
    hooks = [{"id": hook["id"]} for hook in HOOKS]
    configure(project, {"repos": [{"repo": f"file://{source}", "rev": revision.strip(), "hooks": hooks}]})
    check_hooks(project)


def step(project, name, **inputs):
    """Run one step of the action as the runner does: its variables are filled in, its script is not."""
    (found,) = [one for one in ACTION["runs"]["steps"] if one["name"] == name]
    assert found["shell"] == "bash"
    assert "${{" not in found["run"]
    values = {f"inputs.{key}": one["default"] for key, one in ACTION["inputs"].items()}
    values |= {f"inputs.{key.replace('_', '-')}": value for key, value in inputs.items()}
    values |= {"runner.temp": str(project.parent / "temp"), "github.action_path": str(ROOT)}
    variables = {
        key: re.sub(r"\$\{\{ ([a-z._-]+) \}\}", lambda match: values[match[1]], text)
        for key, text in found["env"].items()
    }
    variables["GITHUB_STEP_SUMMARY"] = str(project.parent / "summary.md")
    return run(project, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"], **variables)


@pytest.fixture
def installed(project):
    folder = project.parent / "temp" / "kvint2eval" / "bin"
    folder.mkdir(parents=True)
    (folder / "kvint2eval").symlink_to(BIN / "kvint2eval")
    for name in ("delegate/runtime-not-cuda-numpy", "unsupported/cache-bytes-one-too-high"):
        shutil.copy(RECORDS / f"{name}.json", project / "records")
    return project


CHECK = "Check records and pages"
GOOD, OPEN, BAD = (
    "records/l4.json",
    "records/runtime-not-cuda-numpy.json",
    "records/cache-bytes-one-too-high.json",
)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"records": GOOD}, 0),
        ({"records": f"\n  \n{GOOD}\n\n{GOOD}\n"}, 0),
        ({"records": f"{GOOD}\n{OPEN}"}, 3),
        ({"records": f"{GOOD}\n{OPEN}", "accept_delegate": "true"}, 0),
        ({"records": f"{GOOD}\n{OPEN}\n{BAD}"}, 1),
        ({"records": "absent.json"}, 2),
        ({"records": "--help"}, 2),
        ({"records": GOOD, "gate": "kvint2eval-pins.toml", "sarif": "out.sarif"}, 0),
        ({"records": BAD, "gate": "kvint2eval-pins.toml", "sarif": "out.sarif"}, 1),
        ({"records": OPEN, "gate": "absent.toml"}, 2),
        ({"gate": "kvint2eval-pins.toml"}, 0),
        ({"records": GOOD, "pins": "met.toml"}, 0),
        ({"records": GOOD, "pins": "moved.toml"}, 1),
        ({}, 2),
        ({"records": "$(touch forged); `touch forged`\n';touch forged;'"}, 2),
    ],
)
def test_the_action_ends_as_its_worst_part(installed, inputs, code):
    for name in ("met.toml", "moved.toml"):
        shutil.copy(TESTDATA / "pins" / name, installed)
    found, out = step(installed, CHECK, **inputs)
    assert found == code, out
    assert ("::error" in out) == (code in (1, 2))
    assert (installed / "out.sarif").exists() == ("sarif" in inputs)
    assert not (installed / "forged").exists()
    assert (installed.parent / "summary.md").exists() == bool(inputs)


@pytest.mark.slow
def test_the_action_installs_the_tool(project):
    """Needs the package index."""
    code, out = step(project, "Install kvint2eval", python=sys.executable)
    assert code == 0, out
    code, out = step(project, CHECK, records=GOOD, gate="kvint2eval-pins.toml")
    assert code == 0, out


def test_the_action_pins_no_input_into_its_scripts():
    assert {one for step in ACTION["runs"]["steps"] for one in step} == {"name", "shell", "env", "run"}
    named = re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text())
    assert sorted(named) == sorted(ACTION["inputs"])
