"""Words of both packages: headlines of modules as noun phrases, and no vocabulary that only this project knows."""

import ast
import re

import pytest

from tests.helpers import ROOT

MODULES = sorted(path for name in ("kvint2eval", "producer") for path in (ROOT / name).rglob("*.py"))
# A clause in place of a noun ("What X is"), or a verb ("Runs X").
CLAUSE = re.compile(
    r"(What|How|Why|Where|Which|Who|Whether|Is|Are|Can|Runs|Makes|Computes|Reads|Writes|Compares)\b"
)
PRIVATE = re.compile(
    r"\bmend(s|ed|ing)?\b|\bheld against\b|\bh(a|u)ngs? on\b|\b(made|computed) again\b|\bnothing (but )?worse\b"
    r"|\bnobody\b|\bnot at all\b",
    re.IGNORECASE,
)


def texts(path):
    """Yield every string of a module with its line: docstrings, messages and help; names of members are no texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_is_headed_by_a_noun(path):
    headline = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
    assert headline.endswith(".")
    assert not CLAUSE.match(headline), headline


def test_no_text_needs_this_projects_vocabulary():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {found[0]}"
        for path in MODULES
        for line, text in texts(path)
        if (found := PRIVATE.search(text)) and not text.startswith(EXCEPT)
    ]
    assert found == []


# The filler of a text for a model; and the order of a table's columns, which has a field of that name.
EXCEPT = (
    "Name of a finding, with what is said of it.",
    "The old bridge had been mended",
    "Somewhere a clock",
    "By code: reason, step, meaning, mend",
)
