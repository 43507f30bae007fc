"""The pages of dialects and schemes against the registries and the measured figures."""

import json
import re

from producer.quantize import DIALECTS
from producer.scheme.registry import SCHEMES
from tests.helpers import ROOT, TESTDATA
from tests.tools.regen import scheme_table

ORDERS = {
    "int32": "16 in an int32",
    "three-bit": "8 in 24 bits",
    "nibbles": "two a byte",
    "bytes": "one a byte",
}
MEASURED = json.loads((TESTDATA / "runs/smollm2-schemes.json").read_text(encoding="utf-8"))


def page(name):
    return (ROOT / "docs/methods" / name).read_text(encoding="utf-8")


def rows(text):
    """Cells of the table rows that begin with a name in code style."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.replace("\\|", "¦").splitlines()
        if line.startswith("| `")
    ]


def test_the_dialect_table_is_the_registry():
    table = {row[0].strip("`"): row for row in rows(page("dialects.md").partition("## Equations")[0])}
    assert list(table) == list(DIALECTS)
    for name, row in table.items():
        numerics = DIALECTS[name].numerics
        assert re.match(rf"{numerics.metadata_scalars} . {numerics.metadata_dtype}\b", row[5]), name
        order = ORDERS.get(numerics.packing, numerics.packing)
        assert row[6] == order, name
        assert (row[7] == "tokens") == (numerics.group_axis == "tokens"), name
        assert row[3] == numerics.rounding, name


def test_the_scheme_table_is_the_registry():
    table = rows(page("schemes.md").partition("## What is measured")[0])
    assert [re.match(r"`([\w-]+)`", row[0])[1] for row in table] == list(SCHEMES)
    for row, scheme in zip(table, SCHEMES.values(), strict=True):
        assert (row[2] == "yes") == scheme.center_keys
        assert scheme.key_dialect in row[3]


def test_the_measured_table_is_what_was_measured():
    text = (ROOT / "docs/results/schemes.md").read_text(encoding="utf-8")
    table = {row[0]: row[1:] for row in rows(text)}
    # What was measured as `kivi` is the float32 dialect by its fingerprint, and `quarot-native` had head-wise values.
    assert list(table) == [scheme_table.shown_name(scheme) for scheme in MEASURED["schemes"]]
    assert {"`kivi-float32`", "`quarot-native`, values head-wise"} < set(table)
    assert "`kivi`" not in table
    baseline = MEASURED["schemes"][0]["summary"]["relative_error"]
    for scheme in MEASURED["schemes"]:
        summary = scheme["summary"]
        model = summary["model"] if "model" in summary else scheme["perplexity"]
        values = [summary[name] for name in ("relative_error", "key_part", "value_part", "divergence_nats")]
        cells = table[scheme_table.shown_name(scheme)]
        shown = [float(cells[place]) for place in (0, 2, 3, 4)]
        assert shown == [round(value, 4) for value in values], scheme["name"]
        assert float(cells[1].removesuffix(" %")) == round(100 * summary["relative_error"] / baseline, 2)
        assert float(cells[5]) == round(summary["bits_per_element"], 3)
        expected = [round(model["perplexity"], 3), round(model["divergence_nats"], 4)] if model else []
        assert [float(cell) for cell in cells[6:] if cell] == expected, scheme["name"]
    assert MEASURED["model"]["weights_sha256"][:12] in text
