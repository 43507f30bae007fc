"""docs/results/published-run.md quotes what the commands print; here they are run and compared."""

import math
import re

import pytest

from producer.backend.cpu import NumpyBackend
from producer.experiment.slice.protocol import run_protocol
from producer.experiment.slice.spec import PAIRED, SliceSpec
from producer.record.reading import parse_record
from tests.helpers import ROOT, published

PAGE = (ROOT / "docs/results/published-run.md").read_text()
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def silent(*_):
    pass


def same(printed, quoted):
    """The same words, and numbers that agree to the digits that a machine can vary."""
    if NUMBER.sub("#", printed) != NUMBER.sub("#", quoted):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(quoted), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-11) for a, b in pairs)


def test_every_finding_is_quoted(published_audit):
    quoted = [
        " ".join(line.split())
        for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
        for line in re.sub(r"\n {4}", " ", block).splitlines()
    ]
    printed = [f"{finding.code}: {finding.message}" for finding in published_audit]
    assert len(printed) == len(quoted)
    for one, other in zip(printed, quoted, strict=True):
        assert same(one, other), (one, other)


def test_the_largest_difference_is_as_said(published_fields):
    comparisons = published_fields
    assert f"{len(comparisons)} of {len(comparisons)} deterministic fields agree" in PAGE
    assert max(each.difference or 0 for each in comparisons) < 7e-6


def test_the_means_of_one_rotation_are_as_said():
    means = sorted(row.output_nmse_mean for row in parse_record(published()).metrics.candidates)
    assert f"their means run from {means[0]:.2f} to {means[-2]:.2f}" in " ".join(PAGE.split())


@pytest.fixture(scope="module")
def paired():
    return run_protocol(SliceSpec(), PAIRED, NumpyBackend(1))


def test_the_sound_answer_is_as_said(paired):
    baseline, selected = paired.arms[0], paired.arms[paired.selected]
    nmse = baseline.nmse_summary
    assert f"| no rotation | {baseline.clip_ratio:.2f} | {nmse.mean:.3f} ± {nmse.stddev:.3f} | |" in PAGE
    nmse, difference = selected.nmse_summary, paired.differences[selected.index]
    assert (
        f"| selected: rotation {selected.index} | {selected.clip_ratio:.2f} | {nmse.mean:.3f} ± "
        f"{nmse.stddev:.3f} | {difference.low:.3f} … {difference.high:.3f} |"
    ) in PAGE
    means = sorted(arm.nmse_summary.mean for arm in paired.arms[1:])
    assert {arm.clip_ratio for arm in paired.arms[1:]} == {0.65, 0.7}
    assert (
        f"| all eight rotations | 0.65 or 0.70 | {means[0]:.3f} … {means[-1]:.3f} | all above 0.42 |" in PAGE
    )
    assert min(difference.low for difference in paired.differences[1:]) > 0.42
    assert max(difference.low for difference in paired.differences[1:]) < min(
        difference.high for difference in paired.differences[1:]
    )
    assert selected.nmse_summary.mean > means[0]


def test_the_grid_went_as_far_as_said(paired):
    assert f"The grid went down to {paired.grid[-1]:g} before" in PAGE
    assert max(arm.null_nmse for arm in paired.arms) < 1.2e-11
