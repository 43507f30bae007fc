"""What a figure must read."""

import pytest

from kvint2eval.gate.figures import FormatMismatch, at_pointer, parse_template


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        # The publication's own figures, as it printed them.
        ("{:.6f} ± {:.6f}", [52.3537316, 51.571284], "52.353732 ± 51.571284"),
        ("{:,.3f} ± {:,.3f} us", [19907.1976, 1938.675565], "19,907.198 ± 1,938.676 us"),
        # The nearest binary64 lies below 19187.1855; the publication rounded its digits.
        ("{:,.3f} ± {:,.3f} us", [19187.1855, 740.247367], "19,187.186 ± 740.247 us"),
        ("{:.6f} ms", [319.26752], "319.267520 ms"),
        ("{:,d} bytes", [1048576], "1,048,576 bytes"),
        # Half to even, on the digits.
        ("{:.2f} {:.2f} {:.2f}", [0.125, 0.135, 2.675], "0.12 0.14 2.68"),
        ("{:.1f}", [0.25], "0.2"),
        ("{:.0f}", [1e22], "10000000000000000000000"),
        ("{:.2e}", [1234.5], "1.23e+3"),
        ("{:+.1%}", [0.0515], "+5.2%"),
        ("{:.3g}", [0.00012345], "0.000123"),
        ("{}", ["580.159.03"], "580.159.03"),
        ("{}", [2**64 - 1], "18446744073709551615"),
        ("{}", [0.431511456], "0.431511456"),
        ("{}", [1e-7], "0.0000001"),
        ("{:.1f}", [3], "3.0"),
        ("{{{}}}", [1], "{1}"),
    ],
)
def test_render(template, values, expected):
    assert parse_template(template).render(values) == expected


@pytest.mark.parametrize(
    ("template", "value", "found", "allowed"),
    [
        ("{}", True, "True", "a text, an integer or a number"),
        ("{}", None, "None", "a text, an integer or a number"),
        ("{}", [1], "[1]", "a text, an integer or a number"),
        ("{}", "", "''", "a text, an integer or a number"),
        ("{:d}", 1.0, "1.0", "an integer for {:d}"),
        ("{:.1f}", "1.0", "the text '1.0'", "a number for {:.1f}"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(template, value, found, allowed):
    with pytest.raises(FormatMismatch) as caught:
        parse_template(template).render([value])
    assert (caught.value.found, caught.value.allowed) == (found, allowed)


# RFC 6901, section 5.
DOCUMENT = {
    "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3),
        ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8),
    ],
)  # fmt: skip
def test_pointers_of_the_standard(pointer, value):
    assert at_pointer(DOCUMENT, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["/fo", "/foo/2", "/foo/00", "/foo/-", "/foo/-1", "/foo/\u0661", "/a~1b/0"]
)
def test_a_pointer_that_leads_nowhere_is_refused(pointer):
    with pytest.raises(LookupError, match="nothing at /"):
        at_pointer(DOCUMENT, pointer)
