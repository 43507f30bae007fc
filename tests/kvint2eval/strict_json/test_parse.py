"""The strict parser: what it accepts, what it refuses, and where."""

import json

import pytest

from kvint2eval import adjudicate
from kvint2eval.errors import StrictJsonError
from kvint2eval.strict_json.parse import (
    MAX_RECORD_BYTES,
    _syntax_error,
    decode_bytes,
    locate,
    parse_text,
    place,
)
from tests.helpers import SHARED

SUITE = SHARED / "corpora" / "json-test-suite"

# Texts that RFC 8259 allows and section 4 of the contract refuses.
REFUSED_BY_RULE = {
    "y_number_minus_zero.json": "negative-zero",
    "y_number_negative_zero.json": "negative-zero",
    "y_object_duplicated_key.json": "duplicate-member",
    "y_object_duplicated_key_and_value.json": "duplicate-member",
}


def parse(data):
    return parse_text(decode_bytes(data))


def refusal(data):
    with pytest.raises(StrictJsonError) as caught:
        parse(data)
    return caught.value


def code_and_value(data):
    """Code of the refusal, or None, and the value."""
    try:
        return None, parse(data)
    except StrictJsonError as error:
        return error.code, None


@pytest.mark.shared
def test_parsing_suite():
    files = sorted((SUITE / "test_parsing").iterdir())
    assert len(files) == 318
    refused = {}
    for path in files:
        data = path.read_bytes()
        verdict = adjudicate(data)
        assert verdict.outcome == "unsupported", path.name
        code, value = code_and_value(data)
        if code is None:
            # What the parser accepts is what the standard library reads, to the last digit.
            assert json.dumps(value) == json.dumps(json.loads(data)), path.name
            assert verdict.finding.code in ("not-an-object", "unknown-contract"), path.name
        else:
            refused[path.name] = code
            assert (verdict.reason, verdict.finding.code) == ("KVINT2_MALFORMED_RECORD", code), path.name
    assert {name: code for name, code in refused.items() if name.startswith("y_")} == REFUSED_BY_RULE
    assert {path.name for path in files if path.name.startswith("n_")} <= set(refused)


@pytest.mark.shared
def test_transform_suite():
    expected = {
        "number_1e-999.json": "number-underflow",
        "object_same_key_different_values.json": "duplicate-member",
        "object_same_key_same_value.json": "duplicate-member",
        "object_same_key_unclear_values.json": "negative-zero",
        "string_1_escaped_invalid_codepoint.json": "lone-surrogate",
        "string_2_escaped_invalid_codepoints.json": "lone-surrogate",
        "string_3_escaped_invalid_codepoints.json": "lone-surrogate",
        "string_1_invalid_codepoint.json": "not-utf8",
        "string_2_invalid_codepoints.json": "not-utf8",
        "string_3_invalid_codepoints.json": "not-utf8",
    }
    found = {}
    for path in sorted((SUITE / "test_transform").iterdir()):
        assert adjudicate(path.read_bytes()).outcome == "unsupported"
        code, _ = code_and_value(path.read_bytes())
        if code is not None:
            found[path.name] = code
    assert found == expected


@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"", "empty-input", None, None),
        (b" \n\t", "empty-input", None, None),
        (b"\xff\xfe{\0}\0", "utf16", 1, 1),
        (b"\xfe\xff\0{\0}", "utf16", 1, 1),
        (b"{\0}\0", "utf16", 1, 1),
        (b"\0{\0}", "utf16", 1, 1),
        (b"\xff\xfe\0\0{\0\0\0", "utf16", 1, 1),
        (b"\xef\xbb\xbf{}", "byte-order-mark", 1, 1),
        ('{\n"ä": "'.encode() + b"\xe9" + b'"}', "not-utf8", 2, 7),
        (b'{"a": 1,}', "invalid-json", 1, 9),
        (b'{"a"', "invalid-json", 1, 5),
        (b'{"a": 1}\n{"b": 2}', "trailing-content", 2, 1),
        (b'{"a": 1}\0', "trailing-content", 1, 9),
        (b'{"a": {"b": 1,\n "b": 2}}', "duplicate-member", 2, 2),
        (
            b'{"x": "a\\"b\\\\", "a": [{"c": 1}, {"c": 1, "d": {"e": 0}, "\\u0063": 2}]}',
            "duplicate-member",
            1,
            57,
        ),
        (b"[1,\n  NaN]", "not-a-number", 2, 3),
        (b"[-Infinity]", "not-a-number", 1, 2),
        (b'["Infinity NaN -0 1e999", Infinity]', "not-a-number", 1, 27),
        (b"[1e308, 1e309]", "number-overflow", 1, 9),
        (b"[5e-324, 1e-400]", "number-underflow", 1, 10),
        (b"[0." + b"0" * 400 + b"1]", "number-underflow", 1, 2),
        (b"[0.00" + b"0" * 230 + b"1E-99]", "number-underflow", 1, 2),
        (b"[-1, -0]", "negative-zero", 1, 6),
        (b"[-0.0]", "negative-zero", 1, 2),
        (b"[-0e5]", "negative-zero", 1, 2),
        (b"[-1e-400]", "negative-zero", 1, 2),
        (b"[12345678901234567890, 123456789012345678901]", "integer-too-long", 1, 24),
        (b"[-123456789012345678901]", "integer-too-long", 1, 2),
        (b'["ok \\ud834\\udd1e", "\\ud834x"]', "lone-surrogate", 1, 21),
        (b'{"\\udc00": 1}', "lone-surrogate", 1, 2),
        (b"[" * 33 + b"]" * 33, "nested-too-deep", 1, 33),
        (b"[" * 100_000, "nested-too-deep", 1, 33),
        (b'{"a":' * 100_000, "nested-too-deep", 1, 161),
    ],
)
def test_refused_text_has_its_code_and_place(data, code, line, column):
    error = refusal(data)
    assert (error.code, error.line, error.column) == (code, line, column)
    finding = adjudicate(data).finding
    assert (finding.code, finding.line, finding.column) == (code, line, column)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a" : [1, 2.5, "x", true, false, null]} \n', {"a": [1, 2.5, "x", True, False, None]}),
        (b"[" * 32 + b"]" * 32, json.loads("[" * 32 + "]" * 32)),
        (b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]', ["[" * 40]),
        (b"12345678901234567890", 12345678901234567890),
        (b"0e-400", 0.0),
        (b"5e-324", 5e-324),
        (b"0." + b"0" * 323 + b"5", 5e-324),
        (b'"\\ud834\\udd1e \\u0000 \\/"', "\U0001d11e \0 /"),
        (b'{"a": {"x": 1}, "b": {"x": 1}, "x": [{"a": 1}]}', {"a": {"x": 1}, "b": {"x": 1}, "x": [{"a": 1}]}),
    ],
)
def test_accepted_text_has_its_value(data, value):
    assert parse(data) == value


def test_five_thousand_digits_are_refused_before_they_are_converted():
    error = refusal(b'{"hardware": {"seed": ' + b"9" * 5000 + b"}}")
    assert (error.code, error.column) == ("integer-too-long", 23)
    assert error.found == "99999999999999999999... (5000 characters)".replace(
        "...", "\N{HORIZONTAL ELLIPSIS}"
    )


def test_the_largest_record_is_read_and_one_byte_more_is_refused():
    record = b'{"a": 1}'
    assert parse(record.ljust(MAX_RECORD_BYTES)) == {"a": 1}
    assert refusal(record.ljust(MAX_RECORD_BYTES + 1)).code == "record-too-large"


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * (MAX_RECORD_BYTES // 2 - 1),
        b"[" + b'"[[[",' * (MAX_RECORD_BYTES // 6 - 10) + b"]",
        b"[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]".ljust(
            MAX_RECORD_BYTES
        ),
        b"{" + b'"a":1,' * (MAX_RECORD_BYTES // 6 - 5) + b'"a":1}',
        b"[" + b"1," * (MAX_RECORD_BYTES // 2 - 10) + b"-0]",
        b'["' + b"\\ud800" * (MAX_RECORD_BYTES // 6 - 5) + b'"]',
        b'["a"' + b" " * (MAX_RECORD_BYTES - 10) + b"]",
        b"9" * MAX_RECORD_BYTES,
    ],
    ids=["quotes", "brackets-in-strings", "tail", "duplicates", "numbers", "surrogates", "spaces", "digits"],
)
def test_largest_hostile_texts_end(data):
    """Each was quadratic in some draft of a reader: at this size it would not end within the suite's time."""
    assert len(data) <= MAX_RECORD_BYTES
    assert adjudicate(data).outcome == "unsupported"


def test_place_counts_lines_and_code_points():
    assert place("ab\ncd\n\U0001d11ex", 8) == (3, 3)
    assert place("x", 0) == (1, 1)


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", (1, 2)),
        ("/a", (1, 8)),
        ("/a/1", (2, 2)),
        ("/a/1/b~1c", (2, 11)),
        ("/~0", (3, 8)),
        ("/missing", (1, 2)),
        ("/a/9", (1, 8)),
        ("/a/0/deeper", (1, 9)),
    ],
)
def test_locate_finds_a_value_or_the_container_that_lacks_it(pointer, expected):
    text = ' {"a": [1,\n {"b/c" : 2}],\n "~" : "\\"x" }'
    assert locate(text, pointer) == expected


@pytest.mark.parametrize(("text", "comma"), [('{"a": 1 , }', 8), ("[1, ]", 2)])
def test_a_trailing_comma_has_one_place_whatever_the_python(text, comma):
    """Python 3.13 tells the comma's place, earlier ones what follows it."""
    of_3_13 = _syntax_error(text, json.JSONDecodeError("Illegal trailing comma before end of x", text, comma))
    here = refusal(text.encode())
    assert (of_3_13.found, of_3_13.allowed, of_3_13.column) == (here.found, here.allowed, here.column)
