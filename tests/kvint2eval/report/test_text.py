"""Reports: escaping, and the layout of the machine formats."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvint2eval import adjudicate, read_pins
from kvint2eval.report import Source, Tally, safe
from kvint2eval.report.escape import ascii_json
from kvint2eval.report.json_lines import JsonDocument, JsonLines
from kvint2eval.report.text import Text
from tests.helpers import RECORDS, TESTDATA, manifest, published

HOSTILE = (
    "a\n::error::forged %0A\r\x1b[31m\x9b2J\u2028\u2029\u202e##[error]x##vso[task]y\x00\x7f\ud800\U000e0001"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, ä and \U0001d11e", "plain text, ä and \U0001d11e"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31m\x9b", "\\x1b[31m\\x9b"),
        ("\u2028\u202e\x00\x7f", "\\u2028\\u202e\\x00\\x7f"),
        ("##[error] ##vso[x] ## fine", "#\\x23[error] #\\x23vso[x] ## fine"),
        ("\ud800", "\\ud800"),
    ],
)
def test_safe_escapes_what_a_terminal_or_a_log_would_obey(text, expected):
    assert safe(text) == expected


@given(st.text(st.characters()))
def test_safe_text_stays_on_one_line_and_is_printable(text):
    assert safe(text).isprintable()
    assert "##[" not in safe(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_ascii_json_keeps_the_value(text):
    line = json.dumps(text, ensure_ascii=False).encode()
    escaped = ascii_json(line)
    assert escaped.isascii()
    assert b"\x7f" not in escaped
    assert json.loads(escaped) == text


def hostile_records():
    record = json.loads(published())
    for part, member in [("recipe", "method"), ("hardware", "os"), ("artifact", "version")]:
        changed = json.loads(published())
        changed[part][member] = HOSTILE[:-2]  # without the lone surrogate, which is no JSON text
        yield json.dumps(changed).encode()
    yield json.dumps({**record, HOSTILE[:-2]: 1}).encode()
    yield json.dumps({**record, HOSTILE: 1}).encode()
    yield b'{"a": 1} ' + HOSTILE[:-2].encode()


@pytest.mark.parametrize("report", [Text(), Text(colour=True), JsonLines(), JsonDocument()])
def test_no_format_lets_a_record_forge_a_line(report):
    for data in hostile_records():
        verdict = adjudicate(data)
        out = report.one(Source(HOSTILE, 3), verdict, is_first=True).decode()
        expected = 1 if isinstance(report, JsonLines) else 2 if isinstance(report, JsonDocument) else 6
        assert len(out.strip("\n").splitlines()) == expected - isinstance(report, JsonDocument)
        assert not any(line.lstrip().startswith("::") for line in out.splitlines())
        assert "##[" not in out or isinstance(report, JsonLines | JsonDocument)
        assert all(character.isprintable() or character in "\n\x1b" for character in out)


def test_json_line_of_a_supported_record_echoes_it_whole():
    verdict = adjudicate(published(), pins=read_pins(TESTDATA / "pins" / "met.toml"))
    line = json.loads(JsonLines().one(Source("a.json"), verdict, is_first=True))
    record = json.loads(published())
    assert line["record"] == {name: record[name] for name in record if name != "witness_sha256"}
    assert line["witness_sha256"] == record["witness_sha256"]
    assert [(one["role"], one["level"]) for one in line["bindings"]] == [
        ("artifact", "declared"),
        ("recipe_artifact", "declared"),
        ("model", "declared"),
        ("runtime", "declared"),
    ]
    assert (line["input"], line["line"], line["finding"]) == ("a.json", None, None)


def test_json_lines_say_what_the_manifest_says():
    for row in manifest():
        verdict = adjudicate((RECORDS / row["path"]).read_bytes())
        line = json.loads(JsonLines().one(Source(row["path"], 7), verdict, is_first=False))
        if row["pins"] is None:
            assert (line["outcome"], line["reason"]) == (row["outcome"], row["reason"])
            assert (line["finding"] or {}).get("code") == row["finding"]
        assert (line["record"] is None or "metrics" in line["record"]) == (
            line["outcome"] == "supported"
        ) or (line["record"] is None)
        if line["finding"]:
            assert line["finding"]["line"] == 7


def test_text_says_what_a_supported_record_rests_on():
    pins = read_pins(TESTDATA / "pins" / "met.toml")
    with_pins = Text().one(Source("a.json"), adjudicate(published(), pins=pins), is_first=True).decode()
    assert with_pins == (
        "supported    a.json  KVINT2_SUPPORTED  witness recomputed; artifact declared, recipe_artifact declared, "
        "model declared, runtime declared\n"
    )
    without = Text(colour=True).one(Source("a.jsonl", 4), adjudicate(published()), is_first=True).decode()
    assert without == (
        "\x1b[32msupported  \x1b[0m  a.jsonl:4  KVINT2_SUPPORTED  witness recomputed; pins not given, digests only "
        "declared\n"
    )


@pytest.mark.parametrize(
    ("tally", "code", "lenient"),
    [
        (Tally(), 2, 2),
        (Tally(1), 0, 0),
        (Tally(1, 0, 1), 3, 0),
        (Tally(0, 1, 1), 1, 1),
        (Tally(1, 1, 1, 1), 2, 2),
        (Tally(1, 0, 0, 1), 2, 2),
    ],
)
def test_exit_code_is_that_of_the_worst(tally, code, lenient):
    assert tally.exit_code() == code
    assert tally.exit_code(accept_delegate=True) == lenient


def test_tally_in_words():
    assert Tally(1).sentence() == "1 record: 1 supported, 0 unsupported, 0 delegate"
    assert Tally(1, 1, 0, 2).sentence() == "2 records: 1 supported, 1 unsupported, 0 delegate; 2 not judged"
