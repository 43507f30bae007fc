"""Schemes written as TOML: what a table means, and what is said of one that is not allowed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import SpecError
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_layer import FittedLayer, digest_of_layers
from producer.scheme.own_scheme import OwnScheme, content_of, parse_schemes, read_schemes
from producer.scheme.registry import SCHEMES, Scheme
from tests.producer import made_traces as made


def parsed(text):
    (own,) = parse_schemes(text)
    return own


def test_a_table_changes_a_plain_scheme_field_by_field():
    own = parsed(
        '{name = "mine", centred = true, keys = {transform = "quarot", bits = 3, group_size = 16, clip = 0.9}, '
        'values = {dialect = "oscar-prefill", clip = 0.92, group_size = 32}, windows = {sink = 4, recent = 8}}'
    )
    assert own == OwnScheme(
        Scheme(
            name="mine",
            key_rotation="quarot",
            center_keys=True,
            key_dialect="affine-midpoint-3bit",
            value_dialect="oscar-prefill",
            key_clip=0.9,
            value_clip=0.92,
            group_size=16,
            value_group_size=32,
            sink=4,
            recent=8,
        )
    )


def test_a_table_may_begin_with_a_scheme_of_the_registry():
    assert (
        dataclasses.replace(parsed('{name = "b", base = "balanced"}').scheme, name="balanced")
        == SCHEMES["balanced"]
    )
    four = parsed('{name = "b", base = "balanced", keys = {bits = 4}, values = {bits = 4}}').scheme
    assert (four.key_dialect, four.clips, four.weights) == ("affine-midpoint-4bit", "tuned", "attention")
    kivi = parsed(
        '{name = "k", keys = {dialect = "kivi", group_size = 32}, values = {dialect = "kivi"}}'
    ).scheme
    assert dataclasses.replace(kivi, name="kivi") == SCHEMES["kivi"]
    # What a ratio means changes with the dialect: without one there is no clip.
    other = parsed('{name = "o", base = "quarot-centred-midpoint", keys = {dialect = "oscar-flush"}}').scheme
    assert (other.key_clip, other.value_clip) == (0.0, 0.7)


def test_layers_have_what_their_tables_say():
    own = parsed(
        '{name = "l", keys = {bits = 3}, layers = [{layers = [0, -1], keys = {bits = 8}, values = {bits = 8}}, '
        '{layers = [1], centred = true}, {layers = [1], keys = {transform = "hadamard"}}]}'
    )
    found = own.of_layers(4)
    assert [scheme.key_dialect[-4:] for scheme in found] == ["8bit", "3bit", "3bit", "8bit"]
    assert [scheme.key_rotation for scheme in found] == ["identity", "hadamard", "identity", "identity"]
    # Each table changes the scheme, not what an earlier table made of a layer.
    assert [scheme.center_keys for scheme in found] == [False] * 4
    assert content_of(own)[1] == {"layers": [1], "center_keys": True}
    with pytest.raises(SpecError, match="scheme 'l': layers: found 1, allowed: -1 … 0"):
        own.of_layers(1)


def test_a_file_holds_one_scheme_or_several(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "one"\n[keys]\nbits = 4\n')
    assert [own.scheme.name for own in read_schemes(path)] == ["one"]
    path.write_text('[[scheme]]\nname = "one"\n[[scheme]]\nname = "two"\nkeys = {bits = 8}\n')
    assert [own.scheme.key_dialect for own in read_schemes(path)] == [
        "affine-midpoint",
        "affine-midpoint-8bit",
    ]
    for text, message in (
        ('[[scheme]]\nname = "a"\n[[scheme]]\nname = "a"\n', "name: found 'a' twice"),
        ('kind = 1\n[[scheme]]\nname = "a"\n', "scheme: found kind beside it"),
        ("scheme = 3\n", "scheme: found an integer beside it"),
        ("name = \n", "not TOML"),
    ):
        path.write_text(text)
        with pytest.raises(SpecError, match=message) as caught:
            read_schemes(path)
        assert str(caught.value).startswith(f"{path}: ")
    path.write_bytes(b"\xff")
    with pytest.raises(SpecError, match="not TOML"):
        read_schemes(path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{keys = {bits = 3}}", "name: found nothing, allowed: the name of the scheme"),
        ('{name = "a/b"}', "name: found 'a/b', allowed: a name of letters"),
        ('{name = "quarot"}', "name: found 'quarot', allowed: a name that no scheme of the registry has"),
        ('{name = "m", base = "oscars"}', "base: found 'oscars', allowed: int2, int2-clip"),
        ('{name = "m", keyz = 1}', "keyz: found a key that is not known, allowed: name, base, centred"),
        ('{name = "m", keys = 3}', "keys: found 3, allowed: a table"),
        (
            '{name = "m", keys = {clipp = 3}}',
            "keys.clipp: found a key that is not known, allowed: transform, dialect",
        ),
        (
            '{name = "m", keys = {bits = 5}}',
            "keys.bits: found 5, allowed: 2, 3, 4, 8 with the dialect 'affine-midpoint'",
        ),
        (
            '{name = "m", keys = {dialect = "rotatekv", bits = 4}}',
            "keys.bits: found 4, allowed: 2 with the dialect",
        ),
        ('{name = "m", keys = {bits = true}}', "keys.bits: found True, allowed: an integer, 1 or more"),
        (
            '{name = "m", keys = {dialect = "int4"}}',
            "keys.dialect: found 'int4', allowed: symmetric-absmax-clip",
        ),
        (
            '{name = "m", values = {transform = "file"}}',
            "values.transform: found 'file', allowed: identity, hadamard",
        ),
        ('{name = "m", keys = {clip = 1.5}}', 'keys.clip: found 1.5, allowed: a number, 0 … 1, or "tuned"'),
        (
            '{name = "m", keys = {clip = 0}}',
            "keys.clip: found 0.0, allowed: above 0, at most 1 with the dialect",
        ),
        (
            '{name = "m", keys = {dialect = "lloyd-max", clip = 0.5}}',
            "keys.clip: found 0.5, allowed: 1, since there is no",
        ),
        (
            '{name = "m", keys = {clip = "tuned"}}',
            "keys.clip: found 'tuned', allowed: \"tuned\" for keys and values",
        ),
        (
            '{name = "m", base = "balanced", keys = {clip = 0.7}}',
            "keys.clip: found 0.7, allowed: a ratio for keys and for",
        ),
        (
            '{name = "m", keys = {dialect = "kivi", group_size = 32, clip = "tuned"}, values = {clip = "tuned"}}',
            "keys.clip: found 'tuned', allowed: 1: kivi-key has no clip by head",
        ),
        (
            '{name = "m", keys = {dialect = "kivi", group_size = 32}, windows = {sink = 50}}',
            "windows.sink: found 50, allowed: a multiple of 32, the tokens of a group of keys",
        ),
        ('{name = "m", windows = {sink = -1}}', "windows.sink: found -1, allowed: an integer, 0 or more"),
        (
            '{name = "m", windows = {last = 1}}',
            "windows.last: found a key that is not known, allowed: sink, recent",
        ),
        (
            '{name = "m", rounding = "feedback", keys = {bits = 3}}',
            "keys.dialect: found 'affine-midpoint-3bit', allowed",
        ),
        (
            '{name = "m", covariances = {weights = "all"}}',
            "covariances.weights: found 'all', allowed: none, attention",
        ),
        (
            '{name = "m", covariances = {shrinkage = 2}}',
            "covariances.shrinkage: found 2, allowed: a number, 0 … 1",
        ),
        (
            '{name = "m", layers = [{keys = {bits = 3}}]}',
            "layers[0].layers: found nothing, allowed: the layers",
        ),
        (
            '{name = "m", layers = [{layers = [1], windows = {}}]}',
            "layers[0].windows: found a key that is not known",
        ),
        (
            '{name = "m", layers = [{layers = ["a"]}]}',
            "layers[0].layers: found an array, allowed: an array of",
        ),
        (
            '{name = "m", keys = {group_size = 32}, values = {group_size = 0}}',
            "values.group_size: found 0, allowed",
        ),
        ("{name = }", "not a TOML table"),
        ("[1]", "found an array, allowed: a table"),
    ],
)
def test_a_fault_is_named_by_its_key(table, message):
    with pytest.raises(SpecError) as caught:
        parse_schemes(table)
    assert f"--scheme: {message}" in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["name", "base", "keys", "values", "layers", "bits", "clip", "dialect", "windows", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_table_raises_anything_else(content):
    from producer.scheme.own_scheme import _schemes  # noqa: PLC0415 - what both ways of writing end in

    try:
        found = _schemes(content, "here")
    except SpecError as error:
        message = str(error)
    else:
        assert all(isinstance(own, OwnScheme) for own in found)
        return
    assert message.startswith("here: ")


def test_the_content_of_a_scheme_decides_its_digest_and_not_its_name():
    def digest(table):
        calibration = [made.layer(3, tokens=100)]
        return digest_of_layers([fit_layer(scheme, calibration) for scheme in parsed(table).of_layers(2)])

    one = digest('{name = "a", keys = {bits = 3}}')
    assert digest('{name = "b", keys = {dialect = "affine-midpoint-3bit"}}') == one
    assert digest('{name = "a", keys = {bits = 3}, layers = [{layers = [1], keys = {bits = 4}}]}') != one
    assert digest('{name = "a", keys = {bits = 3, clip = 0.9}}') != one
    assert digest('{name = "a", keys = {bits = 3, group_size = 16}}') != one
    assert digest('{name = "a", keys = {bits = 3}, values = {group_size = 16}}') != one


def test_groups_of_keys_and_values_apart():
    own = parsed('{name = "g", keys = {group_size = 8}, values = {group_size = 16}}').scheme
    layer = made.layer(5, tokens=400)
    fitted = fit_layer(own, [made.layer(6, tokens=100)])
    keys, values = fitted.store_side("key", layer.k), fitted.store_side("value", layer.v)
    # Two float32 scalars a group: 2 + 64/8 and 2 + 64/16 bits between the windows of 16.
    assert float(keys.bits_per_element) == (80 * 10 + 320 * 16) / 400
    assert float(values.bits_per_element) == (80 * 6 + 320 * 16) / 400
    assert isinstance(fitted, FittedLayer)
    assert np.isfinite(values.restored()).all()
