"""Balanced transforms: what they leave alone, their scale and condition, weights, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest

from producer.errors import NonFiniteError, SpecError
from producer.scheme.calibration import LayerCalibration
from producer.scheme.fit import fit_layer
from producer.scheme.registry import SCHEMES
from producer.transform.attention_weighted import (
    QUERIES,
    Pairs,
    attention_covariances,
    head_reads,
    key_pairs,
    value_pairs,
    weighted_balance,
)
from producer.transform.balanced import (
    CONDITION_BOUND,
    balanced_from_covariances,
    balancing,
    output_covariance,
    unweighted_covariances,
    with_ridge,
)
from producer.transform.dense import build_hadamard
from producer.transform.query_path import query_path_error
from tests.producer import made_traces as made

F = np.float32


def spd(seed, heads=2, d=8, low=0.1):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((heads, 4 * d, d)) * np.geomspace(3, low, d)
    return np.swapaxes(x, 1, 2) @ x / (4 * d)


def test_a_diagonal_pair_by_hand():
    # Σ_k = diag(a), Σ_q = diag(b): P = diag(√(b/a)), S = √(ab), least product (√4·√1 + √1·√9)² = (2 + 3)².
    keys, queries = np.diag([4.0, 1.0])[None], np.diag([1.0, 9.0])[None]
    (m,), _, (s,) = balancing(keys, queries)
    assert m @ m.T == pytest.approx(np.diag([0.5, 3.0]))
    assert s.tolist() == pytest.approx([3.0, 2.0])
    transform = balanced_from_covariances(keys, queries, ridge=0)
    # tr(Mᵀ Σ_k M) = 5 already: scale 1. With H both channels have the mean variance.
    assert transform.matrices[0].astype(float) @ transform.matrices[0].T == pytest.approx(
        np.diag([0.5, 3.0]), rel=1e-6
    )
    wide = transform.matrices[0].astype(float)
    assert np.diag(wide.T @ keys[0] @ wide) == pytest.approx([2.5, 2.5], rel=1e-6)
    assert transform.condition[0] == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize("composition", ["b", "b_h"])
def test_logits_and_outputs_stay(composition):
    layer = made.layer(1, tokens=50)
    keys = balanced_from_covariances(
        *unweighted_covariances("key", layer.q, layer.k, layer.v, None), 1e-3, composition
    )
    logits = layer.q.reshape(2, 100, 32).astype(float) @ layer.k.swapaxes(1, 2)
    turned = keys.rotate_queries(layer.q).reshape(2, 100, 32).astype(float) @ keys.rotate(layer.k).swapaxes(
        1, 2
    )
    assert np.abs(turned - logits).max() <= 1e-5 * np.abs(logits).max()
    values = balanced_from_covariances(
        *unweighted_covariances("value", layer.q, layer.k, layer.v, layer.w_o), 1e-3, composition
    )
    folded = np.repeat(values.rotate(layer.v), 2, axis=0).astype(float) @ values.fold_output(layer.w_o)
    output = np.repeat(layer.v, 2, axis=0).astype(float) @ layer.w_o
    assert np.abs(folded - output).max() <= 1e-5 * np.abs(output).max()
    assert np.abs(keys.undo(keys.rotate(layer.k)) - layer.k).max() <= 1e-5 * np.abs(layer.k).max()


def test_with_hadamard_all_channels_have_one_variance_on_both_sides():
    keys, queries = with_ridge(spd(1), 1e-3), with_ridge(spd(2), 1e-3)
    transform = balanced_from_covariances(spd(1), spd(2))
    m, inverse = transform.matrices.astype(float), transform.inverses.astype(float)
    for covariance in (m.swapaxes(1, 2) @ keys @ m, inverse @ queries @ inverse.swapaxes(1, 2)):
        variances = np.diagonal(covariance, axis1=1, axis2=2)
        assert np.ptp(variances, axis=1).max() <= 1e-5 * variances.max()


def test_the_output_covariance_is_a_sum_over_the_group():
    w_o = made.weights(3)
    expected = [
        sum(w_o[j].astype(float) @ w_o[j].T.astype(float) for j in (2 * kv, 2 * kv + 1)) for kv in (0, 1)
    ]
    assert output_covariance(w_o, 2) == pytest.approx(np.array(expected))
    with pytest.raises(SpecError, match="needs output weights: this calibration has none"):
        output_covariance(None, 2)


def changed(sigma, change):
    sigma = sigma.copy()
    change(sigma)
    return sigma


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            changed(spd(1), lambda s: s[1].__setitem__((0, 1), 9)),
            r"Σ_k of head 1 is not allowed: max\|Σ - Σᵀ\|",
        ),
        (spd(1) - 3 * np.eye(8), "Σ_k of head 0 is not allowed: its least eigenvalue is -"),
        (changed(spd(1), lambda s: s[1].fill(0)), "Σ_k of head 1 is not allowed: it is zero"),
        (spd(1).astype(F), "Σ_k of dtype float32"),
        (spd(1)[0], r"shape \(8, 8\) is not allowed"),
        (spd(1, heads=3), r"Σ_k \(3, 8, 8\) and Σ_q \(2, 8, 8\) are not allowed"),
    ],
)
def test_what_is_no_covariance_is_refused(keys, message):
    with pytest.raises(SpecError, match=message):
        balanced_from_covariances(keys, spd(2))


def test_other_arguments_are_refused():
    with pytest.raises(NonFiniteError, match="Σ_q of head 1 holds NaN or infinity"):
        balanced_from_covariances(spd(1), changed(spd(2), lambda s: s[1].__setitem__((0, 0), np.nan)))
    with pytest.raises(SpecError, match="composition 'h_b' is not allowed: one of b_h, b"):
        balanced_from_covariances(spd(1), spd(2), composition="h_b")
    with pytest.raises(SpecError, match="ridge nan is not allowed: 0 or above"):
        balanced_from_covariances(spd(1), spd(2), ridge=math.nan)
    with pytest.raises(
        SpecError, match="head_dim 6 has no Hadamard matrix here: composition b works without one"
    ):
        balanced_from_covariances(spd(1, d=6), spd(2, d=6))
    assert balanced_from_covariances(spd(1, d=6), spd(2, d=6), composition="b").head_dim == 6
    flat = np.ones((1, 4, 4))
    with pytest.raises(SpecError, match="it is not positive definite; a ridge above 0 makes it so"):
        balanced_from_covariances(flat, flat, ridge=0)
    assert balanced_from_covariances(flat, flat).head_dim == 4


def test_a_condition_that_float32_cannot_hold_is_refused():
    def ends(condition):
        return np.diag([1.0, condition**2, 1.0, 1.0])[None], np.diag([condition**2, 1.0, 1.0, 1.0])[None]

    below = balanced_from_covariances(*ends(0.99 * CONDITION_BOUND), ridge=0)
    assert below.condition[0] == pytest.approx(0.99 * CONDITION_BOUND, rel=1e-3)
    with pytest.raises(SpecError, match=r"head 0: condition number 8.47e\+03 is not allowed: at most 8389"):
        balanced_from_covariances(*ends(1.01 * CONDITION_BOUND), ridge=0)
    # With the ridge nothing comes near: √(1 + d/ridge), reached by no pair.
    for seed in range(5):
        worst = balanced_from_covariances(
            spd(seed, low=1e-9), spd(9 + seed, low=1e-9)[:, ::-1, ::-1], ridge=1e-3
        )
        assert worst.condition.max() <= math.sqrt(1 + 8 / 1e-3)
    assert worst.condition.max() > 5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_queries_in_16_bits_stay_within_their_bound(dtype):
    layer = made.layer(4, tokens=60)
    k = layer.k - layer.k.mean(axis=1, keepdims=True)
    balanced = balanced_from_covariances(*unweighted_covariances("key", layer.q, k, layer.v, None))
    for transform in (balanced, build_hadamard(32)):
        found = query_path_error(transform, layer.q, k, dtype)
        assert found.relative.shape == (2,)
        assert (found.relative <= found.bound).all()
        # Errors of many channels are no worst case, but none is left out either.
        assert (found.relative >= 0.02 * found.bound).all()
    rounded = query_path_error(build_hadamard(32), layer.q, k, "bfloat16").relative
    # Errors even within half a last place: relative 2⁻⁹·0.8 or so of each channel, and of the logit.
    assert (np.log2(rounded) > -10).all()
    assert (np.log2(rounded) < -8).all()


# --- weights by attention ---


def p_by_hand(layer, head, t):
    kv = head // 2
    scores = layer.q[head, t].astype(float) @ layer.k[kv, : t + 1].T.astype(float) * layer.scaling
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def test_keys_are_weighted_with_p_times_1_minus_p_where_they_are_quantized():
    layer = made.layer(5, tokens=40)
    pairs = key_pairs(head_reads(layer, 1, 4, 10), layer.k[1])
    positions = range(14, 40)
    assert pairs.weights.shape == (2 * len(positions), 40)
    for row, (head, t) in enumerate((head, t) for head in (2, 3) for t in positions):
        p = p_by_hand(layer, head, t)
        expected = np.zeros(40)
        # Tokens 0 … 3 are in the sink, the last ten up to t itself recent.
        expected[4 : t - 9] = (p * (1 - p))[4 : t - 9]
        assert pairs.weights[row] == pytest.approx(expected, rel=1e-4, abs=1e-9)
        assert (pairs.readers[row] == layer.q[head, t]).all()
    assert (pairs.weights.sum(axis=1) > 0).all()


def test_values_are_weighted_with_the_squares_of_p_by_query_head():
    layer = made.layer(6, tokens=40)
    pairs = value_pairs(head_reads(layer, 0, 4, 10), layer, 0)
    expected = np.zeros((2, 40))
    for head in (0, 1):
        for t in range(14, 40):
            expected[head, 4 : t - 9] += p_by_hand(layer, head, t)[4 : t - 9] ** 2
    count = len(pairs.readers) // 2
    for head in (0, 1):
        part = slice(head * count, (head + 1) * count)
        assert pairs.weights[part] == pytest.approx(np.tile(expected[head], (count, 1)), rel=1e-4, abs=1e-9)
        w = layer.w_o[head].astype(float)
        assert pairs.readers[part].T @ pairs.readers[part] == pytest.approx(w @ w.T)


def test_positions_are_spread_over_long_sequences():
    layer = made.layer(7, tokens=600)
    pairs = key_pairs(head_reads(layer, 0, 4, 10), layer.k[0])
    assert pairs.weights.shape == (2 * QUERIES, 600)
    # The first position reads one quantized token, the last one all of them.
    assert np.count_nonzero(pairs.weights[0]) == 1
    assert np.count_nonzero(pairs.weights[QUERIES - 1]) == 586


def test_weights_that_read_nothing_are_refused():
    layer = made.layer(8, tokens=40)
    with pytest.raises(
        SpecError, match="sequences of at most 40 tokens are not allowed with attention weights"
    ):
        LayerCalibration([layer]).weighted("key", centred=False, windows=(10, 30), ridge=1e-3, shrinkage=0.0)
    with pytest.raises(SpecError, match="none is above 0, so no quantized token is read"):
        weighted_balance(
            [Pairs(np.ones((1, 2)), np.ones((3, 2)), np.zeros((1, 3), F))], (np.eye(2), np.eye(2))
        )
    with pytest.raises(SpecError, match="needs output weights"):
        value_pairs(head_reads(layer, 0, 4, 10), dataclasses.replace(layer, w_o=None), 0)


def test_weights_change_the_transform_and_lower_what_they_weigh():
    scheme = dataclasses.replace(SCHEMES["balanced-attention"], clips="fixed", sink=4, recent=10)
    plain = dataclasses.replace(scheme, weights="none")
    parts = [made.layer(seed, tokens=80) for seed in (9, 10)]
    fitted, other = fit_layer(scheme, parts).rotations, fit_layer(plain, parts).rotations
    for side in ("key", "value"):
        for head in (0, 1):
            if side == "key":
                centred = [part.k - fitted.key_mean[:, None] for part in parts]
                pairs = [
                    key_pairs(head_reads(part, head, 4, 10), k[head])
                    for part, k in zip(parts, centred, strict=True)
                ]
            else:
                pairs = [value_pairs(head_reads(part, head, 4, 10), part, head) for part in parts]

            def weighed(transform, head=head, pairs=pairs):
                m, inverse = transform.matrices[head].astype(float), transform.inverses[head].astype(float)
                return sum(part.objective_and_weights(m, inverse)[0] for part in pairs)

            assert weighed(getattr(fitted, side)) < weighed(getattr(other, side))


def test_weights_for_keys_alone_leave_the_values():
    part = made.layer(11, tokens=400)
    schemes = {
        name: dataclasses.replace(SCHEMES[name], clips="fixed") for name in SCHEMES if "balanced" in name
    }
    plain, both, keys = (
        fit_layer(schemes[name], [part]).rotations
        for name in ("balanced-plain", "balanced-attention", "balanced-attention-keys")
    )
    assert (keys.key.sha256, keys.value.sha256) == (both.key.sha256, plain.value.sha256)
    assert keys.key.sha256 != plain.key.sha256
    assert keys.value.sha256 != both.value.sha256


def test_balanced_takes_the_shrinkage_and_the_ridges_of_its_page():
    """Half of the plain covariances on both sides; ridges of 0.01 for keys and 1 for values (E37)."""
    scheme = dataclasses.replace(SCHEMES["balanced"], clips="fixed", sink=4, recent=10)
    part = made.layer(9, tokens=80)
    fitted = fit_layer(scheme, [part]).rotations
    keys = part.k - fitted.key_mean[:, None]
    for side, ridge in (("key", 1e-2), ("value", 1.0)):
        plain = unweighted_covariances(side, part.q, keys, part.v, part.w_o)

        def digest(shrinkage, ridge, side=side, plain=plain):
            def pairs_of(head):
                reads = head_reads(part, head, 4, 10)
                is_key = side == "key"
                return [key_pairs(reads, keys[head]) if is_key else value_pairs(reads, part, head)]

            weighted = attention_covariances(pairs_of, plain, ridge, shrinkage)
            return balanced_from_covariances(*weighted, ridge).sha256

        assert getattr(fitted, side).sha256 == digest(0.5, ridge)
        assert getattr(fitted, side).sha256 not in {digest(0.0, ridge), digest(0.5, 0.1)}
