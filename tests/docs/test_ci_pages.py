"""The examples of the pages on CI, the gate and Python are what they say they are."""

import doctest
import json
import re
import tomllib

import jsonschema
import pytest
import yaml

import kvint2eval
from kvint2eval.cli import build_parser
from tests.helpers import ROOT


def page(name):
    return (ROOT / "docs/guides" / name).read_text(encoding="utf-8")


def blocks(name, kind):
    return re.findall(rf"```{kind}\n(.*?)```", page(name), re.DOTALL)


def test_examples_of_the_python_page_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    flags = doctest.IGNORE_EXCEPTION_DETAIL
    failed, attempted = doctest.testfile(
        str(ROOT / "docs/guides/python-api.md"), module_relative=False, optionflags=flags
    )
    assert failed == 0
    assert attempted > 15


def test_the_python_page_lists_the_stable_names():
    listed = re.findall(r"^\| `(\w+)` \|", page("python-api.md"), re.MULTILINE)
    assert sorted(listed) == kvint2eval.__all__


def test_the_pins_of_the_gate_page_are_a_pins_file():
    schema = json.loads((ROOT / "kvint2eval" / "pins" / "pins.schema.json").read_text())
    (example,) = blocks("gate.md", "toml")
    tables = tomllib.loads(re.sub(r'"[0-9a-f]{4}…[0-9a-f]{4}"', f'"{"0" * 64}"', example))
    jsonschema.Draft202012Validator(schema).validate(tables)
    assert {"artifact", "place", "figure", "pages"} < set(tables)


def test_the_settings_of_the_ci_page_are_those_of_the_tools():
    (settings,) = blocks("ci.md", "toml")
    assert set(tomllib.loads(settings)["tool"]["pytest"]["ini_options"]) == {
        "kvint2eval_records",
        "kvint2eval_pins",
        "kvint2eval_root",
        "kvint2eval_policy",
        "kvint2eval_require",
    }
    hooks, action = map(yaml.safe_load, blocks("ci.md", "yaml"))
    shown = {hook["id"]: hook for repository in hooks["repos"] for hook in repository["hooks"]}
    shipped = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert shown.keys() == shipped.keys()
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert set(action[1]["with"]) < set(inputs)


@pytest.mark.parametrize("name", ["ci.md", "gate.md", "report.md"])
def test_commands_of_the_pages_are_accepted(name):
    """Each command line is one that the parser takes; what it does is tested elsewhere."""
    lines = re.findall(r"^\$ kvint2eval (.*?)(?: +#.*)?$", page(name), re.MULTILINE)
    assert lines
    for line in lines:
        assert build_parser().parse_args(line.split()).run is not None
