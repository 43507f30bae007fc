"""Rules of v2 at their edges, and against figures that are known from elsewhere."""

import copy
import math

import pytest
from msgspec.structs import replace

from kvint2eval import adjudicate
from kvint2eval.contract.v2.reader import decode_v2
from kvint2eval.contract.v2.recompute import mean, median, population_deviation
from kvint2eval.contract.v2.rules.claims import LEAST_TRIALS
from kvint2eval.contract.v2.rules.storage import expected_bytes
from kvint2eval.contract.v2.rules.subject import SubjectV2
from kvint2eval.files.paths import is_safe_path
from tests.tools.regen.edits_v2 import reclaimed
from tests.tools.regen.records_v2 import edited, text
from tests.tools.regen.vector_v2 import claim, sealed, vector

BASE = vector()


def code(record):
    finding = adjudicate(text(record)).finding
    return finding and finding.code


# Published bits per element: sinks 64, recent 256, groups of 128, scale and zero point, windows in 16 bits.
@pytest.mark.parametrize(
    ("tokens", "bits", "dtype"),
    [
        (1024, 6.5469, "float16"),
        (1024, 6.7188, "float32"),
        (4096, 3.3242, "bfloat16"),
        (4096, 3.5547, "float32"),
        (32768, 2.3843, "float16"),
        (32768, 2.6318, "float32"),
        (65536, 2.317139, "float16"),
        (65536, 2.565918, "float32"),
        (131072, 2.2836, "float16"),
        (131072, 2.5330, "float32"),
    ],
)
def test_bits_per_element_are_the_published_ones(tokens, bits, dtype):
    record = decode_v2(text(BASE))
    dialect = replace(record.recipe.dialect, metadata_dtype=dtype, metadata_scalars=2)
    recipe = replace(record.recipe, dialect=dialect)
    workload = replace(record.workload, tokens=tokens)
    stored = expected_bytes(SubjectV2(replace(record, recipe=recipe, workload=workload)))
    elements = 2 * tokens * workload.kv_heads * workload.head_dimension
    digits = 6 if tokens == 65536 else 4
    assert round(8 * sum(stored.values()) / elements, digits) == bits


def test_least_numbers_of_trials_are_those_of_a_sign_test():
    # n differences of one sign: the two-sided sign test gives 2 / 2**n.
    for level, trials in LEAST_TRIALS.items():
        assert 2 / 2**trials < 1 - level <= 2 / 2 ** (trials - 1)


@pytest.mark.parametrize(("level", "trials"), LEAST_TRIALS.items())
def test_least_number_of_trials_is_enough_and_one_less_is_not(level, trials):
    for count, expected in ((trials, None), (trials - 1, "claim-too-few-trials")):
        record = vector(count, claims=False)
        record["claims"] = [claim(record, level=level)]
        assert code(sealed(record)) == expected


def test_null_check_may_reach_its_bound_and_no_more():
    assert code(edited(BASE, ("/measurements/null_checks/1/nmse", 1e-9))) is None
    above = math.nextafter(1e-9, 1)
    assert code(edited(BASE, ("/measurements/null_checks/1/nmse", above))) == "null-check-failed"
    assert code(edited(BASE, ("/measurements/null_checks/1/nmse", -1e-12))) == "null-check-failed"


@pytest.mark.parametrize(
    ("resamples", "expected"), [(1999, "claim-kind"), (2000, None), (2001, "claim-kind")]
)
def test_resamples_are_fixed(resamples, expected):
    record = copy.deepcopy(BASE)
    record["claims"] = [claim(record, resamples=resamples)]
    assert code(sealed(record)) == expected


def test_no_effect_at_all_is_no_effect():
    record = copy.deepcopy(BASE)
    arms = record["measurements"]["arms"]
    arms[1]["trials"]["decode_us"] = list(arms[0]["trials"]["decode_us"])
    record["claims"] = record["claims"][1:]
    assert code(sealed(reclaimed(record))) == "claim-no-effect"


def test_winner_that_equals_zeros_is_no_winner():
    record = copy.deepcopy(BASE)
    baseline, selected, _ = (arm["trials"] for arm in record["measurements"]["arms"])
    for trials, factor in ((baseline, 4.0), (selected, 1.0)):
        for index, denominator in enumerate(trials["denominator"]):
            trials["numerator"][index] = factor * denominator
            trials["key_part"][index] = trials["value_part"][index] = factor * denominator / 2
            trials["cross_part"][index] = 0.0
            trials["nmse"][index] = factor
    assert code(sealed(reclaimed(record))) == "winner-loses-to-zero"


def test_clip_of_an_arm_that_is_neither_baseline_nor_selected_may_be_an_end():
    # r2 has its best ratio at 0.7; the grid that ends there keeps r0's and r1's optima inside.
    record = copy.deepcopy(BASE)
    record["recipe"]["clip_grid"] = record["recipe"]["clip_grid"][:4]
    record["recipe"]["clip_grid_size"] = 4
    for arm in record["measurements"]["arms"]:
        for name in ("clip_ratio", "objective", "query_nmse"):
            arm["calibration"][name] = arm["calibration"][name][:4]
    baseline = record["measurements"]["arms"][0]
    baseline["clip_ratio"] = 0.8
    search = baseline["calibration"]
    search["objective"][2], search["objective"][3] = search["objective"][3], search["objective"][2]
    search["query_nmse"][2], search["query_nmse"][3] = search["query_nmse"][3], search["query_nmse"][2]
    assert code(sealed(record)) is None


def test_tie_of_objectives_takes_the_first_ratio():
    record = copy.deepcopy(BASE)
    search = record["measurements"]["arms"][2]["calibration"]
    best = search["objective"].index(min(search["objective"]))
    search["query_nmse"][best - 1] = list(search["query_nmse"][best])
    search["objective"][best - 1] = search["objective"][best]
    assert code(sealed(record)) == "clip-not-best"
    record["measurements"]["arms"][2]["clip_ratio"] = search["clip_ratio"][best - 1]
    assert code(sealed(record)) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a/../b",
        "..",
        ".",
        "a//b",
        "a/",
        "./a",
        "a\\b",
        "C:/a",
        "c:a",
        "a\nb",
        "a\0b",
        "\u202ea",
        "~/../a",
    ],
)
def test_unsafe_path(path):
    assert not is_safe_path(path)


@pytest.mark.parametrize("path", ["a", "producer/backend/cuda/kernels/attend.cu", "a b", "..a/b..", "\u00e4"])
def test_safe_path(path):
    assert is_safe_path(path)


def test_sums_are_exact_and_rounded_once():
    assert mean([1e16, 1.0, -1e16, 1.0]) == 0.5
    assert population_deviation([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 5.0) == 2.0
    # Of 1 to 5: the sample deviation would be 1.5811.
    assert round(population_deviation([1.0, 2.0, 3.0, 4.0, 5.0], 3.0), 4) == 1.4142
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_baseline_may_be_any_arm_and_its_claim_stands_by_its_interval():
    record = copy.deepcopy(BASE)
    record["recipe"]["baseline"] = "r2"
    record["claims"] = [claim(record)]
    # r1 is the best of the others still; r2 is so near that eight trials do not tell them apart, or they do.
    assert code(sealed(record)) == (None if record["claims"][0]["low"] > 0 else "claim-no-effect")
