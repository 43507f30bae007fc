"""Law: whatever a v2 record holds, adjudication gives a verdict, and the verdict says why.

Records are damaged in up to four places by values that tend to break code (empty, huge, of another type, or another
part of the record) and sealed again, so that every rule is reached.
"""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.codes import FINDINGS, REASONS, Outcome
from kvint2eval.contract.v2.canonical import witness_v2
from kvint2eval.errors import CanonicalFormError
from tests.tools.regen.records_v2 import at
from tests.tools.regen.vector_v2 import vector

RECORD = vector()


def _pointers(value, pointer=""):
    if pointer:
        yield pointer
    if isinstance(value, dict | list):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _pointers(one, f"{pointer}/{name}")


POINTERS = sorted(_pointers(RECORD))
# Members of the record, not their elements: a place that a damage empties or fills.
CONTAINERS = [
    pointer for pointer in POINTERS if isinstance(at(RECORD, pointer)[0][at(RECORD, pointer)[1]], dict | list)
]
VALUES = st.sampled_from(
    [
        [],
        {},
        [[]],
        [{}],
        None,
        0,
        1,
        -1,
        2**53 - 1,
        0.0,
        5e-324,
        1e60,
        -1e60,
        1.7e308,
        "",
        "r0",
        "kvint2eval/v2",
        True,
    ]
) | st.sampled_from(CONTAINERS).map(lambda pointer: at(RECORD, pointer)[0][at(RECORD, pointer)[1]])
DAMAGE = st.lists(
    st.tuples(st.sampled_from(POINTERS) | st.sampled_from(CONTAINERS), VALUES), min_size=1, max_size=4
)


def _damaged(changes):
    record = copy.deepcopy(RECORD)
    for pointer, value in changes:
        try:
            holder, name = at(record, pointer)
            holder[name] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # an earlier change took the place away
    try:
        return record | {"witness_sha256": witness_v2(record)}
    except CanonicalFormError:
        return record


def _judge(record):
    verdict = adjudicate(json.dumps(record).encode())
    if verdict.finding is None:
        assert verdict.outcome is Outcome.SUPPORTED
    else:
        assert REASONS[FINDINGS[verdict.finding.code].reason].outcome is verdict.outcome
        assert verdict.finding.allowed
    return verdict


@given(DAMAGE)
@settings(max_examples=400, deadline=None)
def test_damaged_record_gets_a_verdict(changes):
    _judge(_damaged(changes))


def test_every_container_emptied():
    for pointer in CONTAINERS:
        for value in ([], {}, None):
            _judge(_damaged([(pointer, value)]))


def test_columns_of_one_name_emptied_in_all_arms():
    arms = range(len(RECORD["measurements"]["arms"]))
    for pointers in (
        [
            f"/measurements/arms/{arm}/trials/{name}"
            for arm in arms
            for name in RECORD["measurements"]["arms"][0]["trials"]
        ],
        [
            f"/measurements/arms/{arm}/calibration/{name}"
            for arm in arms
            for name in ("clip_ratio", "objective", "query_nmse")
        ],
        [f"/measurements/arms/{arm}/calibration/query_nmse/{row}" for arm in arms for row in range(5)],
    ):
        for extra in (
            [],
            ["/protocol/evaluation_queries", "/protocol/calibration_queries", "/recipe/clip_grid"],
            ["/recipe/rotations", "/measurements/arms", "/measurements/null_checks", "/claims"],
        ):
            changes = [(pointer, []) for pointer in pointers + extra]
            counts = [("/protocol/trials", 0), ("/recipe/clip_grid_size", 0), ("/recipe/rotation_count", 0)]
            _judge(_damaged(changes))
            _judge(_damaged(changes + counts))
