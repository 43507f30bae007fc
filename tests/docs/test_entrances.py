"""The table of what each entrance does is what they do, and no cell of it is a pass."""

import re

import pytest

from tests.tools import entrances


def test_no_cell_is_a_pass():
    text = entrances.PAGE.read_text(encoding="utf-8").partition("<!-- begin entrances -->\n")[2]
    lines = text.partition("\n<!-- end")[0].splitlines()
    cells = [line.strip("|").split("|")[1:] for line in lines[2:]]
    assert (len(cells), {len(row) for row in cells}) == (len(entrances.SITUATIONS), {6})
    for cell in (one.strip() for row in cells for one in row):
        assert re.fullmatch(r"exit [124](, \w+( \w+)?)?|unsupported|`InputError`", cell), cell


@pytest.mark.slow
def test_the_table_is_what_the_entrances_do():
    assert entrances.page() == entrances.PAGE.read_text(encoding="utf-8")
