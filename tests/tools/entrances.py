"""What each entrance does in each situation of somebody's repository, by running it: the table of docs/guides/ci.md."""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvint2eval import InputError, adjudicate, read_envelope, read_pins, read_policy, read_record_file
from kvint2eval.signing.keys import generate_key, write_key_pair
from tests.helpers import RECORDS, ROOT, published
from tests.kvint2eval import test_hooks, test_pytest_plugin

PAGE = ROOT / "docs" / "guides" / "ci.md"
BAD = (RECORDS / "unsupported" / "cache-bytes-one-too-high.json").read_bytes()


class Situation(NamedTuple):
    """One thing that can be wrong beside a record that is supported."""

    name: str
    files: dict[str, bytes]
    listed: str = "records"
    pins: bool = False
    policy: bool = False


PINS = f"""format = "kvint2eval-pins/v1"
[[artifact]]
role = "artifact"
id = "another-name"
sha256 = "{"0" * 64}"
unbindable = "renamed in the record"
"""

SITUATIONS = (
    Situation("missing: the record is gone", {"records/gone.json.dsse": b"{}"}, "records/gone.json"),
    Situation("link: a symbolic link to a record", {"records/link.json": b""}),
    Situation(
        "excluded: in a folder that other tools leave out", {"build/records/bad.json": BAD}, "build/records"
    ),
    Situation("wrong case: `.JSON`", {"records/bad.JSON": BAD}),
    Situation("empty file", {"records/empty.json": b""}),
    Situation("malformed", {"records/bad.json": b"{"}),
    Situation("unpinned, with `require`", {}, pins=True),
    Situation("unsigned, with a policy", {}, policy=True),
)


def build(folder: Path, situation: Situation) -> None:
    """A repository in a situation."""
    for name, data in {"records/good.json": published(), **situation.files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("link.json"):
            (folder / name).symlink_to("good.json")
        else:
            (folder / name).write_bytes(data)
    (folder / "pins.toml").write_text(PINS)
    write_key_pair(generate_key("ed25519"), folder / "key")
    (folder / "policy.toml").write_text(
        'format = "kvint2eval-policy/v1"\nthreshold = 1\nexpires = 2999-01-01T00:00:00Z\n[[key]]\npath = "key.pub"\n'
    )


def options(situation: Situation) -> list[str]:
    """Options of the command."""
    pins = ["--pins", "pins.toml", "--require", "bound"] if situation.pins else []
    return pins + (["--policy", "policy.toml"] if situation.policy else [])


def command(folder: Path, situation: Situation, *words: str) -> str:
    """The command, or the report."""
    tool = [sys.executable, "-m", "kvint2eval", *(words or ("adjudicate",))]
    code, _ = test_hooks.run(folder, *tool, situation.listed, *options(situation))
    return f"exit {code}"


def report(folder: Path, situation: Situation) -> str:
    """The HTML report."""
    return command(folder, situation, "report", "-o", "report.html")


def hook(folder: Path, situation: Situation) -> str:
    """The pre-commit hook, on all files."""
    hooks = test_hooks.local_hooks()
    (adjudicating,) = [one for one in hooks["repos"][0]["hooks"] if one["id"] == "kvint2eval-adjudicate"]
    hooks["repos"][0]["hooks"] = [adjudicating | {"args": options(situation)}]
    test_hooks.run(folder, "git", "init", "-q")
    test_hooks.configure(folder, hooks)
    _, out = test_hooks.run(folder, "pre-commit", "run", "--all-files")
    found = re.search(r"exit code: (\d)", out)
    return f"exit {found[1] if found else 0}"


def plugin(folder: Path, situation: Situation) -> str:
    """The pytest plugin."""
    settings = [f'kvint2eval_records = ["{situation.listed}"]']
    settings += ['kvint2eval_pins = "pins.toml"', 'kvint2eval_require = "bound"'] if situation.pins else []
    settings += ['kvint2eval_policy = "policy.toml"'] if situation.policy else []
    test_pytest_plugin.configure(folder, *settings)
    code, _, _ = test_pytest_plugin.run(folder)
    return f"exit {code}" + {1: ", failed", 4: ", usage error"}.get(code, "")


def action(folder: Path, situation: Situation) -> str:
    """The composite action, its step that checks."""
    place = folder.parent / "temp" / "kvint2eval" / "bin"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "kvint2eval").exists():
        (place / "kvint2eval").symlink_to(test_hooks.BIN / "kvint2eval")
    given = {"records": situation.listed} | (
        {"pins": "pins.toml", "require": "bound"} if situation.pins else {}
    )
    given |= {"policy": "policy.toml"} if situation.policy else {}
    code, _ = test_hooks.step(folder, test_hooks.CHECK, **given)
    return f"exit {code}"


def api(folder: Path, situation: Situation) -> str:
    """`adjudicate` of what `read_record_file` gives."""
    named = [one for one in situation.files if not one.endswith(".dsse")] or ["records/good.json"]
    path = folder / (situation.listed if situation.listed.endswith(".json") else named[0])
    try:
        data = read_record_file(str(path))
    except InputError:
        return "`InputError`"
    verdict = adjudicate(
        data,
        pins=read_pins(folder / "pins.toml") if situation.pins else None,
        policy=read_policy(folder / "policy.toml") if situation.policy else None,
        envelope=read_envelope(str(path)),
        require_bound=situation.pins,
    )
    return str(verdict.outcome)


ENTRANCES = {
    "command": command, "hook": hook, "plugin": plugin, "action": action, "report": report, "API": api
}  # fmt: skip


def rows() -> Iterator[list[str]]:
    """Situation and what each entrance does, each in a fresh repository."""
    for situation in SITUATIONS:
        cells = [situation.name]
        for run in ENTRANCES.values():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name).resolve() / "project"
                folder.mkdir()
                build(folder, situation)
                cells.append(run(folder, situation))
                shutil.rmtree(folder)
        yield cells


def table() -> str:
    """The table in Markdown."""
    lines = ["| situation | " + " | ".join(ENTRANCES) + " |", "|---" * (len(ENTRANCES) + 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows())])


def page() -> str:
    """The page with its table made again."""
    text = PAGE.read_text(encoding="utf-8")
    block = f"<!-- begin entrances -->\n{table()}\n<!-- end entrances -->"
    return re.sub(r"<!-- begin entrances -->.*<!-- end entrances -->", lambda _: block, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
