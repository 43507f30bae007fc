"""Rotation files: OSCAR's as torch wrote them, ours, and every fault that a load must notice."""

import math
import pickle
import sys
import zipfile

import numpy as np
import pytest

from producer.errors import ExtraMissingError, FileFormatError, SpecError
from producer.transform import oscar_file as oscar_files
from producer.transform.dense import DenseRotation, InvertibleTransform, build_hadamard
from producer.transform.oscar import build_oscar
from producer.transform.oscar_file import read_oscar_rotations, write_oscar_rotations
from producer.transform.transform_file import (
    LayerTransforms,
    read_metadata,
    read_transforms,
    write_transforms,
)
from tests.tools.regen import torch_files
from tests.tools.regen.torch_files import FOLDER

F = np.float32
KEYS, VALUES = FOLDER / "oscar-key-v1.pt", FOLDER / "oscar-value-v2.pt"


def turn(angle):
    c, s = math.cos(angle), math.sin(angle)
    return np.kron(np.eye(4), [[c, -s], [s, c]])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def test_a_v1_file_has_one_matrix_a_layer():
    rotations = read_oscar_rotations(KEYS, "key", 8, 2, range(3))
    assert list(rotations) == [0, 1, 2]
    for index, rotation in rotations.items():
        assert np.abs(rotation.matrices[0] - turn(index + 0.25)).max() < 1e-6
        assert (rotation.kind, rotation.composition, rotation.is_per_head) == ("oscar", "r_h_pbr", False)
        assert rotation.eigenvalues.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_a_v2_file_has_one_matrix_a_head_and_may_have_text_keys():
    rotation = read_oscar_rotations(VALUES, "value", 8, 2, [0])[0]
    assert rotation.is_per_head
    for head, angle in enumerate((0.25, 0.75)):
        assert np.abs(rotation.matrices[head] - turn(angle)).max() < 1e-6


def test_keys_given_as_values_are_refused():
    with pytest.raises(
        FileFormatError, match=r"'qqt_r_h_pbr' is not allowed for values: .* file of the other side"
    ):
        read_oscar_rotations(KEYS, "value", 8, 2, [0])


def test_a_missing_layer_is_not_the_identity():
    with pytest.raises(FileFormatError, match=r"layer 3 is missing; it holds \['0', '1', '2'\]"):
        read_oscar_rotations(KEYS, "key", 8, 2, range(4))


@pytest.mark.parametrize(
    ("head_dim", "heads", "path", "message"),
    [
        (16, 2, KEYS, r"rotation of shape \(8, 8\) is not allowed: \(16, 16\) in version 1"),
        (8, 3, VALUES, r"rotation of shape \(2, 8, 8\) is not allowed: \(3, 8, 8\) in version 2"),
        (8, 2, FOLDER / "tensors.pt", "found no mapping `layers`"),
    ],
)
def test_files_of_another_model_are_refused(head_dim, heads, path, message):
    side = "value" if path == VALUES else "key"
    with pytest.raises(FileFormatError, match=message):
        read_oscar_rotations(path, side, head_dim, heads, [0])


@pytest.fixture
def edited(monkeypatch):
    """Reads the v1 file with its content changed."""

    def read(change):
        content = real(KEYS)
        change(content)
        monkeypatch.setattr(oscar_files, "read_torch_file", lambda _path: content)
        return read_oscar_rotations(KEYS, "key", 8, 2, [0, 1])

    real = oscar_files.read_torch_file
    return read


def rounded(content):
    matrix = content["layers"][1]["rotation"]
    content["layers"][1]["rotation"] = (matrix.view(np.uint32) & np.uint32(0xFFFF0000)).view(F)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rounded, r"layer 1: rotation with max\|R Rᵀ - I\| = .* a matrix rounded to bfloat16"),
        (lambda c: c["layers"][0].update(layer_id=1), "layer 0: it says layer_id 1"),
        (lambda c: c["layers"].update({"1": c["layers"][1]}), "layer 1 is there twice"),
        (lambda c: c["layers"][1].pop("rotation"), "layer 1: rotation of shape NoneType is not allowed"),
        (lambda c: c["layers"].update({1: 3}), "layer 1 is there twice|layer 1 is missing"),
        (lambda c: c["layers"][0].update(eigenvalues=np.ones(7)), r"eigenvalues are not allowed: .* \(8,\)"),
        (lambda c: c["layers"][0]["rotation"].fill(np.nan), r"rotation\[0, 0, 0\] is nan"),
        (
            lambda c: c.update(format_version="identity-v1"),
            "format_version 'identity-v1' is not allowed: 1 or 2",
        ),
        (lambda c: c.update(format_version=True), "format_version True is not allowed"),
        (lambda c: c.update(objective=None), "objective None is not allowed: such as 'qqt_r_h_pbr'"),
        (lambda c: c.pop("layers"), "found no mapping `layers`"),
    ],
)
def test_faults_of_a_file_are_refused_with_their_place(edited, change, message):
    with pytest.raises(FileFormatError, match=message):
        edited(change)


def test_an_objective_without_a_known_composition_is_read_without_one(edited):
    assert edited(lambda c: c.update(objective="ktk_br_h128"))[0].composition == ""


# --- our own files ---


def layers(seed=0, heads=2):
    q, k, v = normal(seed, 2 * heads, 40, 8), normal(seed + 1, heads, 40, 8), normal(seed + 2, heads, 40, 8)
    return {
        0: LayerTransforms(
            build_oscar("qqt", q, k, v), build_oscar("sst", q, k, v, is_per_head=False), k.mean(axis=1)
        ),
        1: LayerTransforms(build_oscar("qqt", k, k, v), build_oscar("sst", k, k, v, is_per_head=False)),
    }


def pair(seed, heads=2, d=8):
    """Matrices that are not orthogonal, and their inverses."""
    matrices = (normal(seed, heads, d, d) + 4 * np.eye(d)).astype(np.float64)
    return InvertibleTransform(
        kind="balanced",
        matrices=matrices.astype(F),
        inverses=np.linalg.inv(matrices).astype(F),
        composition="b_h",
    )


def invertible():
    clips = (0.55, 0.95), (0.7, 1.0)
    return {
        index: LayerTransforms(pair(10 + index), pair(20 + index), normal(index, 2, 8), *clips)
        for index in range(2)
    }


@pytest.mark.parametrize("made", [layers, invertible])
def test_our_files_come_back_bit_for_bit(tmp_path, made):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    path, written = tmp_path / "r.safetensors", made()
    write_transforms(path, written, {"more": "text"})
    read = read_transforms(path, 8, 2, 2)
    assert read_metadata(path)["more"] == "text"
    assert [file.name for file in tmp_path.iterdir()] == ["r.safetensors"]
    for index, layer in written.items():
        for side in ("key", "value"):
            one, other = getattr(layer, side), getattr(read[index], side)
            assert type(one) is type(other)
            assert (one.matrices == other.matrices).all()
            assert (one.inverses == other.inverses).all()
            assert (one.kind, one.composition, one.sha256) == (other.kind, other.composition, other.sha256)
        assert (layer.key_clips, layer.value_clips) == (read[index].key_clips, read[index].value_clips)
        assert (layer.key_mean is None) == (read[index].key_mean is None)
        assert layer.key_mean is None or (layer.key_mean == read[index].key_mean).all()
    if made is layers:
        assert read[0].key.eigenvalues.tolist() == written[0].key.eigenvalues.tolist()


def altered(tmp_path, change, metadata=None, made=invertible):
    import safetensors.numpy  # noqa: PLC0415 - an extra

    path = tmp_path / "r.safetensors"
    write_transforms(path, made())
    with safetensors.safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        held = file.metadata()
    change(tensors)
    safetensors.numpy.save_file(tensors, path, {**held, **(metadata or {})})
    return path


def exchange(*pairs):
    def change(tensors):
        for one, other in pairs:
            tensors[one], tensors[other] = tensors[other], tensors[one]

    return change


def transpose(tensors):
    for part in ("matrix", "inverse"):
        name = f"layer.1.key.{part}"
        tensors[name] = np.ascontiguousarray(tensors[name].swapaxes(1, 2))


def reverse_heads(tensors):
    for part in ("matrix", "inverse", "probe"):
        name = f"layer.0.value.{part}"
        tensors[name] = np.ascontiguousarray(tensors[name][::-1])


def all_parts(one, other):
    return exchange(*((f"{one}.{part}", f"{other}.{part}") for part in ("matrix", "inverse", "probe")))


TURNS = "does not turn the probe as its writer's did"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (transpose, f"layer.1.key.matrix {TURNS}; it is transposed"),
        (all_parts("layer.0.key", "layer.1.key"), f"layer.0.key.matrix {TURNS}$"),
        # Keys for values, probes and all: the file of the other side.
        (all_parts("layer.0.key", "layer.0.value"), f"layer.0.key.matrix {TURNS}; it is that of values"),
        (reverse_heads, f"layer.0.value.matrix {TURNS}$"),
        (
            exchange(("layer.0.key.inverse", "layer.0.value.inverse")),
            r"layer.0.key.matrix: transform with max\|M M⁻¹",
        ),
        (lambda t: t.pop("layer.1.value.matrix"), "tensor layer.1.value.matrix is missing"),
        (lambda t: t.pop("layer.1.value.probe"), "tensor layer.1.value.probe is missing"),
        (lambda t: t.pop("layer.1.value.inverse"), "tensor layer.1.value.inverse is missing"),
        (lambda t: t["layer.0.key.mean"].fill(np.inf), "layer.0.key.mean holds NaN or infinity"),
        (lambda t: t["layer.0.key.matrix"].fill(np.nan), "layer.0.key.matrix holds NaN or infinity"),
        (
            lambda t: t.update({"layer.0.key.mean": np.zeros((3, 8), F)}),
            r"shape \(3, 8\) is not allowed: float32, \(2, 8\)",
        ),
        (
            lambda t: t.update({"layer.0.key.matrix": np.zeros((2, 8, 8), np.float16)}),
            "layer.0.key.matrix of dtype float16",
        ),
        (
            lambda t: t["layer.0.value.matrix"].__imul__(F(1.01)),
            r"layer.0.value.matrix: transform with max\|M M⁻¹",
        ),
        (
            lambda t: t["layer.1.key.clips"].fill(1.5),
            r"layer.1.key.clips \[1.5, 1.5\] is not allowed: each 0 … 1",
        ),
        (
            lambda t: t.update({"layer.2.key.mean": np.zeros((2, 8), F)}),
            "layer.2.key.mean is not allowed: layers 0 … 1",
        ),
        # What no other check sees.
        (exchange(("layer.0.key.mean", "layer.1.key.mean")), "the tensors are not those of their digest"),
        (lambda t: t["layer.1.key.clips"].fill(0.9), "the tensors are not those of their digest"),
    ],
)
def test_faults_of_our_files_are_refused(tmp_path, change, message):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    path = altered(tmp_path, change)
    with pytest.raises(FileFormatError, match=message):
        read_transforms(path, 8, 2, 2)


def test_an_orthogonal_matrix_needs_no_inverse_and_has_to_be_one(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    path = altered(tmp_path, lambda t: t["layer.0.value.matrix"].__imul__(F(1.01)), made=layers)
    with pytest.raises(FileFormatError, match=r"layer.0.value.matrix: rotation with max\|R Rᵀ - I\|"):
        read_transforms(path, 8, 2, 2)


@pytest.mark.parametrize("shape", [(8, 2, 3), (8, 3, 2), (16, 2, 2)])
def test_a_file_of_another_shape_is_refused(tmp_path, shape):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    path = tmp_path / "r.safetensors"
    write_transforms(path, invertible())
    with pytest.raises(FileFormatError, match=r"is missing|is not allowed: float32, "):
        read_transforms(path, *shape)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "x"}, "format 'x' is not allowed"),
        ({"key_kind": "x"}, "key_kind 'x'"),
        ({"sha256": "00"}, "not those of their digest"),
    ],
)
def test_files_of_another_format_are_refused(tmp_path, metadata, message):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    with pytest.raises(FileFormatError, match=message):
        read_transforms(altered(tmp_path, lambda _t: None, metadata), 8, 2, 2)
    path = tmp_path / "text"
    path.write_text("no tensors", encoding="utf-8")
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        read_transforms(path, 8, 2, 2)


def test_layers_of_several_kinds_are_not_written(tmp_path):
    pytest.importorskip("safetensors", reason="the extra `trace` is not installed")
    mixed = layers()
    mixed[1] = LayerTransforms(build_hadamard(8), mixed[1].value)
    with pytest.raises(
        SpecError, match=r"key transforms of kinds .* are not allowed: one kind for all layers"
    ):
        write_transforms(tmp_path / "r.safetensors", mixed)
    assert not list(tmp_path.iterdir())


def test_without_the_extra_a_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'kvint2eval\[trace\]'"):
        write_transforms(tmp_path / "r.safetensors", layers())
    with pytest.raises(ExtraMissingError, match=r"pip install 'kvint2eval\[trace\]'"):
        write_oscar_rotations(tmp_path / "r.pt", {0: layers()[0].key}, "key", "qqt")


def test_what_oscar_files_cannot_hold_is_refused(tmp_path):
    rotations = {0: layers()[0].key, 1: layers()[1].value}
    with pytest.raises(SpecError, match="all per layer or all per KV head"):
        write_oscar_rotations(tmp_path / "r.pt", rotations, "key", "qqt")
    with pytest.raises(SpecError, match="target 'sst' is not allowed for keys: qqt or ktk"):
        write_oscar_rotations(tmp_path / "r.pt", {0: layers()[0].key}, "key", "sst")


@pytest.mark.slow
def test_oscar_files_that_torch_writes_come_back(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `trace` is not installed")
    for is_per_head in (False, True):
        k = normal(3, 2, 40, 8)
        rotations = {index: build_oscar("qqt", k, k, k, is_per_head=is_per_head) for index in range(2)}
        path = tmp_path / "r.pt"
        write_oscar_rotations(path, rotations, "key", "qqt")
        read = read_oscar_rotations(path, "key", 8, 2, range(2))
        assert (read[1].matrices == rotations[1].matrices).all()
        loaded = torch.load(path, weights_only=True)
        assert loaded["format_version"] == 1 + is_per_head
        assert tuple(loaded["layers"][0]["rotation"].shape) == ((2, 8, 8) if is_per_head else (8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("is_per_head", [False, True])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layers: layers.update({0: {**layers[1], "layer_id": 0}}), "does not turn the probe"),
        (lambda layers: layers[0].update(rotation=layers[0]["rotation"].mT), "it is transposed"),
        (lambda layers: layers[0].update(kvint2eval_probe=[1.0]), "kvint2eval_probe is not allowed"),
        (lambda layers: layers[0].update(rotation=layers[0]["rotation"].flip(-1)), "does not turn the probe"),
    ],
)
def test_a_probe_tells_what_stands_in_another_place(tmp_path, is_per_head, change, message):
    torch = pytest.importorskip("torch", reason="the extra `trace` is not installed")
    k, path = normal(3, 2, 40, 8), tmp_path / "r.pt"
    rotations = {
        index: build_oscar("qqt", k + index * k[::-1], k, k, is_per_head=is_per_head) for index in range(2)
    }
    write_oscar_rotations(path, rotations, "key", "qqt")
    # A v1 file says its side in the objective; a v2 file of a server does not.
    words = "is that of keys" if is_per_head else "is this the file of the other side?"
    with pytest.raises(FileFormatError, match=words.replace("?", r"\?")):
        read_oscar_rotations(path, "value", 8, 2, range(2))
    content = torch.load(path, weights_only=True)
    change(content["layers"])
    torch.save(content, path)
    with pytest.raises(FileFormatError, match=message):
        read_oscar_rotations(path, "key", 8, 2, range(2))


@pytest.mark.slow
def test_the_stored_files_are_what_torch_writes(tmp_path):
    pytest.importorskip("torch", reason="the extra `trace` is not installed")
    torch_files.write(tmp_path)
    for path in FOLDER.iterdir():
        with zipfile.ZipFile(path) as stored, zipfile.ZipFile(tmp_path / path.name) as made:
            names = [name for name in stored.namelist() if name.endswith("data.pkl") or "/data/" in name]
            assert names
            for name in names:
                assert stored.read(name) == made.read(name), (path.name, name)


def test_a_rotation_can_be_pickled_and_compared():
    rotation = DenseRotation(kind="optr", matrices=np.eye(4, dtype=F)[None])
    assert pickle.loads(pickle.dumps(rotation)).sha256 == rotation.sha256  # noqa: S301 - our own bytes
