"""The Python interface: names, laziness, types."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import kvint2eval
from tests.helpers import ROOT


def test_each_public_name_is_there_and_listed():
    assert dir(kvint2eval) == kvint2eval.__all__ == sorted(kvint2eval.__all__)
    for name in kvint2eval.__all__:
        assert getattr(kvint2eval, name) is not None
    with pytest.raises(AttributeError, match="module 'kvint2eval' has no attribute 'nothing'"):
        kvint2eval.nothing  # noqa: B018


def test_examples_of_the_package_run():
    assert doctest.testmod(kvint2eval).failed == 0
    assert doctest.testmod(kvint2eval).attempted > 0


@pytest.mark.parametrize(
    "module", ["pydantic", "jsonschema", "numpy", "tomllib", "producer", "markdown_it", "tempfile", "pytest"]
)
def test_adjudicating_a_file_does_not_import(module):
    script = (
        "import sys\nfrom kvint2eval.cli import main\n"
        "main(['adjudicate', 'testdata/records/v1/supported/l4-published.json'])\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    # Measuring coverage imports modules of its own.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, f"{module} was imported"


def test_modules_declare_what_they_export():
    for name in (
        "adjudication",
        "codes",
        "contract.v1.canonical",
        "errors",
        "files.digest",
        "files.inputs",
        "pins.pins",
        "strict_json.parse",
        "verdict",
    ):
        module = importlib.import_module(f"kvint2eval.{name}")
        assert all(hasattr(module, exported) for exported in module.__all__)


def test_no_module_has_the_name_of_a_public_function():
    """Importing a submodule binds its name in the package, over a function of that name."""
    modules = {module.name for module in pkgutil.iter_modules(kvint2eval.__path__)}
    assert not modules & set(kvint2eval.__all__)
