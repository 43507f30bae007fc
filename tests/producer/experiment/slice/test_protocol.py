"""The paired protocol: what makes it sound, each property looked at by itself."""

import dataclasses

import numpy as np
import pytest

from producer.backend.cpu import NumpyBackend
from producer.errors import SearchError, SpecError
from producer.experiment.slice.clip_search import ClipCurve, ClipSearch, next_ratios
from producer.experiment.slice.protocol import ProtocolRun, run_protocol, select
from producer.experiment.slice.spec import PAIRED, PUBLISHED, ClipGrid, SliceSpec

SPEC = SliceSpec(seq_len=512, num_kv_heads=2, head_dim=64, output_dim=32, seed=1)
PROTOCOL = dataclasses.replace(
    PAIRED, group_size=64, evaluation_queries=16, num_rotations=4, bootstrap_resamples=200
)


@pytest.fixture(scope="module")
def result():
    return run_protocol(SPEC, PROTOCOL, NumpyBackend(1))


def test_the_default_protocol_has_enough_of_everything():
    assert PAIRED.calibration_queries >= 8
    assert PAIRED.evaluation_queries >= 30
    assert PAIRED.num_rotations == 8
    assert PAIRED.quality_threshold == 1
    assert not PAIRED.quality_inclusive


def test_all_arms_see_the_same_queries(result):
    assert len({arm.queries_sha256 for arm in result.arms}) == 1


def test_calibration_and_evaluation_queries_differ():
    run = ProtocolRun(SPEC, PROTOCOL, NumpyBackend(1), 2**30)
    rows = {query.tobytes() for query in run.calibration}
    assert rows.isdisjoint(query.tobytes() for query in run.evaluation[0])


def test_the_optimum_is_inside_the_grid_of_every_arm(result):
    for arm in result.arms:
        assert arm.curve.ratios == result.grid
        assert arm.clip_ratio == arm.curve.best_ratio > result.grid[-1]
    assert result.grid_extended_by
    assert result.grid[: len(PROTOCOL.clips.ratios)] == list(PROTOCOL.clips.ratios)


def test_the_selected_rotation_is_the_best_of_the_calibration(result):
    objectives = [arm.curve.best_objective for arm in result.arms[1:]]
    assert result.selected == 1 + int(np.argmin(objectives))


def test_rotations_without_quantization_change_nothing(result):
    assert max(arm.null_nmse for arm in result.arms) <= 1e-9


def test_trials_and_differences_are_kept(result):
    assert result.differences[0] is None
    for arm in result.arms[1:]:
        difference = result.differences[arm.index]
        pairs = np.array(result.arms[0].nmse) - np.array(arm.nmse)
        assert difference.mean == pytest.approx(pairs.mean(), rel=1e-12)
        assert difference.low <= difference.mean <= difference.high
        assert len(arm.nmse) == len(arm.decode_us) == 16


def test_the_same_seed_gives_the_same_figures_on_any_number_of_threads(result):
    again = run_protocol(SPEC, PROTOCOL, NumpyBackend(2), resident_bytes=0)
    for arm, other in zip(result.arms, again.arms, strict=True):
        assert arm.nmse == other.nmse
        assert arm.curve == other.curve
    assert again.differences == result.differences


def test_an_arm_that_needs_a_longer_grid_extends_it_for_all():
    search = ClipSearch(ClipGrid(ratios=(1.0, 0.9), extend=True, step=0.1))
    flat, deep = ClipCurve(), ClipCurve()
    search.complete(flat, lambda ratios: [abs(ratio - 0.97) + 1 for ratio in ratios])
    search.complete(deep, lambda ratios: [(ratio - 0.58) ** 2 for ratio in ratios])
    assert flat.ratios == [1.0, 0.9]
    assert deep.best_ratio == 0.6
    search.complete(flat, lambda ratios: [abs(ratio - 0.97) + 1 for ratio in ratios])
    assert flat.ratios == deep.ratios == search.ratios == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]


def test_a_longer_grid_of_another_process_becomes_the_common_one():
    search = ClipSearch(ClipGrid(ratios=(1.0, 0.9), extend=True))
    search.adopt(ClipCurve([1.0], [1.0]))
    assert search.ratios == [1.0, 0.9]
    search.adopt(ClipCurve([1.0, 0.9, 0.8], [3.0, 2.0, 2.5]))
    assert search.ratios == [1.0, 0.9, 0.8]
    assert search.extended_by == [0.8]


def test_of_equal_objectives_the_first_ratio_stays():
    curve = ClipCurve([1.0, 0.9, 0.8], [2.0, 1.0, 1.0])
    assert curve.best_ratio == 0.9
    assert not curve.at_lower_end


def test_a_grid_goes_down_by_its_step_and_then_by_halves():
    grid = ClipGrid(ratios=(1.0,), extend=True, step=0.05, floor=0.01)
    assert next_ratios(0.2, grid) == [0.15, 0.1, 0.05, 0.025]
    assert next_ratios(0.025, grid) == [0.0125]
    assert next_ratios(0.0125, grid) == []


def test_a_search_without_an_optimum_says_so():
    search = ClipSearch(PAIRED.clips)
    with pytest.raises(SearchError, match=r"found no optimum above 0\.00625"):
        search.complete(ClipCurve(), lambda ratios: [1 + ratio for ratio in ratios])


def test_selection_reads_what_its_protocol_says():
    calibration, evaluation = [0.0, 2.0, 1.0, 3.0], [0.0, 1.0, 2.0, 0.5]
    assert select(PAIRED, calibration, evaluation) == 2
    assert select(PUBLISHED, calibration, evaluation) == 3


def test_progress_is_told_and_ends_at_the_end():
    steps = []
    run_protocol(SPEC, PROTOCOL, NumpyBackend(1), progress=lambda *step: steps.append(step))
    assert steps[0] == (0, 6, "slice")
    assert steps[-1] == (6, 6, "done")
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seq_len": 0}, "seq_len 0 is not allowed: an integer 1 … 1048576"),
        ({"seq_len": 1_048_577}, "seq_len 1048577 is not allowed"),
        ({"seq_len": True}, "seq_len True is not allowed"),
        ({"num_kv_heads": -1}, "num_kv_heads -1 is not allowed: an integer 1 … 1024"),
        ({"head_dim": 6}, "head_dim 6 is not allowed: a multiple of 4"),
        ({"output_dim": 0}, "output_dim 0 is not allowed"),
        ({"seed": 0}, "seed 0 is not allowed: an integer 1 … 4294967295"),
        ({"seed": 2**32}, "seed 4294967296 is not allowed"),
        ({"outlier_stride": 0}, "outlier_stride 0 is not allowed"),
        ({"outlier_factor": float("nan")}, "outlier_factor nan is not allowed"),
    ],
)
def test_a_slice_outside_what_is_allowed_is_refused(change, message):
    with pytest.raises(SpecError, match=message):
        dataclasses.replace(SPEC, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calibration_queries": 0}, "calibration_queries 0 is not allowed"),
        ({"evaluation_queries": 1}, "evaluation_queries 1 is not allowed: an integer 2 … 4096"),
        ({"num_rotations": 0}, "num_rotations 0 is not allowed"),
        ({"output_rotation": "none"}, "output_rotation 'none' is not allowed: one of inverse, signs-last"),
        ({"sign_source": ""}, "sign_source '' is not allowed: one of drawn, index-parity"),
        ({"selection": "x"}, "selection 'x' is not allowed: one of calibration, evaluation"),
        ({"bootstrap_resamples": -1}, "bootstrap_resamples -1 is not allowed"),
        ({"quality_threshold": 0.0}, "quality_threshold 0.0 is not allowed: above 0"),
        ({"group_size": 0}, "group_size 0 is not allowed"),
    ],
)
def test_a_protocol_outside_what_is_allowed_is_refused(change, message):
    with pytest.raises(SpecError, match=message):
        dataclasses.replace(PAIRED, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratios": ()}, "the clip grid is empty"),
        ({"ratios": (1.1,)}, "clip ratio 1.1 is not allowed: above 0, at most 1"),
        ({"ratios": (0.8, 0.9)}, "each below the one before it"),
        ({"step": 0.0}, "clip step 0.0 is not allowed"),
        ({"floor": 1.0}, "clip floor 1.0 is not allowed"),
    ],
)
def test_a_grid_outside_what_is_allowed_is_refused(change, message):
    with pytest.raises(SpecError, match=message):
        dataclasses.replace(PAIRED.clips, **change)


def test_a_group_that_does_not_divide_is_refused_before_any_work():
    with pytest.raises(SpecError, match="group_size 48 is not allowed: it must divide head_dim 64"):
        run_protocol(SPEC, dataclasses.replace(PROTOCOL, group_size=48), NumpyBackend(1))
