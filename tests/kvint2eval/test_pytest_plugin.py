"""The pytest plugin, run as a project runs it: a pytest of its own in a folder of its own."""

import os
import re
import subprocess
import sys

import pytest
from lxml import etree

from kvint2eval.signing.envelope import build_statement, dump_envelope
from kvint2eval.signing.keys import generate_key, sign_statement, write_key_pair
from tests.helpers import RECORDS, ROOT, TESTDATA, published
from tests.tools.regen.published import PRODUCER

SUPPORTED = published()
UNSUPPORTED = (RECORDS / "unsupported" / "cache-bytes-one-too-high.json").read_bytes()
DELEGATE = (RECORDS / "delegate" / "runtime-not-cuda-numpy.json").read_bytes()


@pytest.fixture
def project(tmp_path):
    """A project with three records, a file of lines and a test."""
    records = tmp_path / "records"
    (records / "deep").mkdir(parents=True)
    (records / "a.json").write_bytes(SUPPORTED)
    (records / "b.json").write_bytes(UNSUPPORTED)
    (records / "deep" / "c.json").write_bytes(DELEGATE)
    (tmp_path / "lines.jsonl").write_bytes(
        b"\n".join(one.replace(b"\n", b" ") for one in (SUPPORTED, b"x", DELEGATE))
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_it():\n    pass\n")
    return tmp_path


def configure(project, *settings):
    lines = ["[tool.pytest.ini_options]", 'filterwarnings = ["error"]', *settings]
    (project / "pyproject.toml").write_text("\n".join(lines) + "\n")


def run(project, *arguments, autoload=False):
    """Exit code, output, and outcome by test id."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-rA", "--color=no", "-p", "no:cacheprovider"]
    if not autoload:  # the other plugins of this environment take most of the time
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command += ["-p", "kvint2eval.pytest_plugin", "-p", "xdist.plugin"]
    done = subprocess.run(
        [*command, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    out = done.stdout + done.stderr
    passed_or_failed = re.findall(r"^(PASSED|FAILED|ERROR) ([^\s]+)", out, re.MULTILINE)
    return done.returncode, out, {name: outcome for outcome, name in passed_or_failed}


EXPECTED = {
    "records/a.json::record": "PASSED",
    "records/b.json::record": "FAILED",
    "lines.jsonl::line-1": "PASSED",
    "lines.jsonl::line-2": "FAILED",
}


@pytest.mark.parametrize(
    ("testpaths", "workers", "autoload"),
    [
        ([], [], True),
        (['testpaths = ["tests"]'], [], False),
        (['testpaths = ["tests", "records"]'], [], False),
        ([], ["-n", "2"], False),
        (['testpaths = ["tests"]'], ["-n", "2"], True),
    ],
)
def test_each_listed_record_is_one_test(project, testpaths, workers, autoload):
    configure(project, *testpaths, 'kvint2eval_records = ["records", "*.jsonl"]')
    code, out, outcomes = run(project, *workers, autoload=autoload)
    assert (code, outcomes) == (1, EXPECTED | {"tests/test_it.py::test_it": "PASSED"})
    assert "2 failed, 3 passed, 2 skipped" in out
    # the finding as a readable failure, no traceback
    assert (
        "unsupported  records/b.json  KVINT2_INVALID_MEASUREMENT\n"
        "    finding  cache-bytes: cache_bytes is not tokens x heads x head dimension x 2 (K and V) x 2 bits / 8.\n"
        "    where    /metrics/cache_bytes, line "
    ) in out
    assert "unsupported  lines.jsonl:2  KVINT2_MALFORMED_RECORD" in out
    assert "Traceback" not in out
    assert out.count("delegate KVINT2_RUNTIME_DELEGATION_REQUIRED: runtime.name is not cuda") >= 1


def test_nothing_is_collected_where_it_is_not_configured(project):
    configure(project)
    assert run(project)[::2] == (0, {"tests/test_it.py::test_it": "PASSED"})
    assert "no tests ran" in run(project, "records")[1]


def test_where_it_is_not_configured_nothing_of_the_adjudicator_is_imported(project):
    (project / "tests" / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    assert [name for name in sys.modules if name.startswith('kvint2eval')] ==\\\n"
        "        ['kvint2eval._version', 'kvint2eval', 'kvint2eval.pytest_plugin']\n"
    )
    configure(project)
    assert run(project)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tests"], {"tests/test_it.py::test_it": "PASSED"}),
        (["records/a.json"], {"records/a.json::record": "PASSED"}),
        (["records"], {"records/a.json::record": "PASSED", "records/b.json::record": "FAILED"}),
        (["lines.jsonl::line-1"], {"lines.jsonl::line-1": "PASSED"}),
        (["-k", "a.json"], {"records/a.json::record": "PASSED"}),
        (["-k", "a.json", "-n", "2"], {"records/a.json::record": "PASSED"}),
    ],
)
def test_what_is_asked_for_is_collected_and_no_more(project, arguments, expected):
    configure(project, 'testpaths = ["tests"]', 'kvint2eval_records = ["records", "lines.jsonl"]')
    assert run(project, *arguments)[2] == expected


def test_an_ini_file_and_another_working_folder(project):
    (project / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\nkvint2eval_records = records/a.json *.jsonl\n"
    )
    code, _, outcomes = run(project / "tests", "-c", "../pytest.ini", "--rootdir", "..")
    assert code == 1
    assert {name.removeprefix("../") for name, outcome in outcomes.items() if outcome == "FAILED"} == {
        "lines.jsonl::line-2"
    }


def test_pins_are_held(project):
    (project / "pins.toml").write_bytes((TESTDATA / "pins" / "met.toml").read_bytes())
    settings = ['kvint2eval_records = ["records/a.json"]', 'kvint2eval_pins = "pins.toml"']
    configure(project, *settings, 'testpaths = ["tests"]')
    assert run(project)[0] == 0
    text = (project / "pins.toml").read_text().replace(PRODUCER, "0" * 64)
    (project / "pins.toml").write_text(text)
    code, out, outcomes = run(project)
    assert (code, outcomes["records/a.json::record"]) == (1, "FAILED")
    assert "KVINT2_PIN_MISMATCH" in out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ['kvint2eval_records = ["recrods"]'],
            "kvint2eval_records: {project}/recrods: No such file or directory",
        ),
        (
            ['kvint2eval_records = ["records/*.jsn"]'],
            'kvint2eval_records: "{project}/records/*.jsn": No such file',
        ),
        (
            ['kvint2eval_records = ["tests"]'],
            "kvint2eval_records: {project}/tests: found no *.json, *.jsonl or *.ndjson below this folder",
        ),
        (
            ['kvint2eval_records = ["records"]', 'kvint2eval_pins = "absent.toml"'],
            "kvint2eval_pins: pins file {project}/absent.toml: No such file or directory",
        ),
    ],
)
def test_a_setting_that_names_nothing_is_a_usage_error(project, settings, message):
    configure(project, *settings)
    code, out, _ = run(project)
    assert code == 4
    assert f"ERROR: {message.format(project=project)}" in out
    assert "Traceback" not in out


def test_an_empty_file_of_lines_is_an_error_and_no_success(project):
    (project / "lines.jsonl").write_bytes(b"")
    configure(project, 'kvint2eval_records = ["lines.jsonl"]')
    code, out, _ = run(project)
    assert code == 2
    assert f"{project}/lines.jsonl: found no record, allowed: one a line" in out


def test_a_record_that_is_gone_at_collection_is_an_error(project):
    (project / "conftest.py").write_text(
        "from pathlib import Path\n\ndef pytest_collectstart(collector):\n"
        "    if type(collector).__name__ == 'RecordFile':\n        Path('records/a.json').unlink(missing_ok=True)\n"
    )
    configure(project, 'kvint2eval_records = ["records/a.json"]', 'testpaths = ["tests"]')
    code, out, _ = run(project)
    assert code == 2
    assert f"{project}/records/a.json: No such file or directory" in out


def test_a_fault_of_the_tool_is_an_ordinary_failure(project):
    (project / "conftest.py").write_text(
        "import kvint2eval.adjudication\n\ndef fail(data, **held):\n    raise RuntimeError('on fire')\n\n"
        "kvint2eval.adjudication.adjudicate = fail\n"
    )
    configure(project, 'kvint2eval_records = ["records/a.json"]')
    code, out, outcomes = run(project)
    assert (code, outcomes["records/a.json::record"]) == (1, "FAILED")
    assert "RuntimeError: on fire" in out


def test_a_policy_and_a_root_are_honoured(project):
    """Unsigned, the record fails; signed by a trusted key, it passes. A line of JSON Lines has no envelope."""
    key = generate_key("ed25519")
    write_key_pair(key, project / "alice")
    lines = ['format = "kvint2eval-policy/v1"', "expires = 2999-01-01T00:00:00Z", "threshold = 1"]
    lines += ["[[key]]", 'path = "alice.pub"']
    (project / "policy.toml").write_text("\n".join(lines) + "\n")
    settings = ['kvint2eval_records = ["records/a.json", "lines.jsonl"]', 'kvint2eval_policy = "policy.toml"']
    configure(project, *settings, 'kvint2eval_root = "."')
    code, out, outcomes = run(project)
    assert (code, outcomes["records/a.json::record"]) == (1, "FAILED")
    assert "envelope-missing" in out
    statement = build_statement("a.json", SUPPORTED, "kvint2eval/v1")
    (project / "records" / "a.json.dsse").write_bytes(dump_envelope(sign_statement(statement, key)))
    _, _, outcomes = run(project)
    assert (outcomes["records/a.json::record"], outcomes["lines.jsonl::line-1"]) == ("PASSED", "FAILED")
    configure(project, *settings, 'kvint2eval_root = "absent"')
    code, out, _ = run(project)
    assert code == 4
    assert "kvint2eval_root: root " in out


@pytest.mark.parametrize("place", ["build", "dist", ".x", "venv", "node_modules"])
@pytest.mark.parametrize("arguments", [[], ["."], ["-n", "2"]])
def test_records_in_folders_that_pytest_leaves_out_are_judged(project, place, arguments):
    (project / place).mkdir()
    (project / place / "bad.json").write_bytes(UNSUPPORTED)
    configure(project, f'kvint2eval_records = ["records/a.json", "{place}"]')
    code, _, outcomes = run(project, *arguments)
    assert (code, outcomes[f"{place}/bad.json::record"], outcomes["records/a.json::record"]) == (
        1,
        "FAILED",
        "PASSED",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["kvint2eval_records = []"], "kvint2eval_records: found an empty setting"),
        (['kvint2eval_records = [" "]'], "kvint2eval_records: found an empty setting"),
        (['kvint2eval_pins = "pins.toml"'], "kvint2eval_pins: found no kvint2eval_records beside it"),
        (['kvint2eval_policy = "p.toml"'], "kvint2eval_policy: found no kvint2eval_records beside it"),
        (
            ['kvint2eval_records = ["records"]', 'kvint2eval_require = "all"'],
            'kvint2eval_require: found "all"',
        ),
    ],
)
def test_a_setting_that_would_check_nothing_is_a_usage_error(project, settings, message):
    configure(project, *settings)
    code, out, _ = run(project)
    assert (code, message in out) == (4, True)


def test_what_cannot_be_judged_fails_by_name_and_the_rest_goes_on(project):
    (project / "records" / "self.json").symlink_to("self.json")
    (project / "records" / "up").symlink_to("..")
    (project / "records" / "x.json.gz").write_bytes(b"")
    (project / "records" / "x.json.bak").write_bytes(b"")
    (project / "records" / "a.audit.json").write_text('{"findings": []}')
    configure(project, 'kvint2eval_records = ["records"]')
    code, out, outcomes = run(project)
    assert code == 1
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {
        f"records/{one}"
        for one in ("b.json::record", "self.json::refused", "up::refused", "x.json.gz::refused")
    }
    assert outcomes["records/a.json::record"] == "PASSED"
    assert "a.audit.json: an audit by its name" in out
    assert "x.json.bak" in out


def test_delegated_records_are_named_one_line_each_and_junit_has_file_and_line(project):
    (project / "records" / "deep" / "d.json").write_bytes(DELEGATE)
    configure(project, 'kvint2eval_records = ["records/deep", "lines.jsonl"]')
    _, out, _ = run(project, "--junitxml=out.xml")
    for name in ("records/deep/c.json", "records/deep/d.json", "lines.jsonl:3"):
        assert out.count(f"{name}: delegate KVINT2_RUNTIME_DELEGATION_REQUIRED") == 1
    cases = etree.parse(project / "out.xml").iter("testcase")
    seen = {tuple(one.get("value") for one in case.iter("property")) for case in cases}
    assert {("records/deep/c.json", "1"), ("lines.jsonl", "1"), ("lines.jsonl", "3")} <= seen


def test_ids_of_records_outside_the_root_are_distinct(project):
    (project / "inner").mkdir()
    (project / "inner" / "pytest.ini").write_text(
        "[pytest]\nkvint2eval_records = ../records/a.json ../records/deep/c.json\n"
    )
    _, out, outcomes = run(project / "inner", "-v")
    assert outcomes == {"../records/a.json::record": "PASSED"}
    assert "../records/deep/c.json::record SKIPPED" in out


def test_pins_that_no_record_meets_are_said(project):
    text = (TESTDATA / "pins" / "met.toml").read_text()
    more = '\n[[artifact]]\nrole = "model"\nid = "renamed"\nsha256 = "' + "0" * 64 + '"\nunbindable = "x"\n'
    (project / "pins.toml").write_text(text + more)
    settings = ['kvint2eval_records = ["records/a.json"]', 'kvint2eval_pins = "pins.toml"']
    configure(project, *settings)
    code, out, _ = run(project)
    assert (code, "unmet pins, which no record was compared with: model renamed" in out) == (0, True)
    configure(project, *settings, 'kvint2eval_require = "bound"')
    code, out, outcomes = run(project)
    assert (code, outcomes["records/a.json::record"], outcomes["pins.toml::met"]) == (1, "FAILED", "FAILED")
    assert "digest-not-bound" in out


@pytest.mark.slow
@pytest.mark.parametrize("version", ["7.4.0", "6.2.5"])
def test_the_oldest_pytest_works_and_an_older_one_is_left_in_peace(project, tmp_path_factory, version):
    """Needs the package index."""
    place = tmp_path_factory.mktemp("venv") / "v"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", f"pytest=={version}", str(ROOT)]
    subprocess.run(install, check=True, capture_output=True)
    configure(project)
    done = subprocess.run(
        [python, "-m", "pytest", "-q"], cwd=project, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    (project / "build").mkdir()
    (project / "build" / "bad.json").write_bytes(UNSUPPORTED)
    configure(project, 'kvint2eval_records = ["records", "build"]')
    done = subprocess.run(
        [python, "-m", "pytest", "-q"], cwd=project, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    if version == "6.2.5":
        assert (done.returncode, "found pytest 6.2.5, allowed: 7.4 or later" in said) == (4, True), said
    else:
        assert (done.returncode, "2 failed, 2 passed, 1 skipped" in said) == (1, True), said
