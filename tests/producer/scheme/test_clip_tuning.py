"""Tuned clips are the grid's best by the errors that `evaluation` computes, and each head has its own."""

import dataclasses

import numpy as np
import pytest

from producer.errors import SpecError
from producer.quantize import DIALECTS
from producer.scheme.clip_tuning import GRIDS, clip_grid, lowest_clips, tune_clips
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import SCHEMES
from producer.transform.transform_file import LayerTransforms
from tests.producer import made_traces as made
from tests.producer.cache_errors import head_errors

F = np.float32


def layer(seed, tokens, outliers):
    """Keys and values whose second head has channels that a clip has to cut."""
    found = made.layer(seed, tokens=tokens)
    k, v = found.k.copy(), found.v.copy()
    for x in (k, v):
        x[1, ::7, 5] *= F(outliers)
    return dataclasses.replace(found, k=k, v=v)


def scheme(**changes):
    return dataclasses.replace(SCHEMES["quarot-centred-tuned"], **{"sink": 8, "recent": 70, **changes})


def objectives(fitted_on, rotations, base, side, key_clips=None):
    """The objective of every ratio and head, by the float64 path of `evaluation`."""
    hidden = made.INFO.hidden_size
    grid = clip_grid(base.key_dialect if side == "key" else base.value_dialect)
    table = np.zeros((len(grid), 2))
    for place, ratio in enumerate(grid):
        for part in fitted_on:
            if side == "key":
                fitted = FittedLayer(base, dataclasses.replace(rotations, key_clips=(ratio,) * 2))
                found = head_errors(part, fitted.store_side("key", part.k).restored(), part.v)
                table[place] += found.divergence + found.key_part / hidden
            else:
                fitted = FittedLayer(
                    base, dataclasses.replace(rotations, key_clips=key_clips, value_clips=(ratio,) * 2)
                )
                found = head_errors(
                    part,
                    *fitted.store(part.k, part.v).restored(),
                )
                table[place] += found.value_part / hidden
    return grid, table


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key_rotation": "balanced", "value_rotation": "balanced"},
        {"key_dialect": "oscar-prefill", "value_dialect": "oscar-flush"},
        {"center_keys": False, "group_size": 16},
        # Tokens that the first of the last queries do not see yet are quantized too.
        {"recent": 20},
    ],
)
def test_the_ratios_are_the_best_of_the_grid_for_every_head(changes):
    base = scheme(**changes)
    parts = [layer(1, 150, 12), layer(2, 130, 12), made.layer(3, tokens=20)]
    fitted = fit_layer(base, parts)
    keys, values = fitted.rotations.key_clips, fitted.rotations.value_clips
    bare = dataclasses.replace(fitted.rotations, key_clips=None, value_clips=None)
    for side, clips in (("key", keys), ("value", values)):
        grid, table = objectives(parts[:2], bare, base, side, keys)
        for head, clip in enumerate(clips):
            # float32 may decide between two that are equal to 10⁻⁴, and no further ones.
            assert table[grid.index(clip), head] <= table[:, head].min() * (1 + 1e-4), (side, head)
            assert table[:, head].max() > 1.05 * table[:, head].min()


def test_heads_have_ratios_of_their_own():
    fitted = fit_layer(scheme(key_rotation="identity", value_rotation="identity"), [layer(1, 300, 40)])
    for clips in (fitted.rotations.key_clips, fitted.rotations.value_clips):
        assert clips[0] != clips[1]


def test_what_nothing_reads_keeps_the_scheme_s_ratio():
    part = made.layer(4, tokens=150)
    quiet = dataclasses.replace(part, k=np.zeros_like(part.k), v=np.zeros_like(part.v))
    fitted = fit_layer(scheme(center_keys=False, key_clip=0.7, value_clip=0.65), [quiet])
    assert (fitted.rotations.key_clips, fitted.rotations.value_clips) == ((0.7, 0.7), (0.65, 0.65))


def test_every_dialect_has_a_grid_or_is_refused():
    for name, dialect in DIALECTS.items():
        if dialect.numerics.clip_kind == "none" or dialect.numerics.group_axis == "heads":
            with pytest.raises(SpecError, match=rf"dialect '{name}' is not allowed with tuned clips"):
                clip_grid(name)
            continue
        grid = clip_grid(name)
        assert list(grid) == sorted(set(grid))
        x = np.random.default_rng(1).standard_normal((1, 3, 64)).astype(F)
        results = {dialect.dequantize(dialect.quantize(x, ratio, 64)).tobytes() for ratio in grid}
        # Off and the largest order statistic are one; every other ratio is another quantizer at 64 channels.
        assert len(results) >= len(grid) - 2
    assert GRIDS["midpoint-shrink"][0] == 0.4
    assert GRIDS["order-statistic"][:2] == (0.0, 0.8)


def test_the_lowest_ratio_is_named():
    assert lowest_clips("affine-midpoint", (0.4, 0.45, 1.0)) == [0]
    # 0 is no clip, not a low one.
    assert lowest_clips("oscar-prefill", (0.0, 0.8, 1.0)) == [1]


def test_calibrations_that_cannot_tell_are_refused():
    rotations = LayerTransforms(*(fit_layer(SCHEMES["quarot"], [made.layer(1, tokens=9)]).rotations.key,) * 2)
    with pytest.raises(SpecError, match="sequences of at most 78 tokens are not allowed with tuned clips"):
        tune_clips(scheme(), rotations, [made.layer(1, tokens=78)])
    with pytest.raises(SpecError, match="tuned clips need output weights: this calibration has none"):
        tune_clips(scheme(), rotations, [dataclasses.replace(made.layer(1, tokens=100), w_o=None)])
    with pytest.raises(SpecError, match="dialect 'kivi-key' is not allowed with tuned clips"):
        fit_layer(scheme(key_dialect="kivi-key"), [made.layer(1, tokens=100)])
