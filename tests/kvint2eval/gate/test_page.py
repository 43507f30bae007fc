"""Places on a Markdown page: what a reader sees, not how the source is laid out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kvint2eval.gate.page import Page, seen
from kvint2eval.gate.tables import Anchor
from tests.tools.regen.published import BINARY

NUMBER = r"[0-9]+"


def places(text, expected="7", pattern=NUMBER, **anchor):
    row = anchor.pop("row", ())
    return [
        (one.line, one.found, one.is_exact)
        for one in Page(text).locate(
            Anchor(**anchor, row=(row,) if isinstance(row, str) else row), pattern, expected
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Rotation 7 was selected.",
        "Rotation\n7\nwas selected.",
        "> Rotation\n> 7 was selected.",
        "- a list\n- Rotation **7** was `selected`.",
        "*Rotation* [7](x.md) was selected.",
        "Rotation&nbsp;7 was selected.",
        "Rotation 7<!-- a comment --> was selected.",
        "```\nRotation 7 was selected.\n```",
        "    Rotation 7 was selected.",
        "# Rotation 7 was selected.",
        "<p>Rotation <b>7</b> was selected.</p>",
    ],
)
@pytest.mark.parametrize(
    "anchor",
    [{"before": "Rotation"}, {"after": "was selected"}, {"before": "Rotation", "after": "was\nselected."}],
)
def test_a_text_anchor_sees_through_layout_and_markup(text, anchor):
    ((_, found, is_exact),) = places(text, **anchor)
    assert (found, is_exact) == ("7", True)


@pytest.mark.parametrize(
    ("text", "anchor", "expected"),
    [
        ("x is 7.", {"before": "x is"}, (1, "7", True)),
        ("x is 7.5", {"before": "x is"}, (1, "7.5", False)),
        ("x is 7%", {"before": "x is"}, (1, "7%", False)),
        ("x is 17 of", {"after": "of"}, (1, "17", True)),
        ("x is 1.7 of", {"after": "of"}, (1, "1.7", False)),
        ("x is -7 of", {"after": "of"}, (1, "-7", False)),
        ("of", {"after": "of"}, (1, "", False)),
        ("x is", {"before": "x is"}, (1, "", False)),
        ("a\nb\nx is\n7", {"before": "x is"}, (4, "7", True)),
        ("x is seven", {"before": "x is"}, (1, "seven", False)),
        ("x is seven and", {"before": "x is", "after": "and"}, (1, "seven", False)),
    ],
)
def test_a_figure_is_not_the_head_or_tail_of_another(text, anchor, expected):
    assert places(text, **anchor) == [expected]


@pytest.mark.parametrize(
    ("text", "anchor", "lines"),
    [
        ("n = 7\n\nn = 7", {"before": "n ="}, [1, 3]),
        ("n = 7, n = 7", {"before": "n ="}, [1, 1]),
        ("# A\nn = 7\n# B\nn = 7", {"before": "n =", "under": "B"}, [4]),
        ("# A\n## C\nn = 7\n# B\n## C\nn = 7", {"before": "n =", "under": "C"}, [3, 6]),
        ("# A\n## C\nn = 7\n# B\n## C\nn = 7", {"before": "n =", "under": "A"}, [3]),
        ("# A\n## C\n# B\nn = 7", {"before": "n =", "under": "C"}, []),
        ("n = 7", {"before": "n =", "after": "m"}, []),
        ("| n = |\n|---|\n| n = 7 |", {"before": "n ="}, []),
    ],
)
def test_each_place_of_the_anchor_is_found(text, anchor, lines):
    assert [line for line, _, _ in places(text, **anchor)] == lines


TABLES = """\
# One

| a | b | c |
|---|---|---|
| x | 1 | `2` |
| x | 3 | a \\| b |
| *y* z | 4 |

# Two

| a | b |
|---|---|
| x | 5 |
"""


@pytest.mark.parametrize(
    ("anchor", "expected"),
    [
        ({"row": "y z", "column": "b"}, [(7, "4", True)]),
        ({"row": "y z", "column": "c"}, [(7, "", False)]),
        ({"row": "x", "column": "c"}, [(5, "2", True), (6, "a | b", True)]),
        ({"row": ("x", "3"), "column": "c"}, [(6, "a | b", True)]),
        ({"row": "x", "column": "b", "under": "Two"}, [(13, "5", True)]),
        ({"row": ("x", "5", "6"), "column": "b"}, []),
        ({"row": "a", "column": "b"}, []),
        ({"row": "x", "column": "d"}, []),
    ],
)
def test_a_cell_is_named_by_its_row_and_column(anchor, expected):
    assert places(TABLES, **anchor) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"a\n\nb\n{BINARY}", 4),
        (f"```\nsha256sum\n{BINARY}\n```", 3),
        (f"| a |\n|---|\n| `{BINARY}` |", 3),
        (f"<p>\n{BINARY}</p>", 2),
        (f"<!-- {BINARY} -->", None),
        (f"[x](http://x/{BINARY})", None),
        ("nothing", None),
    ],
)
def test_a_digest_is_shown_where_a_reader_sees_it(text, line):
    assert Page(text).shows(BINARY) == line


def test_an_image_is_read_by_its_description():
    assert places("![n = 7](x.png)", before="n =") == [(1, "7", True)]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1, max_size=40))
def test_a_text_is_shown_as_the_whole_parser_shows_it(text):
    """The short way past the inline parser changes nothing."""
    source = f"x {text} y"
    (_, inline, _) = MarkdownIt("commonmark").enable("table").parse(source)[:3]
    expected = "".join(
        one.content for one in inline.children if one.type in ("text", "code_inline", "text_special")
    )
    (block,) = Page(source)._blocks
    assert Page(source)._text(block) == seen(expected)
