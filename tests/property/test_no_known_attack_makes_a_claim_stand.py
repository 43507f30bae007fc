"""Law: no edit of a known kind makes an unsound comparison stand, with everything re-derived and sealed again.

Honest records are drawn, then one or more attacks; each attack re-derives what follows from its lie: quotients,
objectives, summaries, claims, stored bytes and the witness. What remains possible is in docs/limits.md.
"""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvint2eval import adjudicate
from kvint2eval.codes import Outcome
from tests.tools.regen.edits_v2 import _measured as measured
from tests.tools.regen.edits_v2 import _trials as trials_of
from tests.tools.regen.records_v2 import text
from tests.tools.regen.vector_v2 import (
    CALIBRATION_SEQUENCES,
    claim,
    nmse,
    population,
    sealed,
    storage,
    summarized,
    traced,
    vector,
)

ARMS = range(3)
SUMS = ("numerator", "denominator", "key_part", "value_part", "cross_part")


def rederived(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose quotients, objectives, summaries and claims follow from its figures."""
    for arm in record["measurements"]["arms"]:
        columns, search = arm["trials"], arm["calibration"]
        columns["nmse"] = [
            nmse(*pair) for pair in zip(columns["numerator"], columns["denominator"], strict=True)
        ]
        search["objective"] = [population(row)[0] for row in search["query_nmse"]]
        arm["clip_ratio"] = search["clip_ratio"][search["objective"].index(min(search["objective"]))]
        summarized(arm)
    record["claims"] = [claim(record, one["metric"], level=one["level"]) for one in record["claims"]]
    return record


def copies(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Some trials stand for others, up to a common factor and a few roundings."""
    count = record["protocol"]["trials"]
    source = draw(st.integers(0, count - 1))
    factor = draw(st.floats(0.5, 2)) * (1 + draw(st.integers(-8, 8)) * 2**-52)
    for target in draw(st.sets(st.integers(0, count - 1), min_size=1)) - {source} or {(source + 1) % count}:
        for arm in ARMS:
            for name in SUMS:
                trials_of(record, arm)[name][target] = trials_of(record, arm)[name][source] * factor
    return rederived(record)


def small_references(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A few references of almost nothing carry the mean."""
    shrink = 10.0 ** -draw(st.floats(3, 12))
    for trial in range(draw(st.integers(1, 3))):
        for arm in ARMS:
            for name in SUMS:
                trials_of(record, arm)[name][trial] *= shrink
    return rederived(record)


def carried_by_few(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The selected arm is worse in most trials, and much better in a few."""
    count = record["protocol"]["trials"]
    few = draw(st.integers(1, (count - 1) // 2))
    for trial in range(few, count):
        ratio = draw(st.floats(1.001, 1.2))
        for name in ("numerator", "key_part", "value_part", "cross_part"):
            trials_of(record, 1)[name][trial] = trials_of(record, 0)[name][trial] * ratio
    record["claims"] = record["claims"][:1]
    return rederived(record)


def tried_seed(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """An interval of a seed, or of a number of resamples, that was chosen."""
    members = draw(st.sampled_from([{"seed": draw(st.integers(0, 9999))}, {"resamples": 200}]))
    record["claims"][0] = claim(record, **members)
    return record


def stated_low(_: Any, record: dict[str, Any]) -> dict[str, Any]:
    """An interval that reaches 0, stated as if it barely did not."""
    selected, baseline = trials_of(record, 1), trials_of(record, 0)
    selected["decode_us"] = [value + (-1) ** at for at, value in enumerate(baseline["decode_us"])]
    selected["decode_us"][0] = baseline["decode_us"][0] - 1e3
    summarized(record["measurements"]["arms"][1])
    record["claims"] = [claim(record, "decode_us")]
    if record["claims"][0]["low"] <= 0:
        record["claims"][0]["low"] = 1e-9
    return record


def empty_grid(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A grid whose ratios are one for all that matters."""
    step = draw(st.floats(1e-9, 0.03))
    grid = [0.8 - step * place for place in range(5)]
    record["recipe"]["clip_grid"] = grid
    for arm in record["measurements"]["arms"]:
        arm["calibration"]["clip_ratio"] = grid
    return rederived(record)


def heavy_metadata(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Groups so small that their scales outweigh the codes."""
    size = draw(st.sampled_from([1, 2, 4, 8]))
    record["recipe"] |= {"group_size": size, "sink_tokens": 0, "recent_tokens": draw(st.integers(0, 200))}
    stored = storage(1024, 4, 128, sinks=record["recipe"]["recent_tokens"])
    stored["metadata_bytes"] *= 128 // size
    return measured(record, stored)


def large_windows(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Most of the cache in windows."""
    recent = draw(st.integers(449, 959))
    record["recipe"]["recent_tokens"] = recent
    return measured(record, storage(1024, 4, 128, sinks=64 + recent))


def calibrated_on_trials(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Calibration queries that are trials: their errors are the trials', in every arm."""
    trial = draw(st.integers(0, record["protocol"]["trials"] - 1))
    for arm in ARMS:
        search = record["measurements"]["arms"][arm]["calibration"]
        best = search["objective"].index(min(search["objective"]))
        for row, values in enumerate(search["query_nmse"]):
            scale = search["objective"][row] / search["objective"][best]
            values[0] = trials_of(record, arm)["nmse"][trial] * scale
        search["query_nmse"][best][0] = trials_of(record, arm)["nmse"][trial]
    return rederived(record)


def impossible_parts(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Parts that add up, with a cross part that no two errors have."""
    columns, trial = trials_of(record, draw(st.integers(0, 2))), draw(st.integers(0, 3))
    whole, share = columns["numerator"][trial], draw(st.floats(0.01, 0.24))
    columns["key_part"][trial] = columns["value_part"][trial] = share * whole
    columns["cross_part"][trial] = whole - 2 * share * whole
    return record


def crippled_baseline(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A baseline that is no better than zeros."""
    factor = draw(st.floats(1.8, 100))
    for name in ("numerator", "key_part", "value_part", "cross_part"):
        trials_of(record, 0)[name] = [factor * value for value in trials_of(record, 0)[name]]
    record["claims"] = record["claims"][:1]
    return rederived(record)


def preferred_baseline(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A baseline that the calibration finds better."""
    factor = draw(st.floats(0.01, 0.35))
    search = record["measurements"]["arms"][0]["calibration"]
    search["query_nmse"] = [[factor * value for value in row] for row in search["query_nmse"]]
    record["claims"] = record["claims"][:1]
    return rederived(record)


def repeated_claim(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """One claim at another level once more."""
    metric = draw(st.sampled_from(["output_nmse", "decode_us"]))
    record["claims"].append(claim(record, metric, level=draw(st.sampled_from([0.9, 0.95, 0.99]))))
    return record


def cold_times(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A claim of speed from times that show none."""
    record["protocol"] |= draw(st.sampled_from([{"warmup": 0}, {"clock": "host"}]))
    record["claims"] = record["claims"][1:]
    return record


def text_kernel(_: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A kernel whose digest two binaries can have."""
    record["artifacts"][2]["text"] = True
    return record


def overlapping(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Windows of one text that share tokens."""
    shift = draw(st.integers(1, 1023))
    count = record["protocol"]["trials"]
    return traced(record, [f"t@{shift * at}+1024/last64" for at in range(count)], CALIBRATION_SEQUENCES)


ATTACKS = (
    copies,
    small_references,
    carried_by_few,
    tried_seed,
    stated_low,
    empty_grid,
    heavy_metadata,
    large_windows,
    calibrated_on_trials,
    impossible_parts,
    crippled_baseline,
    preferred_baseline,
    repeated_claim,
    cold_times,
    text_kernel,
    overlapping,
)

honest = st.builds(vector, st.integers(8, 24), st.just(3), seed=st.integers(0, 10**9))


def stands(record: dict[str, Any]) -> bool:
    """Whether the record is supported with all of its claims."""
    verdict = adjudicate(text(sealed(record)))
    return verdict.outcome is Outcome.SUPPORTED and all(one.finding is None for one in verdict.claims or ())


@given(honest)
@settings(max_examples=15, deadline=None)
def test_honest_records_stand(record):
    assert stands(record)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_no_attack_stands(attack, data):
    record = copy.deepcopy(data.draw(honest))
    assert not stands(attack(data.draw, record))


# Attacks that change other parts of a record, so that they can be made one after the other.
APART = (small_references, impossible_parts, heavy_metadata, calibrated_on_trials, copies, crippled_baseline)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_two_attacks_hide_each_other(data):
    record = copy.deepcopy(data.draw(honest))
    for attack in data.draw(st.lists(st.sampled_from(APART), min_size=2, max_size=3, unique=True)):
        record = attack(data.draw, record)
    assert math.isfinite(record["measurements"]["storage"]["bits_per_element"])
    assert not stands(record)
