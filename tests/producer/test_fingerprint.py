"""Fingerprints: pinned, and computed a second time by an implementation that shares no code."""

import json
from dataclasses import replace

import numpy as np
import pytest

from producer.fingerprint import fingerprint, golden_inputs
from producer.quantize import DIALECTS
from tests.helpers import ROOT
from tests.producer import dialect_reference

PINNED = json.loads((ROOT / "testdata/vectors/fingerprints.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def inputs():
    return list(golden_inputs())


def test_every_dialect_is_pinned():
    assert list(PINNED) == list(DIALECTS) == list(dialect_reference.REFERENCE)
    assert len(set(PINNED.values())) == len(PINNED)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_fingerprint_is_the_pinned_one(name):
    assert fingerprint(DIALECTS[name]) == PINNED[name]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_second_implementation_has_the_same_fingerprint(name, inputs):
    assert dialect_reference.fingerprint(name, inputs) == PINNED[name]


def test_golden_inputs_can_be_made_anywhere(inputs):
    # Multiples of a power of two, but for the two neighbours: no library's rounding is in them.
    for name, x in inputs:
        assert x.dtype == np.float32
        assert x.shape == (32, 128)
        if name != "neighbours":
            whole = x.astype(float) * 2.0 ** (148 if name == "subnormal" else 8)
            assert np.array_equal(whole, np.rint(whole))
    words = [((index * 2654435761) & 0xFFFFFFFF) for index in (1, 2, 4096)]
    for word, value in zip(words, inputs[0][1].ravel()[[0, 1, 4095]], strict=True):
        word ^= word >> 15  # noqa: PLW2901 - the hash, step by step
        word = (word * 2246822519) & 0xFFFFFFFF  # noqa: PLW2901
        word ^= word >> 13  # noqa: PLW2901
        assert value == (sum((word >> shift) & 255 for shift in (0, 8, 16, 24)) - 510) / 256


def test_a_small_change_of_the_numerics_changes_the_fingerprint():
    oscar = DIALECTS["oscar-prefill"]
    assert fingerprint(replace(oscar, name="other", packing="consecutive")) == PINNED["oscar-prefill"]
    for change in (
        {"metadata_dtype": "float16"},
        {"dequantization_dtype": "bfloat16"},
        {"threshold": "binary-search"},
    ):
        assert fingerprint(replace(oscar, **change)) != PINNED["oscar-prefill"]
