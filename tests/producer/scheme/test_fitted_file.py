"""Files of fitted schemes: they come back whole, and each fault of one is refused."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from producer.errors import FileFormatError, SpecError
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import Fitted, read_fitted, read_fitted_file, write_fitted
from producer.scheme.fitted_layer import FittedLayer, digest_of_layers
from producer.scheme.registry import SCHEMES, Scheme
from producer.trace.texts import require_disjoint
from producer.transform.dense import DenseRotation, build_hadamard, build_identity, build_quarot
from producer.transform.transform_file import LayerTransforms
from tests.helpers import ROOT
from tests.producer import made_traces as made

PINNED = json.loads((ROOT / "testdata/vectors/fingerprints.json").read_text(encoding="utf-8"))
safetensors = pytest.importorskip("safetensors.numpy", reason="the extra `trace` is not installed")


def fitted(name="oscar-centred"):
    scheme = SCHEMES[name]
    layers = {index: fit_layer(scheme, [made.layer(index, tokens=60)]) for index in range(2)}
    return Fitted(scheme, made.INFO, layers, (made.sequence("calibration.txt", 60, ["a" * 16, "b" * 16]),))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fitted.safetensors"


def test_what_was_fitted_comes_back(path):
    written = fitted()
    write_fitted(path, written)
    scheme, layers, calibration = read_fitted(path, made.INFO)
    assert scheme == written.scheme
    assert calibration == written.calibration
    x = made.layer(7, tokens=400)
    for index in range(2):
        for side, name in (("key", "k"), ("value", "v")):
            one, other = (
                found[index].store_side(side, getattr(x, name)) for found in (written.layers, layers)
            )
            assert (one.restored() == other.restored()).all()
    with pytest.raises(SpecError, match=r"contaminated: evaluation text 'other\.txt'"):
        require_disjoint(calibration, [made.sequence("other.txt", 60, ["b" * 16])])


def test_a_file_of_another_model_is_refused_and_a_renamed_one_is_not(path):
    write_fitted(path, fitted())
    read_fitted(path, dataclasses.replace(made.INFO, name="renamed"))
    for change in (
        {"weights_sha256": "ef" * 32},
        {"config_sha256": "ef" * 32},
        {"tokenizer_sha256": "ef" * 32},
        {"dtype": "bfloat16"},
        {"versions": ("torch 1",)},
        {"num_heads": 2},
        {"scaling": 1.0},
        {"layer_scaling": (1.0, 2.0)},
    ):
        with pytest.raises(FileFormatError, match=r"fitted to 'made', not to 'made': .* instead of"):
            read_fitted(path, dataclasses.replace(made.INFO, **change))


def rewritten(path, change):
    """Write a file whose metadata were changed."""
    write_fitted(path, fitted())
    with safetensors.safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        held = dict(file.metadata())
    for name, new in change.items():
        if callable(new):
            content = json.loads(held[name])
            held[name] = json.dumps(new(content) or content)
        elif new is None:
            del held[name]
        else:
            held[name] = new
    safetensors.save_file(tensors, path, held)
    return path


def test_a_file_from_before_a_field_was_there_means_its_default(path):
    def older(scheme):
        return {name: value for name, value in scheme.items() if name not in {"balance", "rounding"}}

    found, _, _ = read_fitted(rewritten(path, {"scheme": older}), made.INFO)
    assert found == SCHEMES["oscar-centred"]
    assert (found.balance, found.rounding) == (0.5, "nearest")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme": None}, "scheme of the metadata cannot be read: KeyError"),
        ({"scheme": "{"}, "scheme of the metadata cannot be read"),
        ({"scheme": "[]"}, "scheme of the metadata is not allowed: found list, allowed dict"),
        ({"scheme": lambda s: s.update(more=1)}, "scheme with more missing or unknown is not allowed"),
        ({"scheme": lambda s: s.pop("sink") and None}, "scheme with sink missing or unknown"),
        ({"scheme": lambda s: s.update(sink=True)}, "scheme: sink True is not allowed: int"),
        (
            {"scheme": lambda s: s.update(key_rotation="best")},
            "key_rotation 'best' is not allowed: identity, hadamard",
        ),
        ({"scheme": lambda s: s.update(key_dialect="int3")}, "scheme: dialect 'int3' is not allowed: one of"),
        (
            {"scheme": lambda s: s.update(center_keys=False)},
            "layer 0 has a key mean, but center_keys is False",
        ),
        (
            {"scheme": lambda s: s.update(clips="tuned")},
            "has no clip ratios by head for keys, but the scheme's clips are",
        ),
        (
            {"scheme": lambda s: s.update(value_rotation="quarot")},
            "value transforms of kind oscar, but the scheme's are",
        ),
        (
            {"fingerprints": lambda f: f.update({"oscar-prefill": "00"})},
            "dialects oscar-prefill are not allowed: their",
        ),
        ({"model": lambda m: m.update(num_layers=3)}, "tensor layer.2.key.matrix is missing"),
        (
            {"model": lambda m: m.update(num_layers=1)},
            "layer.1.key.eigenvalues is not allowed: layers 0 … 0 alone",
        ),
        ({"model": lambda m: m.update(num_layers="2")}, "num_layers '2' of a model is no int"),
        (
            {"model": lambda m: m.update(more=1)},
            "the model or the calibration is not as it is written: TypeError",
        ),
        (
            {"model": lambda m: m.pop("config_sha256") and None},
            "written by an earlier version, which names its model by the weights alone .* fit it again",
        ),
        ({"calibration": "[]"}, "0 calibration sequences are not allowed"),
        ({"calibration": "[3]"}, "the model or the calibration is not as it is written: TypeError"),
    ],
)
def test_faults_of_a_file_are_refused(path, change, message):
    with pytest.raises(FileFormatError, match=message):
        read_fitted_file(rewritten(path, change))


def test_layers_that_are_missing_are_not_written(path):
    whole = fitted()
    with pytest.raises(SpecError, match=r"layers \[0\] are not allowed: 0 … 1, those of the model"):
        write_fitted(path, dataclasses.replace(whole, layers={0: whole.layers[0]}))
    assert not path.exists()


def test_clip_ratios_of_heads_come_back(path):
    whole = fitted()
    scheme = dataclasses.replace(whole.scheme, clips="tuned", key_dialect="affine-midpoint")
    layers = {
        index: FittedLayer(
            scheme, dataclasses.replace(layer.rotations, key_clips=(0.55, 0.6), value_clips=(0.9, 1.0))
        )
        for index, layer in whole.layers.items()
    }
    write_fitted(path, dataclasses.replace(whole, scheme=scheme, layers=layers))
    _, read, _ = read_fitted(path, made.INFO)
    assert read[1].rotations.key_clips == (0.55, 0.6)
    k = made.layer(7, tokens=400).k
    head = FittedLayer(
        Scheme(**{**dataclasses.asdict(scheme), "key_clip": 0.6, "clips": "fixed"}), whole.layers[1].rotations
    )
    assert (read[1].store_side("key", k).restored()[1] == head.store_side("key", k).restored()[1]).all()
    assert not np.array_equal(
        read[1].store_side("key", k).restored()[0], head.store_side("key", k).restored()[0]
    )


def _free(name="quarot"):
    scheme = SCHEMES[name]
    layers = {index: fit_layer(scheme, [made.layer(index, tokens=60)]) for index in range(2)}
    return Fitted(scheme, made.INFO, layers, (made.sequence("calibration.txt", 60, ["a" * 16]),))


@pytest.mark.parametrize("named", ["quarot", "hadamard", "identity"])
def test_a_closed_form_is_built_again_and_compared(path, named):
    """A file that says QuaRot and holds the identity, and each other such pair, is told from the name."""
    builders = {"quarot": build_quarot, "hadamard": build_hadamard, "identity": build_identity}
    scheme = dataclasses.replace(SCHEMES["quarot"], key_rotation=named, value_rotation=named)
    right = builders[named](made.INFO.head_dim)
    held = (
        right.matrices[:, ::-1].copy() if named != "identity" else build_quarot(made.INFO.head_dim).matrices
    )
    for matrices, is_right in ((right.matrices, True), (held, False), (-right.matrices, False)):
        transform = DenseRotation(kind=named, matrices=matrices.copy())
        layers = {index: FittedLayer(scheme, LayerTransforms(right, transform)) for index in range(2)}
        write_fitted(path, Fitted(scheme, made.INFO, layers, _free().calibration))
        if is_right:
            read_fitted(path, made.INFO)
            continue
        message = (
            rf"layer\.0\.value\.matrix of head 0 is not allowed: the file says '{named}', whose matrix for 32"
        )
        with pytest.raises(FileFormatError, match=message):
            read_fitted(path, made.INFO)


@pytest.mark.parametrize(
    ("name", "side", "ratio", "allowed"),
    [
        ("centred-tuned", "key", 0.0, "above 0, at most 1"),
        ("quarot-tuned", "value", 0.0, "above 0, at most 1"),
    ],
)
def test_a_clip_that_its_dialect_does_not_take_is_named(path, name, side, ratio, allowed):
    scheme = SCHEMES[name]
    written = {index: fit_layer(scheme, [made.layer(index, tokens=400)]) for index in range(2)}
    clips = getattr(written[1].rotations, f"{side}_clips")
    written[1] = FittedLayer(
        scheme, dataclasses.replace(written[1].rotations, **{f"{side}_clips": (clips[0], ratio)})
    )
    write_fitted(path, Fitted(scheme, made.INFO, written, _free().calibration))
    message = (
        rf"{path}: layer 1, KV head 1: the {side} clip 0 is not allowed: {allowed} under affine-midpoint"
    )
    with pytest.raises(FileFormatError, match=message):
        read_fitted(path, made.INFO)


def test_a_file_of_a_name_that_was_given_up_is_read_as_what_it_was(path):
    """KIVI in float32 was called `kivi-key`, and QuaRot's head-wise setting `quarot-token`."""
    for name, earlier in (
        ("kivi-float32", {"kivi-float32-key": "kivi-key", "kivi-float32-value": "kivi-value"}),
        ("quarot-native", {"quarot-head-wise": "quarot-token"}),
    ):
        written = _free(name)
        write_fitted(path, written)
        content, digests = dataclasses.asdict(written.scheme), {}
        for member in ("key_dialect", "value_dialect"):
            digests[earlier.get(content[member], content[member])] = PINNED[content[member]]
            content[member] = earlier.get(content[member], content[member])
        with safetensors.safe_open(path, framework="np") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            held = dict(file.metadata()) | {
                "scheme": json.dumps(content),
                "fingerprints": json.dumps(digests),
            }
        safetensors.save_file(tensors, path, held)
        scheme, _, _ = read_fitted(path, made.INFO)
        assert scheme == written.scheme


def _digest_before(layers, **dialects):
    """The digest of layers as it was taken before a dialect was renamed and `value_group_size` was there."""
    digest = hashlib.sha256()
    for layer in layers:
        fields = {name: value for name, value in dataclasses.asdict(layer.scheme).items() if name != "name"}
        del fields["value_group_size"]
        if (fields["balance"], fields["rounding"]) == (0.5, "nearest"):
            del fields["balance"], fields["rounding"]
        rotations = layer.rotations
        clips = [rotations.key_clips, rotations.value_clips]
        parts = [fields | dialects, clips, rotations.key_mean is not None]
        digest.update(json.dumps(parts, sort_keys=True).encode())
        arrays = [
            rotations.key.matrices,
            rotations.key.inverses,
            rotations.value.matrices,
            rotations.value.inverses,
        ]
        arrays += [
            one
            for one in (rotations.key_mean, rotations.key_feedback, rotations.value_feedback)
            if one is not None
        ]
        for array in arrays:
            digest.update(f"{array.shape}".encode() + array.astype("<f4").tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("name", "dialects"),
    [
        ("kivi-float32", {"key_dialect": "kivi-key", "value_dialect": "kivi-value"}),
        ("oscar", {}),
        ("oscar-feedback", {}),
    ],
)
def test_runs_of_earlier_states_are_found_again(name, dialects):
    layers = [fit_layer(SCHEMES[name], [made.layer(index, tokens=400)]) for index in range(2)]
    assert digest_of_layers(layers) == _digest_before(layers, **dialects)


def test_runs_of_what_kivi_was_are_not_those_of_kivi():
    """A state keeps runs by the digest of what was run: the same name was another quantizer."""
    layers = [fit_layer(SCHEMES["kivi"], [made.layer(index, tokens=60)]) for index in range(2)]
    assert digest_of_layers(layers) != _digest_before(layers)
