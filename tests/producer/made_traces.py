"""Traces, dumps and files that the tests make."""

import hashlib
import struct
import zipfile
from dataclasses import dataclass, replace

import numpy as np

from producer.trace.files import ModelInfo, Trace, write_arrays, write_manifest, write_token_ids
from producer.trace.layer import LayerTrace
from producer.trace.texts import SequenceInfo

F = np.float32
INFO = ModelInfo(
    name="made",
    architecture="MadeForTests",
    weights_sha256="ab" * 32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    hidden_size=24,
    scaling=32**-0.5,
    vocab_size=300,
    config_sha256="ac" * 32,
    tokenizer_sha256="ad" * 32,
    versions=("torch 0", "transformers 0"),
)


def layer_arrays(seed, tokens, info=INFO, scale=6.0):
    """Arrays of one layer: keys with a mean and a strong channel, as those of real models have."""
    rng = np.random.default_rng(seed)
    d = info.head_dim
    k = rng.standard_normal((info.num_kv_heads, tokens, d)) + 4 * np.random.default_rng(99).standard_normal(
        (1, 1, d)
    )
    k[:, :, 3] *= scale
    return {
        "q": rng.standard_normal((info.num_heads, tokens, d)).astype(F),
        "k": k.astype(F),
        "v": rng.standard_normal((info.num_kv_heads, tokens, d)).astype(F),
    }


def weights(seed, info=INFO):
    return (
        np.random.default_rng(seed)
        .standard_normal((info.num_heads, info.head_dim, info.hidden_size))
        .astype(F)
    )


def layer(seed=0, tokens=400, info=INFO):
    return LayerTrace(
        layer_idx=0, w_o=weights(seed, info), scaling=info.scaling, **layer_arrays(seed, tokens, info)
    )


def sequence(name, tokens, passages=()):
    return SequenceInfo(name, "cd" * 32, 0, tokens, name.encode().hex().ljust(64, "0"), tuple(passages))


def token_ids(seed, tokens):
    return np.random.default_rng(seed).integers(0, 300, tokens, dtype="<i4")


def write_trace(folder, seed, *, sequences=2, tokens=400, info=INFO, passages=()):
    """A trace on disk."""
    folder.mkdir()
    for layer_idx in range(info.num_layers):
        write_arrays(folder, layer_idx, None, {"w_o": weights(layer_idx, info)})
        for index in range(sequences):
            write_arrays(folder, layer_idx, index, layer_arrays(seed + 10 * index + layer_idx, tokens, info))
    entries = [
        replace(
            sequence(f"{folder.name}-{index}.txt", tokens, passages),
            token_ids_sha256=hashlib.sha256(token_ids(seed + index, tokens).tobytes()).hexdigest(),
        )
        for index in range(sequences)
    ]
    for index in range(sequences):
        write_token_ids(folder, index, token_ids(seed + index, tokens))
    write_manifest(folder, info, entries, {"perplexity": 2.0})
    return folder


@dataclass(frozen=True)
class MemoryTrace(Trace):
    """A trace whose arrays are made when they are asked for: it needs no safetensors."""

    seed: int = 0
    scale: float = 6.0

    def layer(self, layer_idx, sequence):
        arrays = layer_arrays(
            self.seed + 10 * sequence + layer_idx, self.sequences[sequence].tokens, self.model, self.scale
        )
        return LayerTrace(
            layer_idx=layer_idx,
            w_o=weights(layer_idx, self.model),
            scaling=self.model.scaling,
            **arrays,
        )


def memory_trace(folder, seed, *, sequences=2, tokens=400, info=INFO, passages=(), scale=6.0):
    """A trace in memory, its manifest on disk."""
    folder.mkdir()
    entries = [sequence(f"{folder.name}-{index}.txt", tokens, passages) for index in range(sequences)]
    write_manifest(folder, info, entries, {"perplexity": 2.0})
    return MemoryTrace(folder, info, tuple(entries), {"perplexity": 2.0}, seed, scale)


def _text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def _number(value):
    return b"J" + struct.pack("<i", value)


def write_pt(path, array):
    """One float32 or int32 tensor in the form of ``torch.save``, without torch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.ascontiguousarray(array)
    kind = {"f": b"FloatStorage", "i": b"IntStorage"}[array.dtype.kind]
    strides = [step // array.itemsize for step in array.strides]
    sizes = b"(" + b"".join(map(_number, array.shape)) + b"t"
    steps = b"(" + b"".join(map(_number, strides)) + b"t"
    storage = (
        b"("
        + _text(b"storage")
        + b"ctorch\n"
        + kind
        + b"\n"
        + _text(b"0")
        + _text(b"cpu")
        + _number(array.size)
        + b"tQ"
    )
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + _number(0) + sizes + steps
    pickled = b"\x80\x02" + tensor + b"\x89ccollections\nOrderedDict\n)RtR."
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", pickled)
        file.writestr("x/byteorder", b"little")
        file.writestr("x/data/0", array.tobytes())
        file.writestr("x/version", b"3\n")


def write_dump(folder, layer_idx=0, chunks=(0, 1, 2, 10), heads=4, kv_heads=2, d=8):
    """An OSCAR dump: chunk c has 5 + c tokens, in sequences of 3 and the rest."""
    rng = np.random.default_rng(layer_idx)
    made = {}
    for chunk in chunks:
        tokens = 5 + chunk
        arrays = {
            "q": rng.standard_normal((tokens, heads, d)).astype(F),
            "k": rng.standard_normal((tokens, kv_heads, d)).astype(F),
            "v": rng.standard_normal((tokens, kv_heads, d)).astype(F),
            "seq_lens": np.array([3, tokens - 3], dtype=np.int32),
        }
        for name, values in arrays.items():
            write_pt(folder / f"layer_{layer_idx}" / name / f"{chunk}.pt", values)
        made[chunk] = arrays
    return made
