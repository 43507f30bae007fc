"""Fingerprints: pinned, and computed a second time by an implementation that shares no code."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kvint2eval.contract.v2 import registry as contract
from producer.errors import SpecError
from producer.quantize import DIALECTS, PAIRS, get_pair
from producer.quantize.fingerprint import fingerprint, golden_inputs
from tests.helpers import ROOT
from tests.producer import dialect_reference

PINNED = json.loads((ROOT / "testdata/vectors/fingerprints.json").read_text(encoding="utf-8"))


def test_every_dialect_is_pinned():
    assert list(PINNED) == [*DIALECTS, *PAIRS]
    assert list(DIALECTS) == list(dialect_reference.REFERENCE)
    # KIVI's keys and values compute one thing along two axes; a row cannot tell them, the fingerprint does.
    assert len(set(PINNED.values())) == len(PINNED)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_fingerprint_is_the_pinned_one(name):
    assert fingerprint(DIALECTS[name]) == PINNED[name]


def test_the_contract_knows_every_two_bit_dialect_as_the_producer_computes_it():
    two_bit = [name for name, dialect in DIALECTS.items() if dialect.numerics.bits == 2]
    # A group of all heads of a token has no form in a record, whose groups divide the head dimension.
    ours = {name for name in two_bit if not name.startswith("kivi-") and name != "quarot-token-wise"} | set(
        PAIRS
    )
    assert set(contract.DIALECTS) == ours | {"quarot-token"}
    assert contract.DIALECTS["quarot-token"] == contract.DIALECTS["quarot-head-wise"]
    for name, entry in contract.DIALECTS.items():
        if name == "quarot-token":
            continue
        for dialect in get_pair(name):
            stated = {member: value for member, value in entry.items() if member != "fingerprint_sha256"}
            assert stated == {member: getattr(dialect.numerics, member) for member in stated}, name
        assert entry["fingerprint_sha256"] == PINNED[name]


def test_the_contract_knows_what_a_dialect_asks_of_groups():
    row = np.linspace(-1, 1, 64, dtype=np.float32)[None]
    for name in contract.DIALECTS.keys() - {"quarot-token"}:
        key, value = get_pair(name)
        is_by_token = [dialect.numerics.group_axis == "channels" for dialect in (key, value)]
        assert is_by_token == [name not in contract.KEY_GRANULARITIES, True]
        try:
            value.quantize(row, 1.0, 32)
        except SpecError:
            assert name in contract.ONE_GROUP_A_ROW
        else:
            assert name not in contract.ONE_GROUP_A_ROW


@pytest.mark.parametrize("name", PINNED)
def test_a_second_implementation_has_the_same_fingerprint(name):
    assert dialect_reference.fingerprint(name) == PINNED[name]


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("clip", [1.0, 0.92, 0.7])
def test_a_second_implementation_agrees_group_by_group(name, clip):
    rng = np.random.default_rng(11)
    x = rng.standard_normal((128, 128)).astype(np.float32)
    x[1::4] += 16
    x[2::4, 5] = 80
    x[3::4] = np.round(x[3::4] * 2) / 2
    dialect = DIALECTS[name]
    along_tokens = dialect.numerics.group_axis == "tokens"
    if dialect.numerics.group_axis == "heads":
        heads = np.ascontiguousarray(x[:16].reshape(16, 4, 32).swapaxes(0, 1))
        quantized = dialect.quantize(heads, clip, 128)
        for token, values in enumerate(dialect.dequantize(quantized).swapaxes(0, 1)):
            ((codes, scalars, expected),) = dialect_reference.REFERENCE[name](x[token], clip, 128)
            assert quantized.codes[:, token].ravel().tolist() == codes.tolist()
            assert [part[0, token, 0] for part in quantized.metadata] == list(scalars)
            assert values.ravel().tolist() == expected.tolist()
        return
    x = np.ascontiguousarray(x[:, :16]) if along_tokens else x[:16]
    for size in (32, 128):
        try:
            quantized = dialect.quantize(x, clip, size)
        except SpecError:
            with pytest.raises(dialect_reference.SpecError):
                list(dialect_reference.REFERENCE[name](x[0], clip, size))
            continue
        codes, values = quantized.codes, dialect.dequantize(quantized)
        if along_tokens:
            x, codes, values = x.T, codes.T, values.T
        for row, row_codes, row_values in zip(x, codes, values, strict=True):
            groups = list(dialect_reference.REFERENCE[name](row, clip, size))
            assert np.concatenate([group[0] for group in groups]).tolist() == row_codes.tolist()
            assert np.concatenate([group[2] for group in groups]).tolist() == row_values.tolist()
        if along_tokens:
            x = x.T


def test_golden_inputs_are_those_of_the_description():
    rows = np.array(list(dialect_reference.golden_rows()))
    assert rows.shape == (14, 128)
    assert (golden_inputs() == rows).all()


def test_the_published_dialect_has_the_fingerprint_of_contract_v2():
    assert (
        PINNED["symmetric-absmax-clip"] == "061125289ad9073dd06dc8ca6713a24199125c121d5b56a130c69ce57e9edb72"
    )


def test_a_small_change_of_the_numerics_changes_the_fingerprint():
    oscar = DIALECTS["oscar-prefill"]
    assert fingerprint(replace(oscar, name="other")) == PINNED["oscar-prefill"]
    for change in (
        {"metadata_dtype": "bfloat16"},
        {"dequantization_dtype": "bfloat16"},
        {"threshold": "binary-search"},
        {"packing": "consecutive"},
    ):
        assert fingerprint(replace(oscar, **change)) != PINNED["oscar-prefill"]
