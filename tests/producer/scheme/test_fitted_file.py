"""Files of fitted schemes: they come back whole, and each fault of one is refused."""

import dataclasses
import json

import numpy as np
import pytest

from producer.errors import FileFormatError, SpecError
from producer.scheme.fit import fit_layer
from producer.scheme.fitted_file import Fitted, read_fitted, read_fitted_file, write_fitted
from producer.scheme.fitted_layer import FittedLayer
from producer.scheme.registry import SCHEMES, Scheme
from producer.trace.texts import require_disjoint
from tests.producer import made_traces as made

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
    with pytest.raises(SpecError, match=r"contaminated: calibration text 'calibration.txt'"):
        require_disjoint(calibration, [made.sequence("other.txt", 60, ["b" * 16])])


def test_a_file_of_another_model_is_refused_and_a_renamed_one_is_not(path):
    write_fitted(path, fitted())
    read_fitted(path, dataclasses.replace(made.INFO, name="renamed"))
    for change in ({"weights_sha256": "ef" * 32}, {"num_heads": 2}, {"scaling": 1.0}):
        with pytest.raises(FileFormatError, match=r"fitted to 'made' \(abababababab\), not to 'made' \("):
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
        ({"model": lambda m: m.update(num_layers="2")}, r"sizes \(32, 2, '2'\)"),
        (
            {"model": lambda m: m.update(more=1)},
            "the model or the calibration is not as it is written: TypeError",
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
