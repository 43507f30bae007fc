"""Error feedback in schemes: from which covariance, in which order, and where it is refused."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from producer.errors import FileFormatError, NonFiniteError, SpecError
from producer.experiment.trace.candidates import DumpCalibration, from_calibration
from producer.experiment.trace.fitted_arms import read_arms
from producer.quantize import DIALECTS, get_dialect
from producer.quantize.feedback import (
    feedback_factors,
    quantize_with_feedback,
    require_factors,
    takes_feedback,
)
from producer.scheme.export_oscar import export_oscar
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import Fitted, read_fitted, write_fitted
from producer.scheme.fitted_layer import FittedLayer, digest_of_layers
from producer.scheme.optr.inputs import read_inputs
from producer.scheme.optr.options import OptrOptions
from producer.scheme.registry import SCHEMES
from producer.transform.attention_weighted import attention_covariances, head_reads, key_pairs, value_pairs
from producer.transform.balanced import unweighted_covariances, with_ridge
from producer.transform.transform_file import LayerTransforms, write_transforms
from tests.producer import made_traces as made
from tests.producer.cache_errors import head_errors
from tests.producer.scheme.optr import made_optr

F = np.float32


def scheme(name, **changes):
    return dataclasses.replace(SCHEMES[name], **{"clips": "fixed", "sink": 4, "recent": 10, **changes})


def correlated(seed, tokens):
    """Keys of which the queries read few directions."""
    layer = made.layer(seed, tokens=tokens)
    mixing = np.diag(np.geomspace(4, 0.05, layer.q.shape[-1])).astype(F)
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal(mixing.shape))[0].astype(F)
    return dataclasses.replace(layer, q=layer.q @ (turn @ mixing))


def test_the_dialects_that_take_it():
    assert [name for name, dialect in DIALECTS.items() if takes_feedback(dialect)] == [
        "oscar-prefill",
        "oscar-prefill-bfloat16",
        "oscar-flush",
        "affine-midpoint",
    ]


def test_golden_codes():
    """By hand: scale 1, zero 0; U carries -½ and then ½ of the first error into the others."""
    x = np.array([[[0.4, 0.2, 0.7, 0.0, 3.0]]], F)
    factors = np.eye(5, dtype=F)[None].copy()
    factors[0, 0, 1:3] = -0.5, 0.5
    found = quantize_with_feedback(get_dialect("affine-midpoint"), x, 1.0, 5, factors)
    # e₀ = 0.4; 0.2 - 0.2 = 0 → 0; 0.7 + 0.2 = 0.9 → 1; nothing else is carried.
    assert found.codes.tolist() == [[[0, 0, 1, 0, 3]]]
    factors[0, 0, 1:3] = 1, -1
    found = quantize_with_feedback(get_dialect("affine-midpoint"), x, 1.0, 5, factors)
    # 0.2 + 0.4 = 0.6 → 1; 0.7 - 0.4 = 0.3 → 0.
    assert found.codes.tolist() == [[[0, 1, 0, 0, 3]]]


@pytest.mark.parametrize("name", ["balanced-feedback", "quarot-feedback", "oscar-feedback"])
def test_factors_are_those_of_the_readers(name):
    """U of M⁻¹ Σ_q M⁻ᵀ, Σ_q the weighted covariance of readers with a hundredth of its mean diagonal (E38)."""
    part = made.layer(9, tokens=80)
    fitted = fit_layer(scheme(name), [part]).rotations
    keys = part.k - fitted.key_mean[:, None]
    for side, ridge in (("key", 1e-2), ("value", 1.0)):
        plain = unweighted_covariances(side, part.q, keys, part.v, part.w_o)

        def pairs_of(head, side=side):
            reads = head_reads(part, head, 4, 10)
            return [key_pairs(reads, keys[head]) if side == "key" else value_pairs(reads, part, head)]

        readers = attention_covariances(pairs_of, plain, ridge, 0.5)[1]
        inverses = np.broadcast_to(getattr(fitted, side).inverses, readers.shape).astype(float)
        found = getattr(fitted, f"{side}_feedback").astype(float)
        for upper, back, sigma in zip(found, inverses, with_ridge(readers, 0.01), strict=True):
            diagonal = np.linalg.inv(upper) @ back @ sigma @ back.T @ np.linalg.inv(upper).T
            rest = diagonal - np.diag(np.diag(diagonal))
            assert np.abs(rest).max() <= 1e-5 * np.abs(diagonal).max()


def test_the_scheme_is_what_its_page_says():
    one = SCHEMES["balanced-feedback"]
    assert (one.balance, one.rounding) == (0.3, "feedback")
    assert dataclasses.replace(one, name="balanced", balance=0.5, rounding="nearest") == SCHEMES["balanced"]


def test_attention_is_nearer_with_it():
    parts = [correlated(seed, 160) for seed in (1, 2)]
    found = {}
    for rounding in ("nearest", "feedback"):
        fitted = fit_layer(scheme("quarot-feedback", rounding=rounding, weights="none"), parts[:1])
        errors = head_errors(parts[1], fitted.store_side("key", parts[1].k).restored(), parts[1].v)
        found[rounding] = errors.divergence.sum()
    assert found["feedback"] < 0.7 * found["nearest"]


def test_it_is_not_stored_and_costs_no_bit():
    part = made.layer(3, tokens=60)
    sides = [
        fit_layer(scheme("balanced", rounding=rounding), [part]).store_side("key", part.k)
        for rounding in ("nearest", "feedback")
    ]
    assert sides[0].stored_bytes == sides[1].stored_bytes
    assert sides[0].bits_per_element == sides[1].bits_per_element
    assert not np.array_equal(sides[0].restored(), sides[1].restored())


def test_heads_with_clips_of_their_own_keep_their_factors():
    part = made.layer(4, tokens=60)
    fitted = fit_layer(scheme("balanced-feedback"), [part])
    whole = {}
    for clips in ((0.7, 0.7), (0.9, 0.9), (0.7, 0.9)):
        changed = dataclasses.replace(fitted.rotations, key_clips=clips)
        whole[clips] = FittedLayer(fitted.scheme, changed).store_side("key", part.k).restored()
    assert np.array_equal(whole[0.7, 0.9][0], whole[0.7, 0.7][0])
    assert np.array_equal(whole[0.7, 0.9][1], whole[0.9, 0.9][1])


# --- files ---


@pytest.fixture
def written(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    one = scheme("balanced-feedback")
    layers = {index: fit_layer(one, [made.layer(index, tokens=60)]) for index in range(2)}
    fitted = Fitted(one, made.INFO, layers, (made.sequence("calibration.txt", 60, ["a" * 16, "b" * 16]),))
    path = tmp_path / "fitted.safetensors"
    write_fitted(path, fitted)
    return path, fitted


def test_factors_come_back(written):
    path, fitted = written
    found, layers, _ = read_fitted(path, made.INFO)
    assert found == fitted.scheme
    x = made.layer(7, tokens=100)
    for index in range(2):
        for side, name in (("key", "k"), ("value", "v")):
            one, other = (each[index].store_side(side, getattr(x, name)) for each in (fitted.layers, layers))
            assert np.array_equal(one.restored(), other.restored())
    assert digest_of_layers(layers) == digest_of_layers(fitted.layers)


def test_factors_that_were_transposed_are_refused(written):
    path, fitted = written
    turned = dataclasses.replace(
        fitted.layers[1].rotations, value_feedback=fitted.layers[1].rotations.value_feedback.swapaxes(1, 2)
    )
    layers = {**fitted.layers, 1: FittedLayer(fitted.scheme, turned)}
    write_fitted(path, dataclasses.replace(fitted, layers=layers))
    with pytest.raises(
        FileFormatError, match=r"layer\.1\.value\.feedback is not allowed: 1 on the diagonal and 0 below"
    ):
        read_fitted(path, made.INFO)


@pytest.mark.parametrize(
    ("rounding", "message"),
    [
        ("nearest", "has factors of error feedback for keys, but the scheme's rounding is nearest"),
        ("feedback", "has no factors of error feedback for values, but the scheme's rounding is feedback"),
    ],
)
def test_a_file_that_is_not_its_scheme_is_refused(written, rounding, message):
    path, fitted = written
    changed = dataclasses.replace(fitted.scheme, rounding=rounding)
    layers = {
        index: FittedLayer(
            changed,
            layer.rotations
            if rounding == "nearest"
            else dataclasses.replace(layer.rotations, value_feedback=None),
        )
        for index, layer in fitted.layers.items()
    }
    write_fitted(path, Fitted(changed, made.INFO, layers, fitted.calibration))
    with pytest.raises(FileFormatError, match=message):
        read_fitted(path, made.INFO)


def test_schemes_without_it_keep_their_digests():
    """States of runs and files that were written before there was error feedback stay good."""
    fitted = [fit_layer(SCHEMES[name], [made.layer(0, tokens=60)]) for name in ("int2", "quarot-centred")]
    assert [digest_of_layers([layer])[:16] for layer in fitted] == ["569fddfbdf99685a", "9454b1eb73e1251a"]
    factors = np.repeat(np.eye(32, dtype=F)[None], 2, axis=0)
    changed = dataclasses.replace(fitted[1].rotations, key_feedback=factors)
    assert digest_of_layers([FittedLayer(fitted[1].scheme, changed)]) != digest_of_layers([fitted[1]])


# --- what is refused ---


@pytest.mark.parametrize("name", [name for name, one in DIALECTS.items() if not takes_feedback(one)])
def test_other_dialects_are_refused(name):
    factors = np.eye(32, dtype=F)[None]
    with pytest.raises(SpecError, match=rf"dialect '{name}' is not allowed with error feedback"):
        quantize_with_feedback(DIALECTS[name], np.ones((1, 32, 32), F), 1.0, 32, factors)


def test_wrong_factors_and_metrics_are_refused():
    dialect = get_dialect("affine-midpoint")
    with pytest.raises(SpecError, match=r"factors \(1, 8, 8\) are not allowed with rows \(2, 3, 8\)"):
        quantize_with_feedback(dialect, np.ones((2, 3, 8), F), 1.0, 8, np.eye(8, dtype=F)[None])
    with pytest.raises(SpecError, match="it is not positive definite"):
        feedback_factors(-np.eye(3)[None])
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        feedback_factors(np.full((1, 2, 2), np.nan))
    for wrong in (np.eye(3)[None], np.eye(3, dtype=F), np.ones((1, 2, 3), F), 2 * np.eye(3, dtype=F)[None]):
        with pytest.raises(SpecError, match=r"x of dtype|x is not allowed: 1 on the diagonal"):
            require_factors(wrong, "x")


def test_optr_does_not_learn_through_it(tmp_path):
    traces = made_optr.trace(tmp_path / "training", 1, (40,)), made_optr.trace(tmp_path / "held", 500, (50,))
    wrong = dataclasses.replace(made_optr.SCHEME, rounding="feedback")
    with pytest.raises(
        SpecError, match="with error feedback is not allowed: OptR learns through the nearest"
    ):
        read_inputs(made_optr.start(), wrong, traces, OptrOptions())


def test_a_dump_without_output_weights_is_refused(tmp_path):
    made.write_dump(tmp_path, 0, heads=4, kv_heads=2, d=8)
    with pytest.raises(SpecError, match=r"it needs output weights, which the dump .* does not hold"):
        from_calibration(
            scheme("quarot-feedback", weights="none"), DumpCalibration(tmp_path, made.INFO), made.INFO
        )


def test_a_fixed_rotation_with_it_needs_a_calibration():
    one = scheme("quarot-feedback", center_keys=False)
    with pytest.raises(SpecError, match="it is fitted to a calibration, and there is none"):
        from_calibration(one, None, made.INFO)
    nearest = dataclasses.replace(one, rounding="nearest")
    assert from_calibration(nearest, None, made.INFO).sequences == ()


def test_a_balance_outside_is_refused():
    part = made.layer(1, tokens=60)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(SpecError, match=r"balance .* is not allowed: 0 … 1"):
            fit_layer(scheme("balanced", balance=wrong), [part])


def test_an_oscar_file_has_no_place_for_it(tmp_path):
    one = scheme("quarot-feedback", center_keys=False)
    layers = {0: fit_layer(one, [made.layer(1, tokens=60)])}
    fitted = Fitted(one, dataclasses.replace(made.INFO, num_layers=1), layers, ())
    for side in ("key", "value"):
        with pytest.raises(SpecError, match=f"{side} factors of error feedback are not allowed in an OSCAR"):
            export_oscar(tmp_path / "x.pt", fitted, side)
    assert not list(tmp_path.iterdir())


def test_a_record_has_no_place_for_it(written):
    path, _ = written
    evaluation = SimpleNamespace(model=made.INFO, sequences=())
    with pytest.raises(SpecError, match="error feedback is not allowed in a record"):
        read_arms([path], evaluation)


def test_files_of_transforms_hold_them(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    part = made.layer(1, tokens=60)
    rotations = fit_layer(scheme("balanced-feedback"), [part]).rotations
    assert isinstance(rotations, LayerTransforms)
    write_transforms(tmp_path / "with", {0: rotations})
    write_transforms(tmp_path / "without", {0: dataclasses.replace(rotations, key_feedback=None)})
    extra = (tmp_path / "with").stat().st_size - (tmp_path / "without").stat().st_size
    # Two heads of 32·32 float32 values, and their entry of the header.
    assert 8192 < extra < 8192 + 200
