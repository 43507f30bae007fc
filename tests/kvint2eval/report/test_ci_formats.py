"""SARIF, JUnit XML and GitHub annotations: valid by the published schemas, and safe whatever a record holds."""

import json
import os
import re
from functools import cache

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from markdown_it import MarkdownIt

from kvint2eval import Finding, Outcome, Reason, Verdict, batch
from kvint2eval.cli import main
from kvint2eval.codes import FINDINGS
from kvint2eval.files import inputs
from kvint2eval.gate.check import GateFinding
from kvint2eval.gate.codes import GATE_FINDINGS
from kvint2eval.report import Source, Tally, safe
from kvint2eval.report.github import MAX_SUMMARY_BYTES, SUMMARY_MARK, Github, summary
from kvint2eval.report.issue import of_gate
from kvint2eval.report.junit import Junit
from kvint2eval.report.sarif import Sarif
from tests.helpers import RECORDS, SHARED, manifest, published
from tests.kvint2eval.gate import site

HOSTILE = (
    "a%0A\r\n::error file=x,line=1::forged ]]> <b>&amp;\u2028\u2029\x00\x1b[31m\ud800 "
    "[l](http://x) {0} | `c` ##[error]"
)
ANNOTATION = re.compile(
    r"::(error|warning) (file=[^:,\n]+,(line=[0-9]+,(col=[0-9]+,)?)?)?title=[^:,\n]+::[^\r\n]+"
)


def run(format_name, paths, capfd, *options):
    code = main(["adjudicate", *map(str, paths), "--format", format_name, *options])
    return code, capfd.readouterr().out


@cache
def sarif_validator():
    schema = json.loads((SHARED / "corpora/schemas/sarif-schema-2.1.0.json").read_text())
    return jsonschema.Draft7Validator(schema)


@cache
def junit_schema():
    return etree.XMLSchema(etree.parse(SHARED / "corpora/schemas/junit.xsd"))


def verdict_of(text, outcome=Outcome.UNSUPPORTED, code="wrong-type"):
    reason = Reason.MODELED_NOT_OBSERVED if outcome is Outcome.DELEGATE else Reason.MALFORMED_RECORD
    return Verdict(outcome, reason, Finding(FINDINGS[code], f"/{text}", text, text, 3, 4))


@pytest.mark.shared
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_sarif_of_all_records_is_valid_and_says_what_the_manifest_says(capfd, jobs):
    code, out = run("sarif", [RECORDS], capfd, "--jobs", jobs)
    assert code == 0
    document = json.loads(out)
    sarif_validator().validate(document)
    (only,) = document["runs"]
    rules = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert rules == [*FINDINGS, *GATE_FINDINGS]
    assert only["invocations"] == [{"executionSuccessful": True}]
    seen = {}
    for result in only["results"]:
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        seen[uri.removeprefix("testdata/records/v1/")] = (result["ruleId"], result["kind"], result["level"])
    expected = {
        row["path"]: (
            row["finding"],
            *(("open", "none") if row["outcome"] == "delegate" else ("fail", "error")),
        )
        for row in manifest()
        if row["finding"] and row["pins"] is None
    }
    assert seen == expected


@pytest.mark.shared
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_junit_of_all_records_is_valid_and_counts(capfd, jobs, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    code, out = run("junit", [RECORDS, "absent.json"], capfd, "--jobs", jobs)
    assert code == 2
    tree = etree.fromstring(out.encode())
    junit_schema().assertValid(tree)
    (suite,) = tree
    tags = [child.tag for case in suite.iter("testcase") for child in case]
    rows = [row for row in manifest() if row["pins"] is None or row["outcome"] == "supported"]
    by_pins = len(manifest()) - len(rows)  # unsupported only with their pins
    expected = {
        "tests": len(manifest()) + 1,
        "failures": sum(row["outcome"] == "unsupported" for row in rows),
        "skipped": sum(row["outcome"] == "delegate" for row in rows),
        "errors": 1,
    }
    assert {name: int(suite.get(name)) for name in expected} == expected
    assert (tags.count("failure"), tags.count("skipped"), tags.count("error")) == (
        expected["failures"],
        expected["skipped"],
        1,
    )
    assert by_pins == 3
    assert suite.get("timestamp") == "1970-01-02T00:00:00"
    assert all("delegate KVINT2_" in one.get("message") for one in suite.iter("skipped"))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_github_annotates_each_record_that_is_not_supported(capfd, jobs):
    code, out = run("github", [RECORDS], capfd, "--jobs", jobs)
    assert code == 1
    lines = out.splitlines()
    assert all(ANNOTATION.fullmatch(line) for line in lines)
    rows = [row for row in manifest() if row["pins"] is None]
    for command, outcome in (("error", "unsupported"), ("warning", "delegate")):
        found = sorted(
            re.search(r"file=([^,]+),", line)[1].removeprefix("testdata/records/v1/")
            for line in lines
            if line.startswith(f"::{command} ")
        )
        assert found == sorted(row["path"] for row in rows if row["outcome"] == outcome)


@pytest.mark.parametrize("format_name", ["sarif", "junit", "github"])
def test_all_supported_gives_no_finding_and_jobs_change_nothing(capfd, format_name, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    code, out = run(format_name, [RECORDS / "supported"], capfd)
    assert code == 0
    assert run(format_name, [RECORDS / "supported"], capfd, "--jobs", "3") == (0, out)
    assert out.count("testcase") == (6 if format_name == "junit" else 0)
    assert format_name != "github" or out == ""
    assert format_name != "sarif" or json.loads(out)["runs"][0]["results"] == []


@pytest.mark.parametrize("format_name", ["sarif", "junit", "github"])
def test_blocks_of_several_workers_are_put_together_in_order(capfd, format_name, monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    for module in (batch, inputs):
        monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    supported = json.dumps(json.loads(published())).encode()
    lines = tmp_path / "a.jsonl"
    # Blocks without a finding stand between those with one, and at both ends.
    lines.write_bytes(b"\n".join([supported, *[b"{}", supported, b"x", b""] * 40, supported]))
    paths = [lines, RECORDS, RECORDS / "supported", lines]
    several = run(format_name, paths, capfd)
    assert several[1].count("empty-input") > 80
    for jobs in ("2", "5"):
        assert run(format_name, paths, capfd, "--jobs", jobs) == several


@pytest.mark.parametrize(("format_name", "code"), [("sarif", 2), ("junit", 2), ("github", 2)])
def test_what_could_not_be_judged_is_in_the_report(capfd, format_name, code, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    supported = RECORDS / "supported" / "l4-published.json"
    found, out = run(format_name, [supported, "absent.json", tmp_path / "empty.jsonl"], capfd)
    assert found == code
    if format_name == "sarif":
        (invocation,) = json.loads(out)["runs"][0]["invocations"]
        assert invocation["executionSuccessful"] is False
        (notification,) = invocation["toolExecutionNotifications"]
        assert notification["message"]["text"] == "2 inputs could not be judged; standard error says why."
    elif format_name == "junit":
        errors = [
            case for case in etree.fromstring(out.encode()).iter("testcase") if case.find("error") is not None
        ]
        assert [case.get("name") for case in errors] == [
            "absent.json: No such file or directory",
            f"{tmp_path}/empty.jsonl: found no record, allowed: one a line",
        ]
    else:
        assert out.splitlines() == [
            "::error title=kvint2eval could not judge::absent.json: No such file or directory",
            f"::error title=kvint2eval could not judge::{tmp_path}/empty.jsonl: found no record, allowed: one a line",
        ]


texts = (
    st.text(st.characters(), max_size=30)
    | st.just(HOSTILE)
    | st.sampled_from(["]]>", "%0A", "::", "\u2028", "{1}", "](x)"])
)
# What the system can give: any bytes, decoded as Python decodes names.
paths = st.binary(min_size=1).map(os.fsdecode) | st.just(os.fsdecode(HOSTILE.encode("utf-8", "replace")))


@given(texts, texts, st.sampled_from([Outcome.UNSUPPORTED, Outcome.DELEGATE]))
def test_no_text_of_a_record_or_path_forges_an_annotation(text, path, outcome):
    report = Github(with_summary=True)
    out = report.one(Source(path or "x"), verdict_of(text, outcome), is_first=True) + report.fault(text)
    annotation, row, fault = out.decode().split("\n")[:-1]
    assert ANNOTATION.fullmatch(annotation) or path == "-"
    assert row.startswith(SUMMARY_MARK.decode() + "| ")
    assert fault.startswith("::error title=kvint2eval could not judge::")
    assert (annotation + row[1:] + fault).isprintable()
    # The runner's own reading gives the texts back.
    data = annotation.partition("::")[2].partition("::")[2]
    read = data.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert read.split("\n")[2] == f"found    {safe(text)}"


@pytest.mark.shared
@given(texts, texts)
def test_no_text_of_a_record_or_path_breaks_the_xml(text, path):
    report = Junit("suite", 0)
    body = report.one(Source(path), verdict_of(text), is_first=True)
    body += report.one(Source(path, 7), verdict_of(text, Outcome.DELEGATE), is_first=False) + report.fault(
        text
    )
    tree = etree.fromstring(report.head(Tally(0, 1, 1, 1)) + body + report.end(Tally()))
    junit_schema().assertValid(tree)
    failure, skipped, error = (case[0] for case in tree.iter("testcase"))
    assert failure.text.split("\n")[3] == f"found    {safe(text)}"
    assert (failure.tag, skipped.tag, error.tag) == ("failure", "skipped", "error")
    assert error.get("message") == safe(text)


@pytest.mark.shared
@given(texts, paths)
def test_no_text_of_a_record_or_path_breaks_the_sarif(text, path):
    report = Sarif()
    out = report.start() + report.one(Source(path), verdict_of(text), is_first=True) + report.end(Tally())
    assert out.isascii()
    document = json.loads(out)
    (result,) = document["runs"][0]["results"]
    # The rules are the same for every record, and take most of the time.
    document["runs"][0]["tool"]["driver"]["rules"].clear()
    sarif_validator().validate(document)
    message = result["message"]["text"]
    assert message.isprintable()
    assert "](" not in message
    assert not re.search(r"(?<!\{)(?:\{\{)*\{[0-9]", message)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].isascii()


@given(texts)
def test_the_step_summary_shows_text_as_text(text):
    report = Github(with_summary=True)
    _, row, _ = report.one(Source("p"), verdict_of(text), is_first=True).split(b"\n")
    out = summary("t", "s", [row.removeprefix(SUMMARY_MARK) + b"\n"])
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(out.decode())
    cells = [token for token in tokens if token.type == "inline"][2:]  # after the heading and the sentence
    children = [child for cell in cells for child in cell.children]
    assert {child.type for child in children} <= {"text", "text_special"}
    assert len(cells) == 12
    assert "".join(child.content for child in cells[9].children) == safe(text).strip()


def test_the_step_summary_stays_below_the_limit_and_counts_the_rest():
    rows = [b"| x |" + b"y" * 1000 + b"\n"] * 2000
    out = summary("t", "s", iter(rows))
    shown = out.count(b"| x |")
    assert len(out) < MAX_SUMMARY_BYTES + 1000 < 1 << 20
    assert f"{2000 - shown} more findings are in the log." in out.decode()


def test_github_appends_to_the_step_summary(capfd, monkeypatch, tmp_path):
    target = tmp_path / "summary.md"
    target.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    code, out = run("github", [RECORDS / "delegate", RECORDS / "supported"], capfd)
    assert code == 3
    assert all(ANNOTATION.fullmatch(line) for line in out.splitlines())
    text = target.read_text()
    assert text.startswith("before\n## kvint2eval adjudicate\n\n10 records\\: 6 supported")
    assert text.count("\n| ") == 1 + len(out.splitlines())
    assert run("text", [RECORDS / "supported"], capfd)[0] == 0
    assert target.read_text() == text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "absent" / "x"))
    assert main(["adjudicate", str(RECORDS / "supported"), "--format", "github"]) == 2
    assert "step summary" in capfd.readouterr().err


def test_standard_input_has_no_file_to_annotate():
    out = Github().one(Source("-", 2), verdict_of("x"), is_first=True).decode()
    assert out.startswith("::error title=unsupported KVINT2_MALFORMED_RECORD%3A wrong-type::")


@pytest.mark.shared
@pytest.mark.parametrize("format_name", ["sarif", "junit", "github"])
def test_the_gate_speaks_the_same_formats(tmp_path, monkeypatch, capfd, format_name):
    site.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "docs" / "run.md"
    page.write_text(page.read_text().replace("51.571284", "51.6").replace("\n7 was", "\n9 was"))
    target = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    code = main(["gate", "--format", format_name])
    out, err = capfd.readouterr()
    assert code == (0 if format_name == "sarif" else 1)
    assert err == "kvint2eval gate: 16 bindings hold, 2 do not\n"
    if format_name == "sarif":
        sarif_validator().validate(json.loads(out))
        places = [one["locations"][0]["physicalLocation"] for one in json.loads(out)["runs"][0]["results"]]
        assert [(one["artifactLocation"]["uri"], one["region"]) for one in places] == [
            ("docs/run.md", {"startLine": 13}),
            ("docs/run.md", {"startLine": 17}),
        ]
    elif format_name == "junit":
        tree = etree.fromstring(out.encode())
        junit_schema().assertValid(tree)
        assert [tree[0].get(name) for name in ("tests", "failures", "errors")] == ["18", "2", "0"]
    else:
        assert [line.partition("::docs")[0].partition("title")[0] for line in out.splitlines()] == [
            "::error file=docs/run.md,line=13,",
            "::error file=docs/run.md,line=17,",
        ]
        assert "16 bindings hold\\, 2 do not" in target.read_text()
        assert target.read_text().count("docs\\/run\\.md\\:1") == 2


@given(texts)
def test_no_text_of_a_page_forges_an_annotation(text):
    finding = GateFinding("figure-differs", text or "x", 1, text, text, text)
    (line,) = Github().checked("", [of_gate(finding)]).decode().splitlines()
    assert ANNOTATION.fullmatch(line)


def test_output_file_of_a_format_is_whole(tmp_path, capfd):
    target = tmp_path / "report.xml"
    assert (
        main(["adjudicate", str(RECORDS), "--format", "junit", "--output", str(target), "--jobs", "2"]) == 1
    )
    assert capfd.readouterr().out == ""
    assert etree.fromstring(target.read_bytes()).tag == "testsuites"
    assert [path.name for path in tmp_path.iterdir()] == ["report.xml"]


@pytest.mark.parametrize("command", [["adjudicate", "absent.json"], ["gate", "--pins", "absent.toml"]])
@pytest.mark.parametrize("format_name", ["sarif", "junit", "github"])
def test_a_run_without_any_input_still_gives_a_report_that_says_so(capfd, command, format_name):
    assert main([*command, "--format", format_name]) == 2
    out, err = capfd.readouterr()
    assert f"{command[-1]}: No such file or directory" in err
    if format_name == "sarif":
        assert json.loads(out)["runs"][0]["invocations"][0]["executionSuccessful"] is False
    elif format_name == "junit":
        suite = etree.fromstring(out.encode())[0]
        assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
        assert command[-1] in suite.find("testcase/error").get("message")
    else:
        assert out.startswith("::error title=kvint2eval could not judge::")
        assert command[-1] in out
