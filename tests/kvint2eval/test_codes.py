"""A code, the rule that gives it and the page that lists it agree on the step, in both contracts."""

import ast
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kvint2eval import codes
from kvint2eval.codes import FINDINGS, Code, Reason
from kvint2eval.contract.v1.rules import RULES_V1
from kvint2eval.contract.v2.rules import RULES_V2
from kvint2eval.explain import explain
from tests.helpers import ROOT

_RULES = [("v1", rule) for rule in RULES_V1] + [("v2", rule) for rule in RULES_V2]
_IN_BINDINGS = {"v1": "contract/v1/bind.py", "v2": "contract/v2/bind.py"}


def _named(source: str, names: dict[str, object]) -> set[Code]:
    """Codes that a function names, itself or in the functions of its module that it calls."""
    used = {node.id for node in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(node, ast.Name)}
    found = {value for name in used if isinstance(value := names.get(name), Code)}
    for name in used:
        inner = names.get(name)
        if inspect.isfunction(inner) and name.startswith("_") and inner.__globals__ is names:
            found |= _named(inspect.getsource(inner), names)
    return found


@pytest.mark.parametrize(("contract", "rule"), _RULES, ids=lambda one: getattr(one, "__name__", one))
def test_step_of_a_rule_is_that_of_its_codes(contract, rule):
    step = re.match(r"Step (\d+): ", inspect.getdoc(rule) or "")
    assert step is not None, "a rule's docstring begins with its step"
    given = _named(inspect.getsource(rule), rule.__globals__)
    if rule.__name__ in ("check_pins", "check_bindings"):
        if contract == "v1" and "bind_v1" not in inspect.getsource(rule):
            return  # the pins of a record, in step 4
        if not given:
            names = ("pin-mismatch", "pinned-file-mismatch", "pinned-file-missing")
            given = {FINDINGS[name] for name in names}
            given |= {
                code for code in FINDINGS.values() if contract in code.steps and "artifact-file" in code
            }
    assert given
    assert {code.steps[contract] for code in given} == {int(step[1])}


@pytest.mark.parametrize("contract", ["v1", "v2"])
def test_every_code_with_a_step_is_given_by_a_rule_or_a_reader(contract):
    rules = [rule for of, rule in _RULES if of == contract]
    given = set().union(*(_named(inspect.getsource(rule), rule.__globals__) for rule in rules))
    stated = {code for code in FINDINGS.values() if code.steps.get(contract, 0) > 1}
    by_bindings = {code for code in stated if code.reason in (Reason.PIN_MISMATCH, Reason.ARTIFACT_MISMATCH)}
    assert stated - by_bindings == given


def test_page_and_explain_name_the_step_of_each_contract():
    page = (ROOT / "docs/reference/codes.md").read_text()
    for code, v1, v2 in (
        ("witness-mismatch", 9, 16),
        ("pin-mismatch", 10, 16),
        ("pinned-file-missing", 10, 16),
        ("modeled-evidence", 5, 5),
    ):
        assert f"| `{code}` | v1: {v1}, v2: {v2} |" in page
        assert f"step {v1} of v1, step {v2} of v2:" in (explain(code) or "")
    assert "step 4 of v2:" in (explain("workload-origin") or "")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]*?) \|", page, re.MULTILINE))
    for code in FINDINGS.values():
        assert rows[code] == (
            ", ".join(f"{contract}: {step}" for contract, step in code.steps.items()) or "policy"
        )


def test_only_codes_of_a_policy_have_no_step():
    assert {code.reason for code in FINDINGS.values() if not code.steps} == {Reason.UNTRUSTED}


def test_code_survives_a_process_boundary():
    code = FINDINGS["witness-mismatch"]
    again = pickle.loads(pickle.dumps(code))  # noqa: S301  # made in the line itself
    assert (again, again.reason, again.steps, again.mend) == (code, code.reason, code.steps, code.mend)


def test_two_codes_of_one_name_are_found(monkeypatch):
    from kvint2eval.contract import shared  # noqa: PLC0415

    twin = Code("wrong-type", Reason.PIN_MISMATCH, "m", "m", "e")
    monkeypatch.setattr(shared, "TWIN", twin, raising=False)
    codes._collected.cache_clear()
    try:
        with pytest.raises(AssertionError, match="two codes are named wrong-type"):
            codes._collected()
    finally:
        codes._collected.cache_clear()
    with pytest.raises(AttributeError, match="no attribute 'FINDING'"):
        codes.FINDING  # noqa: B018


def test_judging_a_v1_record_loads_no_rule_of_v2():
    record = ROOT / "testdata/records/v1/unsupported/witness-mismatch-driver.json"
    program = (
        "import sys; from pathlib import Path; from kvint2eval import adjudicate;"
        "verdict = adjudicate(Path(sys.argv[1]).read_bytes()); print(verdict.finding.mend);"
        "print([name for name in sys.modules if name.startswith('kvint2eval.contract.v2.')])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, str(record)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(ROOT),
    ).stdout
    assert out.splitlines() == [FINDINGS["witness-mismatch"].mend, "[]"]
