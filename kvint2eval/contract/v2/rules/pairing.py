"""Step 10: all arms saw the same evaluation queries, and none that the search read."""

from __future__ import annotations

import re
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
    "Two trials have one reference, or in every arm one NMSE, to twelve digits: one query counts twice.",
    "Evaluate on distinct queries.",
    "one query under two ids",
    v2=10,
)


SAME = 1e-12
"""Relative difference below which two figures of two queries are those of one query."""


def check_distinct_trials(subject: SubjectV2) -> Finding | None:
    """Step 10: no two trials are one query: neither one reference nor, in every arm, one error relative to it."""
    arms = subject.measurements.arms
    denominators = arms[0].trials.denominator
    for pointer, columns in (
        ("/measurements/arms/0/trials/denominator", [denominators]),
        ("/measurements/arms/0/trials/nmse", [arm.trials.nmse for arm in arms]),
    ):
        pair = _nearly_equal(columns)
        if pair is not None:
            first, trial = pair
            allowed = f"another value than that of trial {first}, by more than {SAME} of it"
            return finding(TRIALS_EQUAL, f"{pointer}/{trial}", columns[0][trial], allowed)
    return None


def _nearly_equal(columns: list[list[float]]) -> tuple[int, int] | None:
    """Two trials whose figures are equal in every column, within a few roundings; the later one second."""
    order = sorted(range(len(columns[0])), key=columns[0].__getitem__)
    for place, one in enumerate(order):
        for other in order[place + 1 :]:
            if abs(columns[0][one] - columns[0][other]) > SAME * abs(columns[0][other]):
                break
            if all(abs(column[one] - column[other]) <= SAME * abs(column[other]) for column in columns):
                return min(one, other), max(one, other)
    return None


QUERY_ID = Code(
    "query-id",
    Reason.ARMS_NOT_PAIRED,
    "The id of a sequence is not TEXT@FIRST+TOKENS/lastQUERIES, or its tokens are not those of the workload.",
    "Write the id as the contract says: two sequences of one text can only be told apart by it.",
    '"e0" in a record of a trace',
    v2=10,
)
WINDOWS_OVERLAP = Code(
    "windows-overlap",
    Reason.QUERIES_OVERLAP,
    "Two sequences share tokens of one text, so their trials are one passage, seen twice.",
    "Evaluate and calibrate on sequences that share no token.",
    "GPL-3@0+2048/last64 and GPL-3@1+2048/last64",
    v2=10,
)
_SEQUENCE = re.compile(
    r"(?P<text>.+)@(?P<first>[0-9]{1,15})\+(?P<tokens>[0-9]{1,15})/last(?P<last>[0-9]{1,15})"
)


def check_windows(subject: SubjectV2) -> Finding | None:
    """Step 10: in a record of a trace ids are of the contract's form, and no two sequences share a token."""
    if subject.record.workload.trace is None:
        return None
    protocol, tokens = subject.record.protocol, subject.record.workload.tokens
    seen: dict[str, list[tuple[int, int, str]]] = {}
    for name in ("evaluation_queries", "calibration_queries"):
        for index, query in enumerate(getattr(protocol, name)):
            pointer = f"/protocol/{name}/{index}"
            match = _SEQUENCE.fullmatch(query)
            is_evaluation = name == "evaluation_queries"
            if match is None or (is_evaluation and int(match["tokens"]) != tokens):
                allowed = f"TEXT@FIRST+{tokens if is_evaluation else 'TOKENS'}/lastQUERIES"
                return finding(QUERY_ID, pointer, query, allowed)
            first = int(match["first"])
            end = first + int(match["tokens"])
            if not 1 <= int(match["last"]) <= end - first:
                return finding(QUERY_ID, pointer, query, f"1 to {end - first} last queries")
            others = seen.setdefault(match["text"], [])
            for before, after, other in others:
                if first < after and before < end:
                    return finding(WINDOWS_OVERLAP, pointer, query, f"no token of {other}")
            others.append((first, end, query))
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
    check_windows,
)
