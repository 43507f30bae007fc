"""Step 10: all arms saw the same evaluation queries, and none that the search read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvint2eval.codes.kinds import Code, Reason
from kvint2eval.contract.v2.bootstrap import MAX_TRIALS
from kvint2eval.contract.v2.rules.subject import RuleV2, SubjectV2, finding

if TYPE_CHECKING:
    from kvint2eval.verdict import Finding

__all__ = ["RULES"]

COLUMNS = ("nmse", "numerator", "denominator", "key_part", "value_part", "cross_part", "decode_us")


TRIAL_COUNT = Code(
    "trial-count",
    Reason.ARMS_NOT_PAIRED,
    "protocol.trials is not the number of evaluation queries, or is not 2 to 256.",
    "Write one evaluation query a trial.",
    '"trials": 64 with 63 evaluation queries',
    v2=10,
)
TRIAL_COLUMN = Code(
    "trial-column",
    Reason.ARMS_NOT_PAIRED,
    "A column of an arm has another length than there are trials.",
    "Record every figure of every trial.",
    "63 decode times for 64 trials",
    v2=10,
)


def check_trial_count(subject: SubjectV2) -> Finding | None:
    """Step 10: there are as many trials as declared, with a query and every figure each."""
    protocol = subject.record.protocol
    queries = protocol.evaluation_queries or []
    if protocol.trials != len(queries):
        allowed = f"{len(queries)}, the number of evaluation queries"
        return finding(TRIAL_COUNT, "/protocol/trials", protocol.trials, allowed)
    if not 2 <= len(queries) <= MAX_TRIALS:
        allowed = f"2 to {MAX_TRIALS} evaluation queries"
        return finding(TRIAL_COUNT, "/protocol/trials", protocol.trials, allowed)
    for index, arm in enumerate(subject.measurements.arms):
        for name in COLUMNS:
            length = len(getattr(arm.trials, name))
            if length != len(queries):
                allowed = f"{len(queries)} values, one a trial; found {length}"
                pointer = f"/measurements/arms/{index}/trials/{name}"
                return finding(TRIAL_COLUMN, pointer, getattr(arm.trials, name), allowed)
    return None


ARMS_NOT_SHARED = Code(
    "arms-not-shared",
    Reason.ARMS_NOT_PAIRED,
    "The record says that its arms saw queries of their own.",
    "Evaluate all arms on the same queries.",
    '"arms_share_queries": false',
    v2=10,
)
QUERY_REPEATED = Code(
    "query-repeated",
    Reason.ARMS_NOT_PAIRED,
    "An evaluation query stands twice, so its trial counts twice.",
    "Evaluate on distinct queries.",
    "query e3 as two trials",
    v2=10,
)
ARMS_QUERIES = Code(
    "arms-queries",
    Reason.ARMS_NOT_PAIRED,
    "The queries of an arm are not the evaluation queries in their order.",
    "Evaluate all arms on the same queries, in one order.",
    "an arm with ten fresh queries",
    v2=10,
)


def check_same_queries(subject: SubjectV2) -> Finding | None:
    """Step 10: the evaluation queries are distinct, and every arm saw them in their order."""
    protocol = subject.record.protocol
    queries = protocol.evaluation_queries or []
    if not protocol.arms_share_queries:
        return finding(ARMS_NOT_SHARED, "/protocol/arms_share_queries", protocol.arms_share_queries, "true")
    if len(set(queries)) != len(queries):
        index = next(index for index, query in enumerate(queries) if query in queries[:index])
        pointer = f"/protocol/evaluation_queries/{index}"
        return finding(QUERY_REPEATED, pointer, queries[index], "each query once")
    for index, arm in enumerate(subject.measurements.arms):
        if arm.trials.query != queries:
            pointer = f"/measurements/arms/{index}/trials/query"
            return finding(ARMS_QUERIES, pointer, arm.trials.query, "protocol.evaluation_queries")
    return None


ARMS_DENOMINATORS = Code(
    "arms-denominators",
    Reason.ARMS_NOT_PAIRED,
    "Two arms have different sums of squares for the unquantized output of one query.",
    "The reference does not depend on the arm: the queries were not the same.",
    "denominators that differ in the last digit",
    v2=10,
)


def check_same_reference(subject: SubjectV2) -> Finding | None:
    """Step 10: the unquantized output of a query is one, whatever the arm; so are its sums of squares."""
    arms = subject.measurements.arms
    reference = arms[0].trials.denominator
    for index, arm in enumerate(arms):
        if arm.trials.denominator != reference:
            pairs = enumerate(zip(arm.trials.denominator, reference, strict=True))
            trial, value, allowed = next((at, one, other) for at, (one, other) in pairs if one != other)
            pointer = f"/measurements/arms/{index}/trials/denominator/{trial}"
            return finding(ARMS_DENOMINATORS, pointer, value, f"{allowed!r}, as in the first arm")
    return None


TRIALS_EQUAL = Code(
    "trials-equal",
    Reason.ARMS_NOT_PAIRED,
    "Two trials have one reference to the last bit: one query counts twice.",
    "Evaluate on distinct queries.",
    "one query under two ids",
    v2=10,
)


def check_distinct_trials(subject: SubjectV2) -> Finding | None:
    """Step 10: no two trials are one query under two ids: their references would be equal to the last bit."""
    denominators = subject.measurements.arms[0].trials.denominator
    if len(set(denominators)) != len(denominators):
        trial = next(at for at, one in enumerate(denominators) if one in denominators[:at])
        first = denominators.index(denominators[trial])
        pointer = f"/measurements/arms/0/trials/denominator/{trial}"
        return finding(
            TRIALS_EQUAL, pointer, denominators[trial], f"another value than that of trial {first}"
        )
    return None


QUERIES_OVERLAP = Code(
    "queries-overlap",
    Reason.QUERIES_OVERLAP,
    "A calibration query is an evaluation query too.",
    "Calibrate on other queries.",
    "query q7 in both lists",
    v2=10,
)
CALIBRATION_NONE = Code(
    "calibration-none",
    Reason.ARMS_NOT_PAIRED,
    "There is no calibration query.",
    "Calibrate on at least one query.",
    '"calibration_queries": []',
    v2=10,
)


def check_disjoint_queries(subject: SubjectV2) -> Finding | None:
    """Step 10: no evaluation query was read by the search."""
    protocol = subject.record.protocol
    calibration = protocol.calibration_queries or []
    evaluation = set(protocol.evaluation_queries or [])
    for index, query in enumerate(calibration):
        if query in evaluation:
            pointer = f"/protocol/calibration_queries/{index}"
            return finding(QUERIES_OVERLAP, pointer, query, "a query that no trial uses")
    if not calibration:
        pointer = "/protocol/calibration_queries"
        return finding(CALIBRATION_NONE, pointer, calibration, "at least one query")
    return None


RULES: tuple[RuleV2, ...] = (
    check_trial_count,
    check_same_queries,
    check_disjoint_queries,
    check_same_reference,
    check_distinct_trials,
)
