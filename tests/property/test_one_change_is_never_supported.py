"""Law: a supported record that is changed in one place, in any way but the order of its members, is not supported."""

import json

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from tests.helpers import RECORDS, Members, as_members, dump, holder_of, pointers

BASES = [path.read_bytes() for path in sorted((RECORDS / "supported").glob("*.json"))]
CHANGES = ["change", "remove", "add", "duplicate", "retype"]

OTHERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=10),
    st.sampled_from([0, 1, 0.5, "", "observed", "cuda"]),
)


def same_value(first, second):
    """Whether two parsed scalars are one JSON value; 1 and 1.0 are, 1 and true are not."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


@st.composite
def changes(draw):
    """Bytes of a supported record with one change, and what was done."""
    base = json.loads(draw(st.sampled_from(BASES)))
    pointer = draw(st.sampled_from(list(pointers(base))))
    what = draw(st.sampled_from(CHANGES))
    holder, key = holder_of(base, pointer)
    value = holder[key]
    if what == "change":
        other = draw(OTHERS if not isinstance(value, dict | list) else st.sampled_from([{}, []]))
        assume(not same_value(value, other))
        if isinstance(value, float | int) and isinstance(other, float | int):
            # Two literals of one binary64 value are one number.
            assume(float(value) != float(other) or abs(value) > 2**53)
        holder[key] = other
    elif what == "remove":
        del holder[key]
    elif what == "add" and isinstance(holder, dict):
        name = draw(st.text(max_size=6))
        assume(name not in holder)
        holder[name] = draw(OTHERS)
    elif what == "add":
        holder.insert(key, draw(st.sampled_from([{}, value, None, 1])))
    elif what == "retype":
        holder[key] = draw(st.sampled_from([None, True, [value], {"value": value}, json.dumps(value)]))
        assume(not same_value(value, holder[key]))
    elif isinstance(holder, dict):
        return duplicated(base, pointer, draw(st.sampled_from([value, 0, ""]))), what
    else:
        holder.append(value)
    return json.dumps(base).encode(), what


def duplicated(base, pointer, value):
    """The record with the member at a pointer standing twice."""
    *path, name = pointer.split("/")[1:]
    members = as_members(base)
    holder = members
    for step in path:
        holder = dict(holder.pairs)[step] if isinstance(holder, Members) else holder[int(step)]
    holder.pairs.append((name, value))
    return dump(members).encode()


@settings(max_examples=1500)
@given(changes())
def test_one_change_is_never_supported(change):
    data, what = change
    assert adjudicate(data).outcome != "supported", (what, data)


def test_every_single_number_and_string_counts():
    """The law once for each member of the published record, without chance."""
    base = json.loads(BASES[2])
    for pointer in list(pointers(base)):
        changed = json.loads(BASES[2])
        holder, key = holder_of(changed, pointer)
        if isinstance(holder[key], dict | list):
            del holder[key]
        else:
            holder[key] = holder[key] + "x" if isinstance(holder[key], str) else holder[key] + 1
        assert adjudicate(json.dumps(changed).encode()).outcome != "supported", pointer
