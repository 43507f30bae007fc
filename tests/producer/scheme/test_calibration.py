"""Statistics of a calibration layer: each computed once, whoever asks, and the same as when a scheme is alone."""

import dataclasses

import numpy as np
import pytest

from producer.errors import SpecError
from producer.experiment.trace.candidates import TraceCalibration, fit_candidates, from_calibration
from producer.scheme import calibration as statistics
from producer.scheme import window_attention
from producer.scheme.calibration import LayerCalibration
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import digest_of_layers
from producer.scheme.registry import SCHEMES
from producer.trace.files import Trace, read_trace
from tests.producer import made_traces as made

PARTS = [made.layer(1, tokens=400), made.layer(2, tokens=360)]


def counted(monkeypatch, module, name):
    calls = []
    original = getattr(module, name)

    def call(*arguments, **named):
        calls.append(arguments)
        return original(*arguments, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def test_schemes_that_share_statistics_are_fitted_as_each_alone():
    shared = LayerCalibration(PARTS)
    for name, scheme in SCHEMES.items():
        together, alone = fit_layer(scheme, shared), fit_layer(scheme, PARTS)
        assert digest_of_layers([together]) == digest_of_layers([alone]), name


def test_statistics_are_computed_once(monkeypatch):
    weighted = counted(monkeypatch, statistics, "attention_covariances")
    reads = counted(monkeypatch, statistics, "head_reads")
    moments = counted(monkeypatch, statistics, "covariance")
    means = counted(monkeypatch, statistics, "key_mean")
    exact = counted(monkeypatch, window_attention, "static_split")
    shared = LayerCalibration(PARTS)
    for scheme in SCHEMES.values():
        fit_layer(scheme, shared)
    # Keys: with and without a mean at one shrinkage and ridge, and without shrinkage. Values: the two settings.
    assert len(weighted) == 5
    # Two sequences of two KV heads.
    assert len(reads) == 4
    assert sorted(call[0] for call in moments) == ["ktk", "ktk", "qqt", "sst", "vtv"]
    assert len(means) == 1
    # Two sequences, keys with and without a mean.
    assert len(exact) == 4


def test_long_calibrations_are_not_kept(monkeypatch):
    monkeypatch.setattr(statistics, "KEPT_BYTES", 0)
    reads = counted(monkeypatch, statistics, "head_reads")
    shared = LayerCalibration(PARTS)
    names = ("balanced-clip", "balanced-attention")
    found = [fit_layer(dataclasses.replace(SCHEMES[name], clips="fixed"), shared) for name in names]
    assert len(reads) == 4 * 4
    alone = [fit_layer(dataclasses.replace(SCHEMES[name], clips="fixed"), PARTS) for name in names]
    assert digest_of_layers(found) == digest_of_layers(alone)


def test_a_layer_of_a_calibration_is_read_once_for_all_schemes(tmp_path, monkeypatch):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    trace = read_trace(made.write_trace(tmp_path / "calibration", 100))
    calibration = TraceCalibration(trace)
    candidates = [from_calibration(scheme, calibration, trace.model) for scheme in SCHEMES.values()]
    read = counted(monkeypatch, Trace, "layer")
    fitted = fit_candidates(candidates, 1)
    assert [call[1:] for call in read] == [(1, index) for index in range(len(trace.sequences))]
    assert [layer.scheme.name for layer in fitted] == list(SCHEMES)


def test_sequences_are_taken_together():
    shared = LayerCalibration(PARTS)
    both = np.concatenate([part.k for part in PARTS], axis=1)
    assert shared.key_mean == pytest.approx(both.mean(axis=1), rel=1e-5, abs=1e-6)
    assert (shared.joined.k == both).all()
    with pytest.raises(SpecError, match="no calibration sequence"):
        LayerCalibration([])
