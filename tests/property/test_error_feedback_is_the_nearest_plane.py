"""Codes with error feedback are of the nearest plane: each is best if the channels after it may be any number (E38)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from producer.quantize import DIALECTS
from producer.quantize.feedback import feedback_factors, quantize_with_feedback, takes_feedback
from tests.property.strategies import seeds

F = np.float32
names = st.sampled_from(sorted(name for name, dialect in DIALECTS.items() if takes_feedback(dialect)))
orders = st.sampled_from([2, 4, 8])
spreads = st.floats(0, 1)


def made(seed, d, spread, tokens=5, heads=2):
    """Metrics with eigenvalues over `spread` decades either way, and rows."""
    rng = np.random.default_rng(seed)
    metrics = []
    for _ in range(heads):
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        metric = (basis * 10 ** rng.uniform(-spread, spread, d)) @ basis.T
        metrics.append((metric + metric.T) / 2)
    return np.stack(metrics), rng.standard_normal((heads, tokens, d)).astype(F)


def seen(metric, first):
    """What is left of the metric for the first channels when all others are chosen best: a Schur complement."""
    head, side, rest = metric[:first, :first], metric[:first, first:], metric[first:, first:]
    return head - side @ np.linalg.solve(rest, side.T) if len(rest) else head


@given(seed=seeds, d=orders, spread=spreads)
def test_the_factors_take_the_metric_apart(seed, d, spread):
    metrics, _ = made(seed, d, spread)
    for metric, upper in zip(metrics, feedback_factors(metrics).astype(float), strict=True):
        # D follows from U: U⁻¹ A U⁻ᵀ is diagonal.
        back = np.linalg.inv(upper)
        diagonal = back @ metric @ back.T
        assert np.abs(diagonal - np.diag(np.diag(diagonal))).max() <= 1e-4 * np.abs(metric).max()
        assert np.array_equal(np.triu(upper), upper)
        assert (np.diag(upper) == 1).all()


@given(seed=seeds, d=orders, spread=spreads, name=names, clip=st.sampled_from([0.5, 0.7, 1.0]))
def test_every_code_is_the_best_of_four(seed, d, spread, name, clip):
    metrics, x = made(seed, d, spread)
    dialect = DIALECTS[name]
    found = quantize_with_feedback(dialect, x, clip, d, feedback_factors(metrics))
    plain = dialect.quantize(x, clip, d)
    for one, other in zip(found.metadata, plain.metadata, strict=True):
        assert np.array_equal(one, other)
    scale, zero = (part[..., 0].astype(float) for part in found.metadata)
    for head, metric in enumerate(metrics):
        for token in range(x.shape[1]):
            unit, offset = scale[head, token], zero[head, token]
            row, codes = x[head, token].astype(float), found.codes[head, token].astype(float)
            errors = row - (codes - offset) * unit
            for channel in range(d):
                left = seen(metric, channel + 1)
                tried = np.repeat(errors[None, : channel + 1], 4, axis=0)
                tried[:, channel] = row[channel] - (np.arange(4) - offset) * unit
                costs = np.einsum("ci,ij,cj->c", tried, left, tried)
                # float32 may decide between two that are equal to its rounding.
                assert costs[int(codes[channel])] <= costs.min() + 1e-4 * np.abs(costs).max()


# Feedback rounds to the levels that are read, a dialect to those before its scale is rounded to 16 bits.
@given(seed=seeds, d=orders, name=st.sampled_from(["oscar-prefill", "affine-midpoint"]))
def test_without_feedback_the_codes_are_the_dialects_own(seed, d, name):
    _, x = made(seed, d, 0)
    identity = np.repeat(np.eye(d, dtype=F)[None], 2, axis=0)
    dialect = DIALECTS[name]
    found, plain = quantize_with_feedback(dialect, x, 1.0, d, identity), dialect.quantize(x, 1.0, d)
    assert np.array_equal(found.codes, plain.codes)
    diagonal = feedback_factors(np.stack([np.diag(np.arange(1.0, d + 1))] * 2))
    assert np.array_equal(diagonal, identity)


@given(seed=seeds, spread=st.floats(0.5, 1))
def test_it_lowers_what_readers_see(seed, spread):
    metrics, x = made(seed, 16, spread, tokens=400)
    dialect = DIALECTS["affine-midpoint"]
    fed = quantize_with_feedback(dialect, x, 0.8, 16, feedback_factors(metrics))
    errors = [
        (dialect.dequantize(quantized) - x).astype(float) for quantized in (fed, dialect.quantize(x, 0.8, 16))
    ]
    with_feedback, nearest = (np.einsum("hti,hij,htj->h", e, metrics, e) for e in errors)
    assert (with_feedback < nearest).all()
    # The errors themselves grow: that is the price.
    assert np.square(errors[0]).sum() > np.square(errors[1]).sum()
