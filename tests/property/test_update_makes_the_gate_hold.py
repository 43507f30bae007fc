"""Law: whatever a record comes to hold, `gate --update` makes its pages say it, and then has nothing to do."""

import json
import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval.gate.check import Gate
from kvint2eval.gate.figures import parse_template
from kvint2eval.gate.tables import read_gate_file
from kvint2eval.gate.update import update
from tests.helpers import published
from tests.kvint2eval.gate import site

numbers = st.floats(min_value=0, max_value=1e9) | st.integers(min_value=0, max_value=2**53)
members = (
    "clip_ratio",
    "calibration_milliseconds",
    "output_nmse_mean",
    "output_nmse_stddev",
    "decode_microseconds_mean",
)


def codes(path):
    return [one.code for binding in Gate(read_gate_file(path), []).run() for one in binding.findings]


@settings(max_examples=40)
@given(
    st.dictionaries(st.tuples(st.sampled_from([0, 7]), st.sampled_from(members)), numbers, min_size=1),
    st.integers(min_value=0, max_value=99),
    st.from_regex(r"[0-9A-Za-z.]{1,12}", fullmatch=True),
)
def test_update_makes_the_gate_hold(figures, rotation, driver):
    with tempfile.TemporaryDirectory() as folder:
        path = site.make(Path(folder))
        record = json.loads(published())
        for (row, member), value in figures.items():
            record["metrics"]["candidates"][row][member] = value
        record["metrics"]["selected_rotation"] = rotation
        record["runtime"]["driver"] = driver
        (path.parent / "records/l4.json").write_text(json.dumps(record))
        assert "file-changed" in codes(path)
        assert update(read_gate_file(path), [])
        assert codes(path) == []
        assert update(read_gate_file(path), []) == []


@given(
    st.lists(
        st.sampled_from(["{}", "{:d}", "{:,d}", "{:.3f}", "{:,.1f}", "{:+.2e}", "{:.4g}", "{:.1%}"]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([" ± ", " of ", " / "]),
    st.data(),
)
def test_a_rendered_figure_has_the_form_of_its_format(fields, between, data):
    template = parse_template(between.join(fields))
    values = [
        data.draw(st.integers(-(10**9), 10**9) if field.is_integer else numbers) for field in template.fields
    ]
    assert re.fullmatch(template.pattern, template.render(values))
